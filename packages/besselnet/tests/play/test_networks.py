"""The networks of digits that the page has: those of the demo, by `make playground`."""

import functools
import json

import numpy as np
import pytest
import torch

from besselnet.functional import rotate_images
from besselnet.models import create_model
from besselnet.play import PAGE, kernels_of, page_files

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

ABOUT = json.loads((PAGE / "digits" / "digits.json").read_text())
LABELS = torch.tensor(ABOUT["labels"])


def digits():
    pixels = np.frombuffer((PAGE / "digits" / "digits.bin").read_bytes(), np.uint8)
    return torch.from_numpy(pixels.reshape(-1, 1, 28, 28).copy()).float() / 255


@functools.cache
def session(number):
    return onnxruntime.InferenceSession(PAGE / "digits" / ABOUT["networks"][number]["file"])


def logits(number, images):
    return torch.from_numpy(session(number).run(["logits"], {"images": images.numpy()})[0])


def test_ours_is_the_network_that_comes_with_besselnet():
    model = create_model("besselnet_small", pretrained="digits").eval()
    with torch.no_grad():
        assert torch.allclose(logits(0, digits()), model(digits()), atol=1e-4)
    assert ABOUT["networks"][0]["kernels"] == kernels_of(model)


def accuracy(number, degrees):
    return float(
        (logits(number, rotate_images(digits(), degrees)).argmax(1) == LABELS).double().mean()
    )


def test_both_read_upright_digits_and_ours_rotated_ones_too():
    """At the 24 angles of the plot; the shares are those that docs/playground.md states."""
    shares = [[accuracy(number, 15.0 * i) for i in range(24)] for number in range(2)]
    assert min(shares[0][0], shares[1][0]) > 0.95
    assert [round(100 * sum(each) / 24) for each in shares] == [96, 36]


def test_the_files_are_small():
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    assert len(files) == len(page_files())
    assert all(path.stat().st_size < 2**20 for path in files)


def test_what_the_page_says_of_them_is_true():
    assert [network["name"] for network in ABOUT["networks"]] == ["besselnet", "plain CNN"]
    sizes = [network["parameters"] for network in ABOUT["networks"]]
    assert max(sizes) < 1.01 * min(sizes)
    assert len(LABELS) == len(digits())
