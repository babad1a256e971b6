"""What `import besselnet` gives, what it costs, and what is said where the extra is missing."""

import subprocess
import sys

import pytest

import besselnet


@pytest.mark.parametrize("name", besselnet.__all__)
def test_every_public_name_is_there(name):
    assert getattr(besselnet, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="BesselConv3d"):
        besselnet.BesselConv3d  # noqa: B018


def test_import_and_help_do_not_import_torch():
    program = (
        "import sys, besselnet, besselnet.cli\n"
        "assert besselnet.cli.program().run(['--help']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    run(program).check_returncode()


# Seconds of CPU over torch's own.
@pytest.mark.parametrize(
    ("statement", "most"),
    [
        ("import besselnet", 0.1),
        ("from besselnet import BesselConv2d", 0.2),
        # Not torchmetrics (1.6 s), not lightning-fabric (3 s), not matplotlib (0.5 s).
        ("import besselnet.train", 1.0),
    ],
)
def test_import_takes_little_over_torch(statement, most):
    program = (
        "import time, torch\n"
        "start = time.process_time()\n"
        f"{statement}\n"
        "print(time.process_time() - start)"
    )
    # The machine may be busy with something else for a while: the best of a few counts.
    best = most
    for _ in range(5):
        best = min(best, float(run(program).stdout))
        if best < most:
            break
    assert best < most


EXTRA = ("typer", "rich", "lightning_fabric", "torchmetrics", "matplotlib", "PIL", "filelock")

# An environment without some packages.
HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, timeout=120, text=True
    )


@pytest.mark.parametrize("arguments", [[], ["train", "x"], ["models"]], ids=" ".join)
@pytest.mark.parametrize("hidden", [EXTRA, ("lightning_fabric",)], ids=["extra", "fabric"])
def test_without_the_extra_the_command_line_says_so_in_one_line(arguments, hidden):
    needs_all = hidden == EXTRA
    done = run(HIDE.format(hidden=hidden) + "from besselnet.cli import main\nmain()", *arguments)
    if not needs_all and arguments != ["train", "x"]:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("besselnet: ")
    assert "pip install 'besselnet[train]'" in line
    assert ("typer" if needs_all else "lightning_fabric") in line


def test_without_the_extra_training_says_so_and_layers_work():
    done = run(HIDE.format(hidden=EXTRA) + "import besselnet.train")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (
        "ImportError: besselnet.train needs lightning_fabric, torchmetrics, rich, matplotlib, PIL, "
        "filelock: pip install 'besselnet[train]'"
    )
    program = "import torch, besselnet\nprint(besselnet.BesselConv2d(1, 2, 3)(torch.rand(1, 1, 5, 5)).shape)"
    done = run(HIDE.format(hidden=EXTRA) + program)
    assert done.stdout == "torch.Size([1, 2, 3, 3])\n"
