"""The wheel and the sdist hold what they must, and the wheel works in an empty environment."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_BUILD = "import setuptools.build_meta as b, sys; getattr(b, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with a wheel and an sdist, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("package")
    source, out = folder / "source", folder / "dist"
    source.mkdir()
    for name in ("src", "README.md", "LICENSE", "pyproject.toml"):
        place = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        if place.is_dir():
            shutil.copytree(place, source / name, ignore=ignore)
        else:
            shutil.copy(place, source / name)
    out.mkdir()
    for kind in ("build_sdist", "build_wheel"):
        command = [sys.executable, "-c", _BUILD, kind, str(out)]
        subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    return out


def wheel_of(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def data_files() -> set[str]:
    """Every file of the package that is not Python, as it is called in a wheel."""
    package = ROOT / "src" / "besselnet"
    return {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }


def test_wheel_holds_all_modules_data_and_types(built):
    with zipfile.ZipFile(wheel_of(built)) as archive:
        names = set(archive.namelist())
    modules = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src" / "besselnet").rglob("*.py")}
    assert modules <= names
    assert data_files() <= names
    assert "besselnet/py.typed" in names
    assert not [name for name in names if name.startswith("tests")]


def test_sdist_holds_sources_and_licence(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "src/besselnet/__init__.py"} <= names


@pytest.mark.slow
def test_wheel_runs_the_demo_in_an_empty_environment(built, tmp_path):
    python = tmp_path / "env" / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*command: object) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    run(sys.executable, "-m", "venv", tmp_path / "env")
    wheel = f"{wheel_of(built)}[demo]"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    assert "demo" in run(python.with_name("besselnet"), "--help")
    where = run(python, "-c", "import besselnet; print(besselnet.__file__)")
    assert str(tmp_path / "env") in where
    run(python.with_name("besselnet"), "demo")
    assert (tmp_path / "runs" / "demo" / "table.json").exists()
