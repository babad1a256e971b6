"""ONNX files, by torch's exporter of ``torch.export`` graphs."""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram

from besselnet.export._program import torch_quiet
from besselnet.export._runtime import METADATA_KEY

# The oldest that torch's exporter writes without converting, so that the file runs wherever it can.
OPSET = 18


def onnx_bytes(program: ExportedProgram, facts: Mapping[str, Any], maps: int = 0) -> bytes:
    """The content of an .onnx file: input "images", output "logits", `facts` as JSON in its metadata.

    Further outputs of the program are called "maps1", "maps2", ...: there are `maps` of them.
    """
    onnx = _packages()
    with torch_quiet():
        exported = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            input_names=["images"],
            output_names=["logits", *(f"maps{i}" for i in range(1, maps + 1))],
            verbose=False,
        )
    assert exported is not None  # it is, with dynamo=True
    model = exported.model_proto
    foreign = {node.domain for node in model.graph.node} - {""}
    if foreign:
        raise ValueError(f"the graph has operators that are not standard ONNX: {sorted(foreign)}")
    _name_sizes(model.graph)
    for node in model.graph.node:
        # Where in the source torch found it: paths of this machine, and a third of the file.
        del node.metadata_props[:]
        node.ClearField("doc_string")
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, json.dumps(facts, allow_nan=False)
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def _name_sizes(graph: Any) -> None:
    """Call the free sizes by words; drop the shapes inside, which call them by torch's names."""
    del graph.value_info[:]
    names = {0: "batch", 2: "height", 3: "width"}
    for value in (*graph.input, *graph.output):
        # Maps inside the network have sizes of their own.
        inside = f"{value.name}_" if value.name.startswith("maps") else ""
        for i, size in enumerate(value.type.tensor_type.shape.dim):
            if size.dim_param:
                size.dim_param = f"{inside if i else ''}{names[i]}"


def _packages() -> Any:
    try:
        import onnx
        import onnxruntime  # noqa: F401  (to check what was written)
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise ValueError(
            f"ONNX export needs a missing package ({error}); install it with: "
            "pip install 'besselnet[export]'"
        ) from error
    return onnx
