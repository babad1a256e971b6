"""Networks that answer for every pixel, exported: every size and batch, quarter turns, masks of files."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from besselnet import convert
from besselnet.export import OnnxClassifier, OnnxSegmenter, export_model, to_plain
from besselnet.export._parity import BOUND, difference
from besselnet.models import create_model
from export.networks import images, with_statistics
from unet import UNet

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package, reason=f"{package} is not installed (extra: export)")

SIZES = [(1, 16, 16), (3, 33, 33), (2, 32, 47), (1, 47, 32)]
CLASSES = ("ground", "cell")
# Three levels and few channels: torch takes seconds to export the graph of a whole network.
SMALL = {"besselnet_unet": {"channels": [[3], [4], [4]]}, "unet": {"width": 2}}


def network(name="besselnet_unet", **options):
    torch.manual_seed(0)
    settings = {"in_channels": 1, "num_classes": 2, "image_size": 32, **options}
    return with_statistics(create_model(name, **settings), 1, 32)


@pytest.fixture(scope="module")
def model():
    return network(**SMALL["besselnet_unet"])


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "cells.onnx"
    export_model(model, path, to="onnx", images=images(4, 1, 32), classes=CLASSES)
    return path


@pytest.fixture(scope="module")
def segmenter(path):
    return OnnxSegmenter(path)


def test_every_size_and_batch(model, segmenter):
    for shape in SIZES:
        x = torch.rand(shape).unsqueeze(1)
        found = torch.from_numpy(segmenter.logits(x.numpy()))
        assert found.shape == (shape[0], 2, *shape[1:])
        assert difference(model, lambda _, found=found: found, x) < BOUND


def test_quarter_turns_of_the_file_are_exact(segmenter):
    for _, height, width in SIZES:
        x = np.random.default_rng(0).random((1, 1, height, width), np.float32)
        logits = segmenter.logits(x)
        turned = segmenter.logits(np.rot90(x, 1, (2, 3)))
        assert np.abs(np.rot90(turned, -1, (2, 3)) - logits).max() < 1e-4 * np.abs(logits).max()


@pytest.mark.parametrize("name", SMALL)
def test_plain_networks(name, tmp_path):
    model = network(name, **SMALL[name])
    report = export_model(model, tmp_path / "a.py", to="plain", images=images(2, 1, 32))
    assert report.any_size
    assert not [m for m in to_plain(model).modules() if "besselnet" in type(m).__module__]
    for shape in SIZES:
        assert difference(model, to_plain(model), torch.rand(shape).unsqueeze(1)) < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("to", ["onnx", "torch-export"])
def test_whole_networks(name, to, tmp_path):
    path = tmp_path / f"network{'.onnx' if to == 'onnx' else '.pt2'}"
    report = export_model(network(name), path, to=to, images=images(4, 1, 32))
    assert report.any_size
    assert max(report.differences.values()) < BOUND


def test_masks_of_arrays_and_files(segmenter, model, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (25, 34), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels)[None, None] / 255).argmax(1)[0].numpy()
    given = (tmp_path / "image.png", str(tmp_path / "image.png"), pixels, pixels[..., None])
    for image in (*given, pixels / np.float32(255)):
        mask = segmenter.predict_masks(image)
        assert mask.shape == (25, 34)
        assert (mask == expected).mean() > 0.999
    assert 0 < expected.mean() < 1


def test_images_that_the_network_refuses_are_refused(segmenter, model):
    for shape in ((1, 1, 8, 40), (1, 1, 1, 1)):
        with pytest.raises(ValueError, match="at least 16"):
            model(torch.rand(shape))
        with pytest.raises(ValueError, match="at least 16"):
            segmenter.logits(np.zeros(shape, np.float32))


def test_tiles_are_handed_in(segmenter):
    image = np.random.default_rng(0).random((32, 48), np.float32)
    sizes = []

    def halves(probabilities, planes):
        sizes.append(planes.shape)
        return np.concatenate([probabilities(part[None])[0] for part in np.split(planes, 2, 2)], 2)

    mask = segmenter.predict_masks(image, tiles=halves)
    assert sizes == [(1, 32, 48)]
    assert np.array_equal(mask[:, :24], segmenter.predict_masks(image[:, :24]))


@pytest.mark.parametrize(
    "image",
    [np.zeros((20, 20, 3), np.uint8), np.zeros((20, 20), np.uint16), np.zeros(20, np.uint8)],
)
def test_other_arrays_are_refused(segmenter, image):
    with pytest.raises(ValueError, match=r"must be \(H, W, 1\)"):
        segmenter.predict_masks(image)


def test_a_file_says_what_it_answers_for(path, segmenter, tmp_path):
    assert segmenter.facts["answers"] == "pixels"
    assert segmenter.classes == CLASSES
    with pytest.raises(ValueError, match="use OnnxSegmenter"):
        OnnxClassifier(path)
    of_images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    export_model(of_images, tmp_path / "a.onnx", to="onnx", images=images(2, 1, 32))
    assert OnnxClassifier(tmp_path / "a.onnx").facts["answers"] == "image"
    with pytest.raises(ValueError, match="use OnnxClassifier"):
        OnnxSegmenter(tmp_path / "a.onnx")


def test_a_converted_unet_of_ones_own(tmp_path):
    torch.manual_seed(0)
    own = with_statistics(convert(UNet(width=2), image_size=32, repair="all"), 1, 32)
    report = export_model(
        own, tmp_path / "own.onnx", to="onnx", images=images(2, 1, 32), classes=CLASSES
    )
    assert max(report.differences.values()) < BOUND
    segmenter = OnnxSegmenter(tmp_path / "own.onnx")
    image = np.random.default_rng(0).random((32, 32), np.float32)
    mask, turned = (segmenter.predict_masks(np.rot90(image, n)) for n in (0, 1))
    assert (np.rot90(mask) == turned).mean() > 0.999
