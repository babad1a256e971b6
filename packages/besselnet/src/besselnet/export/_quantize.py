"""ONNX files with 8-bit weights and activations, by onnxruntime's quantiser."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

# Images that the ranges of activations are taken from, in batches of so many.
CALIBRATION_IMAGES = 128
CALIBRATION_BATCH = 16


def quantize(content: bytes, images: Tensor) -> bytes:
    """The .onnx file `content` with 8-bit convolutions.

    Weights get a scale for each output channel; the ranges of activations are those that occur on the images
    (N, C, H, W). Squares, sums and roots between the convolutions stay in float32, and so does the linear
    head: it costs little, and in 8 bits it would double the largest error of the logits.
    """
    import onnx
    from onnxruntime import quantization

    model = onnx.load_model_from_string(content)
    with tempfile.TemporaryDirectory() as folder:
        before, ready, after = (Path(folder, f"{i}.onnx") for i in range(3))
        before.write_bytes(content)
        quantization.quant_pre_process(before, ready, skip_symbolic_shape=True)
        graph = onnx.load_model(ready).graph
        quantization.quantize_static(
            ready,
            after,
            _reader(quantization, graph.input[0].name, images[:CALIBRATION_IMAGES].numpy()),
            op_types_to_quantize=["Conv"],
            nodes_to_exclude=_with_computed_weights(graph),
            per_channel=True,
            # Unsigned: with signed weights, processors without VNNI add products in 16 bits, which eight
            # bits overflow.
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QUInt8,
        )
        quantized = onnx.load_model(after)
    del quantized.metadata_props[:]
    quantized.metadata_props.extend(model.metadata_props)
    small: bytes = quantized.SerializeToString()
    return small


def _with_computed_weights(graph: Any) -> list[str]:
    """Convolutions whose weights depend on the size of the image: those of anti-aliased pooling."""
    fixed = {tensor.name for tensor in graph.initializer}
    return [n.name for n in graph.node if n.op_type == "Conv" and n.input[1] not in fixed]


def _reader(quantization: Any, name: str, images: np.ndarray) -> Any:
    batches = (images[i : i + CALIBRATION_BATCH] for i in range(0, len(images), CALIBRATION_BATCH))

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.batches: Iterator[np.ndarray] = batches

        def get_next(self) -> dict[str, np.ndarray] | None:
            batch = next(self.batches, None)
            return None if batch is None else {name: batch}

    return Reader()
