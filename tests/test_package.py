"""The wheels and sdists hold what they must, ask for what they need, and work in an empty environment."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from places import DOCS, LAB, LIBRARY, ROOT

PACKAGES = {"besselnet": LIBRARY, "besselnet_lab": LAB}
HARD = {
    "besselnet": {"torch", "numpy", "scipy", "safetensors"},
    "besselnet_lab": {"besselnet"},
}
_BUILD = "import setuptools.build_meta as b, sys; getattr(b, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folders by package, each with a wheel and an sdist, built from a copy of the sources."""
    folders = {}
    for name, package in PACKAGES.items():
        folder = tmp_path_factory.mktemp(name)
        source, out = folder / "source", folder / "dist"
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist", ".work")
        shutil.copytree(package, source, ignore=left_out)
        out.mkdir()
        for kind in ("build_sdist", "build_wheel"):
            build(kind, source, out)
        folders[name] = out
    return folders


def build(kind: str, source: Path, out: Path, **variables: str) -> None:
    command = [sys.executable, "-c", _BUILD, kind, str(out)]
    environment = {**os.environ, **variables}
    subprocess.run(
        command, cwd=source, check=True, capture_output=True, timeout=300, env=environment
    )


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def files_of(name: str) -> set[str]:
    """Every file of a package, as it is called in a wheel."""
    source = PACKAGES[name] / "src"
    return {
        str(path.relative_to(source))
        for path in (source / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def about(wheel: Path) -> email.message.Message:
    """The metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.mark.parametrize("name", PACKAGES)
def test_wheel_holds_all_modules_data_and_types(name, built):
    with zipfile.ZipFile(wheel_of(built[name])) as archive:
        names = set(archive.namelist())
    assert files_of(name) <= names
    assert f"{name}/py.typed" in names
    assert not [member for member in names if member.startswith("tests")]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        (
            "besselnet",
            {"tests/test_layering.py", "setup.py", "native/besselnet.h", "native/kernel.c"},
        ),
        ("besselnet_lab", {"recipes/here.toml", "benchmarks/README.md"}),
    ],
)
def test_sdist_holds_sources_tests_and_licence(name, more, built):
    (sdist,) = built[name].glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.partition("/")[2] for member in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", f"src/{name}/__init__.py"} | more <= names
    if name == "besselnet_lab":
        committed = {str(path.relative_to(LAB)) for path in (LAB / "results").rglob("*.seed0.json")}
        assert committed
        assert committed <= names


@pytest.mark.parametrize("name", PACKAGES)
def test_hard_dependencies_are_few(name, built):
    required = about(wheel_of(built[name])).get_all("Requires-Dist")
    names = {re.match(r"[\w.-]+", line)[0] for line in required if "extra ==" not in line}
    assert names == HARD[name]


def tags(wheel: Path) -> tuple[str, str]:
    """Of which Python and ABI a wheel is, and of which platform."""
    python, abi, platform = wheel.stem.split("-")[-3:]
    return f"{python}-{abi}", platform


def libraries(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if Path(name).stem == "libbesselnet"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_wheel_with_the_native_kernel_is_for_every_python_and_one_platform(built):
    wheel = wheel_of(built["besselnet"])
    python, platform = tags(wheel)
    assert python == "py3-none"
    assert platform == sysconfig.get_platform().replace("-", "_").replace(".", "_")
    (library,) = libraries(wheel)
    assert library.startswith("besselnet/kernels/")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        assert b"Root-Is-Purelib: false" in archive.read(name)


def test_a_wheel_without_it_is_for_every_platform(tmp_path):
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(LIBRARY, tmp_path / "source", ignore=left_out)
    build("build_wheel", tmp_path / "source", tmp_path, BESSELNET_NO_BUILD="1")
    wheel = wheel_of(tmp_path)
    assert tags(wheel) == ("py3-none", "any")
    assert libraries(wheel) == []


def sources() -> list[Path]:
    """Everything that may tell a user to install something."""
    folders = (LIBRARY, LAB, DOCS, ROOT / "examples")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    kept = [p for p in files if p.suffix in {".py", ".md", ".toml"} and "results" not in p.parts]
    return [*kept, ROOT / "README.md", ROOT / "Makefile"]


def test_every_extra_that_is_named_exists():
    known = {
        name.replace("_", "-"): set(metadata.metadata(name).get_all("Provides-Extra") or [])
        for name in PACKAGES
    }
    wrong, seen = [], 0
    for path in sources():
        for package, extras in re.findall(r"(besselnet(?:-lab)?)\[([\w, -]+)\]", path.read_text()):
            seen += 1
            unknown = {extra.strip() for extra in extras.split(",")} - known[package]
            wrong += [f"{path.relative_to(ROOT)}: {package}[{extra}]" for extra in unknown]
    assert seen > 10
    assert not wrong, "\n".join(wrong)


class Environment:
    """An empty environment with torch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "env" / "bin"
        self.python = self.programs / "python"
        # Only what is installed in it may be found.
        self.variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self.run(sys.executable, "-m", "venv", folder / "env")
        self.install("torch")

    def run(self, *command: object, code: int = 0) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=self.folder, env=self.variables, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def install(self, what: str) -> None:
        constraints = ROOT / "constraints.txt"
        self.run(self.python, "-m", "pip", "install", "--quiet", "-c", constraints, what)

    def packages(self) -> set[str]:
        listed = self.run(self.python, "-m", "pip", "list", "--format=json")
        return {package["name"].lower() for package in json.loads(listed.splitlines()[0])}


USED_WITHOUT_EXTRAS = """
import torch
from besselnet import BesselConv2d, convert, create_model
from besselnet.hub import from_pretrained, save_pretrained
from besselnet.testing import equivariance_error, plane_waves

layer = BesselConv2d(3, 8, 7, padding=3)
assert layer(torch.rand(1, 3, 33, 33)).shape == (1, 8, 33, 33)
model = create_model("besselnet_small", in_channels=1, num_classes=2, image_size=33, pretrained=None)
convert(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, padding=1)), image_size=9)
save_pretrained(model.eval(), "saved")
images = torch.rand(2, 1, 33, 33)
with torch.no_grad():
    assert torch.equal(from_pretrained("saved")(images), model(images))
print(equivariance_error(layer, plane_waves(2, 3, 33), [90]).max() < 1e-4)
"""


@pytest.mark.slow
def test_the_wheel_alone_brings_three_packages_and_works_with_them(built, tmp_path):
    environment = Environment(tmp_path)
    before = environment.packages()
    environment.install(str(wheel_of(built["besselnet"])))
    assert environment.packages() - before <= {"besselnet", "numpy", "scipy", "safetensors"}
    assert environment.run(environment.python, "-c", USED_WITHOUT_EXTRAS).endswith("True\n")
    kernel = "from besselnet import kernels; print(kernels.status().used)"
    built_with = shutil.which("cc") is not None
    assert environment.run(environment.python, "-c", kernel) == f"{built_with}\n"
    said = environment.run(environment.programs / "besselnet", "--help", code=2)
    assert said.count("\n") == 1
    assert "besselnet[train]" in said


@pytest.mark.slow
def test_wheel_runs_the_demo_in_an_empty_environment(built, tmp_path):
    environment = Environment(tmp_path)
    environment.install(f"{wheel_of(built['besselnet'])}[demo]")
    besselnet = environment.programs / "besselnet"
    assert "demo" in environment.run(besselnet, "--help")
    where = environment.run(environment.python, "-c", "import besselnet; print(besselnet.__file__)")
    assert str(tmp_path / "env") in where
    environment.run(besselnet, "demo")
    assert (tmp_path / "runs" / "demo" / "table.json").exists()
