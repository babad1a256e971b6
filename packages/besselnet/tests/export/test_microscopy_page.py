"""The scripts of the page on napari and QuPath, with a network that the test exports."""

import importlib.util
import re
import runpy
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from besselnet import create_model
from besselnet.export import OnnxSegmenter, export_model
from places import DOCS

SCRIPTS = dict(
    re.findall(
        r'^```python title="([^"]+)"\n(.*?)^```$',
        (DOCS / "microscopy.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
# Of the operators that compute with sizes, those that OpenCV 4.11 refuses.
OF_SIZES = {"CumSum", "Expand", "Mod", "Shape", "Tile"}


@pytest.fixture
def network(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")
    monkeypatch.chdir(tmp_path)
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    torch.manual_seed(0)
    small = {"channels": [[3], [4], [4]]}
    model = create_model("besselnet_unet", in_channels=3, num_classes=2, **small).eval()
    images = torch.rand(2, 3, 32, 32)
    export_model(
        model, "cells.onnx", to="onnx", images=images, real=False, classes=["ground", "cell"]
    )
    return model


class Viewer:
    """What the script uses of napari's viewer."""

    def __init__(self, layer):
        self.layers = SimpleNamespace(selection=SimpleNamespace(active=layer))
        self.keys, self.added, self.status = {}, [], ""

    def bind_key(self, key):
        return lambda call: self.keys.setdefault(key, call)

    def add_labels(self, data, **about):
        self.added.append((data, about))


def test_the_layer_in_napari_is_what_the_segmenter_finds(network):
    script = runpy.run_path("cells_in_napari.py")
    image = np.random.default_rng(0).integers(0, 255, (40, 48, 3), np.uint8)
    viewer = Viewer(SimpleNamespace(data=image, name="slide", scale=(1, 1)))
    script["add_key"](viewer, "cells.onnx")
    viewer.keys["m"](viewer)
    ((found, about),) = viewer.added
    expected = OnnxSegmenter("cells.onnx").predict_masks(image)
    np.testing.assert_array_equal(found, expected)
    assert about["name"] == "slide: ground, cell"
    assert "cell" in viewer.status


def test_the_file_of_one_size_is_for_opencv(network, monkeypatch):
    onnx = pytest.importorskip("onnx")
    import onnxruntime

    monkeypatch.setattr(sys, "argv", ["fix_size.py", "cells.onnx", "cells64.onnx", "64"])
    runpy.run_path("fix_size.py")
    nodes = {name: onnx.load(name).graph.node for name in ("cells.onnx", "cells64.onnx")}
    operators = {name: {node.op_type for node in found} for name, found in nodes.items()}
    assert operators["cells.onnx"] & OF_SIZES
    assert not operators["cells64.onnx"] & OF_SIZES
    assert not {node.domain for node in nodes["cells64.onnx"]} - {"", "ai.onnx"}
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = network(image).numpy()
    session = onnxruntime.InferenceSession("cells64.onnx")
    (found,) = session.run(["logits"], {"images": image.numpy()})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if importlib.util.find_spec("cv2"):
        import cv2

        opened = cv2.dnn.readNetFromONNX("cells64.onnx")
        opened.setInput(image.numpy())
        np.testing.assert_allclose(opened.forward(), expected, atol=1e-5)
