"""Inference by onnxruntime against PyTorch, in turns. Meaningful on a machine that does nothing else."""

import numpy as np
import pytest
import torch

from besselnet.export import OnnxClassifier, export_model
from besselnet.models import create_model
from besselnet_lab.benchmarks.entries import Timing
from besselnet_lab.benchmarks.measure import time_in_turns

TIMING = Timing(rounds=9, fewest_rounds=9, seconds_per_case=60.0, seconds_per_round=0.2)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The network of `besselnet demo`, and the same in ONNX."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")
    torch.manual_seed(0)
    shape = {"in_channels": 1, "num_classes": 10, "image_size": 28}
    model = create_model("besselnet_small", **shape, width=1.0).eval()
    path = tmp_path_factory.mktemp("speed") / "demo.onnx"
    export_model(model, path, to="onnx", images=torch.rand(4, 1, 28, 28))
    return model, OnnxClassifier(path, threads=torch.get_num_threads())


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 16, 64])
def test_onnxruntime_is_not_slower_than_pytorch(demo, batch):
    model, classifier = demo
    images = torch.rand(batch, 1, 28, 28)
    array = np.ascontiguousarray(images.numpy())
    with torch.inference_mode():
        rounds = time_in_turns(
            {"PyTorch": lambda: model(images), "onnxruntime": lambda: classifier.logits(array)},
            TIMING,
        )
    best = {name: min(times) for name, times in rounds.items()}
    ratio = best["onnxruntime"] / best["PyTorch"]
    print(f"batch {batch}: onnxruntime / PyTorch = {ratio:.2f} ({torch.get_num_threads()} threads)")
    assert ratio <= 1, best
