"""Which kernel is used and why; whatever is wrong with the library, the layers give the same."""

import dataclasses
import os
import subprocess
import sys

import pytest
import torch

from besselnet.cli import main
from besselnet.kernels import _load, available, status
from besselnet.nn import BesselConv2d
from kernels.fuzz import kernels
from tolerances import TOLERANCES, assert_same

needs_kernel = pytest.mark.skipif(not available(), reason=str(status()))


@pytest.fixture(autouse=True)
def _loaded_again_after_the_test():
    yield
    _load.load.cache_clear()
    if available():
        _load.load().library.bessel_select(kernels()[0].encode())


def loaded_anew(monkeypatch, **variables):
    for name in (_load.FORCED, _load.SWITCHED_OFF):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _load.load.cache_clear()
    return status()


def gives_the_same():
    torch.manual_seed(0)
    layer = BesselConv2d(3, 4, 5, algorithm="factored")
    image = torch.randn(2, 3, 9, 9)
    output = layer(image)
    layer.algorithm = "direct"
    assert_same(output, layer(image), TOLERANCES[torch.float32].rounding)


@needs_kernel
def test_the_best_instruction_set_is_taken(monkeypatch):
    found = loaded_anew(monkeypatch)
    assert found.used
    assert found.instruction_set == kernels()[0]
    assert found.file == str(_load.FILE)
    assert found.instruction_set in str(found)
    assert found.threads in str(found)


@needs_kernel
@pytest.mark.parametrize("name", kernels())
def test_one_can_be_forced(name, monkeypatch):
    found = loaded_anew(monkeypatch, BESSELNET_KERNEL=name)
    assert found.instruction_set == name
    assert _load.FORCED in found.reason
    gives_the_same()


@needs_kernel
@pytest.mark.parametrize("name", ["sse9", "AVX2"])
def test_a_kernel_that_is_not_there_is_an_error(name, monkeypatch, capsys):
    with pytest.raises(ValueError, match=f"BESSELNET_KERNEL={name}.*{kernels()[0]}"):
        loaded_anew(monkeypatch, BESSELNET_KERNEL=name)
    with pytest.raises(ValueError, match="BESSELNET_KERNEL"):
        gives_the_same()
    with pytest.raises(SystemExit) as end:
        main(["info"])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_it_can_be_switched_off(monkeypatch):
    found = loaded_anew(monkeypatch, BESSELNET_NO_KERNEL="1")
    assert not found.used
    assert "BESSELNET_NO_KERNEL" in str(found)
    gives_the_same()


@needs_kernel
def test_zero_does_not_switch_it_off(monkeypatch):
    assert loaded_anew(monkeypatch, BESSELNET_NO_KERNEL="0").used


def other_library(folder):
    """A shared library without any of the symbols."""
    file = folder / "other.so"
    source = folder / "other.c"
    source.write_text("int nothing;")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", file, source], check=True)
    return file.read_bytes()


DAMAGES = {
    "missing": (lambda whole, folder: None, "not built"),
    "empty": (lambda whole, folder: b"", "cannot be loaded"),
    "no library": (lambda whole, folder: b"hello" * 1000, "cannot be loaded"),
    "truncated": (lambda whole, folder: whole[: len(whole) // 2], "truncated"),
    "for another processor": (
        lambda whole, folder: whole[:18] + b"\xff" + whole[19:],
        "cannot be loaded",
    ),
    "another library": (lambda whole, folder: other_library(folder), "bessel_forward"),
}


@needs_kernel
@pytest.mark.parametrize("name", DAMAGES)
def test_a_library_that_is_missing_or_damaged(name, tmp_path, monkeypatch):
    damage, said = DAMAGES[name]
    file = tmp_path / _load.FILE.name
    content = damage(_load.FILE.read_bytes(), tmp_path)
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(_load, "FILE", file)
    found = loaded_anew(monkeypatch)
    assert not found.used
    assert said in str(found)
    assert file.name in str(found)
    assert "\n" not in str(found)
    gives_the_same()
    with pytest.raises(ValueError, match="BESSELNET_KERNEL=avx2"):
        loaded_anew(monkeypatch, BESSELNET_KERNEL="avx2")


def test_a_status_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        status().used = False


def test_it_is_loaded_at_first_use_only():
    program = (
        "import besselnet.nn, torch; from besselnet.kernels import _load\n"
        "layer = besselnet.nn.BesselConv2d(3, 4, 5, algorithm='factored')\n"
        "print(_load.load.cache_info().currsize)\n"
        "layer(torch.rand(1, 3, 9, 9)); print(_load.load.cache_info().currsize)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["0", "1"], done.stderr


@needs_kernel
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("off", ["0", "1"])
def test_a_graph_has_the_operator_that_was_chosen_when_it_was_compiled(off):
    """In a process whose first use of the kernel is inside of torch.compile."""
    program = (
        "import torch\n"
        "from besselnet.nn import BesselConv2d\n"
        "def look(graph, inputs):\n"
        "    print(*[n.target for n in graph.graph.nodes if 'besselnet' in str(n.target)])\n"
        "    return graph\n"
        "layer = BesselConv2d(3, 4, 5, algorithm='factored')\n"
        "torch.compile(layer, fullgraph=True, backend=look)(torch.rand(1, 3, 9, 9))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "BESSELNET_NO_KERNEL": off},
    )
    expected = "factored_response" if off == "1" else "fused_response"
    assert expected in done.stdout, done.stderr
