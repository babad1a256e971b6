"""onnxruntime-web: taken out of its package, then kept."""

import io
import tarfile

import pytest

from besselnet.data import cache_folder
from besselnet.play import _runtime as runtime
from besselnet.play import runtime_files, runtime_is_kept


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BESSELNET_DATA", str(tmp_path))


def package(path, names):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            content = name.encode()
            entry = tarfile.TarInfo(f"package/dist/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_the_files_are_taken_out_once_and_kept(monkeypatch):
    # A package that is there is not downloaded again.
    place = (
        cache_folder()
        / "onnxruntime-web"
        / runtime.VERSION
        / f"onnxruntime-web-{runtime.VERSION}.tgz"
    )
    package(place, [*runtime._FILES, "ort.js"])
    assert not runtime_is_kept()
    files = runtime_files()
    assert {name: path.read_bytes() for name, path in files.items()} == {
        name: name.encode() for name in runtime._FILES
    }
    assert not place.exists()
    assert runtime_is_kept()
    monkeypatch.setattr(runtime, "fetch_file", None)
    assert runtime_files() == files


def test_a_package_without_them_is_refused():
    place = cache_folder() / "package.tgz"
    package(place, ["ort.js"])
    with pytest.raises((KeyError, ValueError), match=runtime._FILES[0]):
        runtime._unpacked(place)
