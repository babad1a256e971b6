"""Without the optional packages the room imports, and what needs one names the extra in one line."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pooch
import pytest
from PIL import Image

from besselnet.data import Download, cache_folder, decode_image, fetch_data, load_data
from besselnet.data._download import fetch_file

OPTIONAL = ("PIL", "filelock", "rich", "pooch", "requests", "h5py")


@pytest.fixture
def without(monkeypatch):
    """A function that makes packages look as if they were not installed."""

    def hide(*names):
        for name in list(sys.modules):
            if name.split(".")[0] in names:
                monkeypatch.delitem(sys.modules, name)
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


def test_the_room_imports_without_them():
    hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in OPTIONAL if name != "filelock")
    # torch itself brings filelock, so it is only not imported by this room.
    program = f"import sys\n{hidden}import besselnet.data as d\nprint(len(d.list_data()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


def test_reading_images_needs_no_torch(tmp_path):
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "a.png")
    program = (
        "import sys\nsys.modules['torch'] = None\nfrom besselnet._pixels import read_image\n"
        f"print(read_image({str(tmp_path / 'a.png')!r}, channels=3, image_size=8).shape)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "(3, 8, 8)\n", done.stderr


@pytest.mark.parametrize("package", ["pooch", "requests"])
def test_downloads_name_the_extra(without, package):
    without(package)
    with pytest.raises(ValueError, match=rf"needs {package}: pip install 'besselnet\[data\]'$"):
        fetch_data("mnist")
    with pytest.raises(ValueError, match=rf"needs {package}: pip install 'besselnet\[data\]'$"):
        load_data("mnist")


@pytest.mark.parametrize(
    ("name", "file"), [("galaxy10", "Galaxy10_DECals.h5"), ("radio-galaxies", "galaxy_data_h5.h5")]
)
def test_hdf5_files_name_the_extra(without, tmp_path, name, file):
    (tmp_path / file).write_bytes(b"")
    without("h5py")
    with pytest.raises(
        ValueError, match=rf"^reading {name} needs h5py: pip install 'besselnet\[data\]'$"
    ):
        load_data(name, root=tmp_path)


def test_image_files_name_the_extra(without, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / name / "a.png")
    without("PIL")
    line = r"^reading image files needs Pillow: pip install 'besselnet\[train\]'$"
    with pytest.raises(ValueError, match=line):
        decode_image(tmp_path / "a" / "a.png")
    with pytest.raises(ValueError, match=line):
        load_data(tmp_path)


def test_arrays_need_none_of_them(without, tmp_path):
    x = np.zeros((40, 4, 4), np.uint8)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(40) % 2)
    without(*OPTIONAL)
    assert len(load_data(tmp_path / "own.npz").train) == 32


def test_files_that_are_there_need_no_download(without, tmp_path):
    without("pooch", "requests")
    (tmp_path / "file.bin").write_bytes(b"content")
    path = fetch_file(Download("file.bin", ("http://127.0.0.1:9/file.bin",), "md5:0"), tmp_path)
    assert path == tmp_path / "file.bin"


def test_the_cache_folder_is_that_of_pooch(monkeypatch):
    monkeypatch.delenv("BESSELNET_DATA")
    assert cache_folder() == Path(pooch.os_cache("besselnet"))
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path(pooch.os_cache("besselnet"))
