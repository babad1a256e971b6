"""ONNX files that someone else has made, and bad images given to them."""

import json

import numpy as np
import pytest
from PIL import Image

from besselnet.export import OnnxClassifier
from hostile import make_special, png, refused

onnx = pytest.importorskip("onnx", reason="onnx is not installed (extra: export)")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

FACTS = {
    "format": 2,
    "in_channels": 1,
    "image_size": 8,
    "classes": ["a", "b"],
    "resize": "fit",
    "bits": None,
    "page": None,
    "max_pixels": None,
}


def write_network(path, facts, side="side", logits=2):
    """The mean of each image, as so many logits."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["images"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
        ],
        "network",
        [helper.make_tensor_value_info("images", kind, ["batch", 1, side, side])],
        [helper.make_tensor_value_info("logits", kind, ["batch", logits])],
        [helper.make_tensor("weight", kind, [1, logits], np.arange(float(logits)))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if facts is not None:
        text = facts if isinstance(facts, str) else json.dumps(facts)
        helper.set_model_props(model, {"besselnet": text})
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    "key", ["format", "in_channels", "image_size", "classes", "resize", "bits"]
)
@pytest.mark.parametrize("value", [{}, "", -1, 10**9, float("nan"), True, [1], "missing"])
def test_every_wrong_value_of_the_metadata_is_one_line(tmp_path, key, value):
    if (key, value) == ("in_channels", 10**9):
        pytest.skip("found with the first image")
    facts = {**FACTS, key: value}
    if value == "missing":
        del facts[key]
    path = write_network(tmp_path / "a.onnx", facts)
    refused(lambda: OnnxClassifier(path), "a.onnx", key)


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "[" * 1000 + "]" * 1000])
def test_metadata_that_is_no_object_is_named(tmp_path, text):
    path = write_network(tmp_path / "a.onnx", text)
    refused(lambda: OnnxClassifier(path), "a.onnx")


def test_damaged_files_are_named_and_nothing_is_printed(tmp_path, capfd):
    good = write_network(tmp_path / "good.onnx", FACTS).read_bytes()
    lines = []
    for place in range(0, len(good), 7):
        path = tmp_path / "bad.onnx"
        path.write_bytes(good[:place] + b"\xff" + good[place + 1 :])
        try:
            OnnxClassifier(path)
        except ValueError as error:
            lines.append(str(error))
    assert lines
    assert all("bad.onnx" in line and "\n" not in line for line in lines)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_what_is_no_file_is_refused(tmp_path, kind):
    path = make_special(tmp_path / "a.onnx", kind)
    refused(lambda: OnnxClassifier(path), "a.onnx", kind)


@pytest.mark.parametrize("given", [{"side": 9}, {"logits": 3}, {"logits": 1}])
def test_a_network_that_is_not_what_its_metadata_say_is_named(tmp_path, given):
    classifier = OnnxClassifier(write_network(tmp_path / "a.onnx", FACTS, **given))
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    refused(lambda: list(classifier.predict([tmp_path / "a.png"])), "a.onnx")


def test_prediction_goes_on_after_bad_images(tmp_path):
    path = write_network(tmp_path / "a.onnx", FACTS)
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a-large.png").write_bytes(png(20_000, 20_000))
    Image.new("L", (8, 8)).save(folder / "b-gif.png", "GIF")
    make_special(folder / "c-fifo.png", "FIFO")
    Image.new("L", (60_000, 1)).save(folder / "d-sliver.png")
    Image.new("L", (8, 8), 255).save(folder / "e.png")
    *bad, sliver, good = OnnxClassifier(path).predict([folder])
    for answer, word in zip(bad, ("max_pixels", "GIF", "FIFO"), strict=True):
        assert word in answer.error
    assert (sliver.error, good.error, good.label) == (None, None, "b")
    limited = list(OnnxClassifier(path).predict([folder], max_pixels=63))
    assert all(answer.error for answer in limited)
    stored = write_network(tmp_path / "b.onnx", {**FACTS, "max_pixels": 63})
    assert all(answer.error for answer in OnnxClassifier(stored).predict([folder]))
