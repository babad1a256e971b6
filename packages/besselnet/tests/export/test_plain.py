"""Networks without besselnet: the module, and the Python file that a person with torch alone can use."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

from besselnet.export import export_model, to_plain
from besselnet.export._parity import BOUND, difference
from besselnet.export._plain import plain_source
from besselnet.nn import BesselConv2d
from export.networks import LAYERS, NETWORKS, LayerZoo, images, network


def written(plain: nn.Module) -> nn.Module:
    """The module that the Python file makes."""
    names = {"__file__": "plain.py", "__name__": "plain"}
    exec(plain_source(plain, {}, "For the test."), names)
    network = names["Network"]().eval()
    network.load_state_dict(plain.state_dict())
    return network


def test_every_layer_at_once():
    zoo = LayerZoo(list(LAYERS)).eval()
    plain = to_plain(zoo)
    for size in (12, 15):
        assert difference(zoo, plain, images(20, 4, size)) < BOUND
        assert difference(zoo, written(plain), images(20, 4, size)) < BOUND


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_on_100_random_images(name):
    model = network(name)
    plain = to_plain(model)
    assert {type(m).__module__.partition(".")[0] for m in plain.modules()} == {"torch"}
    assert difference(model, plain, images(100, seed=1)) < BOUND
    other = images(1, 1, 33)[..., 1:]
    assert difference(model, written(plain), other) < BOUND


def test_pickled_copied_and_trained_further():
    model = network("besselnet_small")
    plain = to_plain(model)
    x = images(4)
    logits = plain(x)
    assert torch.equal(pickle.loads(pickle.dumps(plain))(x), logits)
    assert torch.equal(copy.deepcopy(plain)(x), logits)
    # Black borders have no gradient of a root that is 0 there.
    x[..., :8] = 0
    plain.train()(x).square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in plain.parameters())


READER = """
import sys
sys.modules["besselnet"] = None
sys.path.insert(0, sys.argv[1])
import torch
from digits import CLASSES, IMAGE_SIZE, load
images = torch.load(sys.argv[2], weights_only=True)
torch.save(load()(images).detach(), sys.argv[3])
print(CLASSES, IMAGE_SIZE, type(load()).__module__)
"""


def test_the_file_runs_where_besselnet_cannot_be_imported(tmp_path):
    model = network("besselnet_small")
    report = export_model(
        model, tmp_path / "digits.py", to="plain", images=images(10), classes=("a", "b", "c")
    )
    assert [file.name for file in report.files] == ["digits.py", "digits.pt"]
    assert report.any_size
    assert list(report.differences) == [
        "100 random images",
        "10 real images",
        "1 image of 31 x 34 pixels",
    ]
    assert max(report.differences.values()) < BOUND
    x = images(5, seed=2)
    torch.save(x, tmp_path / "images.pt")
    done = subprocess.run(
        [sys.executable, "-c", READER, tmp_path, tmp_path / "images.pt", tmp_path / "logits.pt"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['a', 'b', 'c'] 28 digits\n"
    logits = torch.load(tmp_path / "logits.pt", weights_only=True)
    assert difference(model, lambda _: logits, x) < BOUND
    source = (tmp_path / "digits.py").read_text()
    imports = [line for line in source.splitlines() if line.startswith(("import", "from"))]
    assert all("torch" in line or line == "from pathlib import Path" for line in imports)


def test_a_network_of_ones_own_is_followed():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = BesselConv2d(2, 4, 5, padding=2)
            self.skip = nn.Conv2d(2, 4, 1)
            self.head = nn.Linear(4, 3)
            self.shared = nn.ReLU()

        def forward(self, x):
            maps = self.shared(self.conv(x)) + 2 * self.skip(x)
            return self.head(self.shared(maps).flatten(2).amax(2)) / 3 - 1

    model = Own().eval()
    assert difference(model, written(to_plain(model)), images(7, 2, 9)) < BOUND


def test_a_network_that_cannot_be_followed_says_so(tmp_path):
    class Moody(nn.Module):
        def forward(self, x):
            return x.mean((2, 3)) if x.sum() > 0 else -x.mean((2, 3))

    with pytest.raises(ValueError, match=r"Moody: torch\.fx cannot trace its forward"):
        to_plain(Moody())

    # It prints as what it was made with, but not as Python.
    odd = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    odd(images(2, 1, 8))
    odd[1].extra_repr = lambda: "three of them"
    with pytest.raises(ValueError, match="cannot be written as Python"):
        export_model(odd, tmp_path / "odd.py", to="plain", images=images(2, 1, 8))
    assert list(tmp_path.iterdir()) == []
