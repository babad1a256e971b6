"""Images from files, folders, patterns, lists, archives and arrays: the same images, each once, in order."""

import gzip
import io
import json
import pickle
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet._pixels import SUFFIXES, walk_images
from besselnet.data import (
    Held,
    check_sources,
    cut_segments,
    hold_contents,
    iter_images,
    list_sources,
    open_sources,
    read_segments,
)

COUNT = 23
READING = {"image_size": 8, "channels": 3}


def add(archive, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The same images as files in two folders, as archives and as arrays."""
    folder = tmp_path_factory.mktemp("sources")
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 12, 12, 3), np.uint8)
    files = []
    for number, image in enumerate(pixels):
        path = folder / "photos" / f"{number // 10}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        files.append(path)
    (folder / "photos" / "notes.md").write_text("no image")
    for name, mode in (("all.tar", "w"), ("all.tgz", "w:gz")):
        with tarfile.open(folder / name, mode) as archive:
            for path in files:
                add(archive, f"{path.stem}.png", path.read_bytes())
                add(archive, f"{path.stem}.cls", b"3")
                add(archive, f"._{path.stem}.png", b"of another system")
    for part in range(2):
        with tarfile.open(folder / f"part-{part:02d}.tar", "w") as archive:
            for path in files[part * 12 : part * 12 + 12]:
                add(archive, path.name, path.read_bytes())
    (folder / "list.txt").write_text("".join(f"{path}\n" for path in files))
    (folder / "mixed.txt").write_text(f"{folder}/part-00.tar\n\n{folder}/part-01.tar\n")
    np.savez(folder / "plain.npz", x=pixels, y=np.arange(COUNT))
    np.savez_compressed(folder / "packed.npz", pictures=pixels.transpose(0, 3, 1, 2))
    return folder, pixels, files


def read(places, size=5):
    """(names, images or errors) of sources, in pieces of `size`."""
    names, images = [], []
    for source in open_sources(places):
        for segments in cut_segments(source.segments(), size):
            # As another process gets it.
            found = read_segments(pickle.loads(pickle.dumps(segments)), **READING)
            names += found[0]
            images += found[1]
    return names, images


@pytest.fixture(scope="module")
def expected(place):
    return torch.stack([image for _, image in iter_images(place[2], **READING)])


def write_hdf5(folder, pixels):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "all.h5", "w") as file:
        file.create_dataset("cells/images", data=pixels, chunks=(4, 12, 12, 3), compression="gzip")
        file["labels"] = np.arange(len(pixels))


def write_zarr(folder, pixels):
    zarr = pytest.importorskip("zarr")
    group = zarr.open(str(folder / "all.zarr"), mode="w")
    group.create_array("images", shape=pixels.shape, dtype="uint8", chunks=(4, 12, 12, 3))[:] = (
        pixels
    )


@pytest.mark.parametrize(
    "sources",
    [
        ["photos"],
        ["photos/*/*.png"],
        ["photos/**/*.png"],
        ["photos/0", "photos/1/010.png", "photos/1/01[1-9].png", "photos/2"],
        ["list.txt"],
        ["mixed.txt"],
        ["all.tar"],
        ["all.tgz"],
        ["part-{00..01}.tar"],
        ["plain.npz"],
        ["packed.npz"],
        ["packed.npz#pictures"],
        ["all.h5#cells/images"],
        ["all.zarr"],
        ["all.zarr#images"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("size", [1, 5, 100])
def test_all_sources_give_the_same_images(place, expected, sources, size):
    folder, pixels, _ = place
    if "h5" in sources[0]:
        write_hdf5(folder, pixels)
    if "zarr" in sources[0]:
        write_zarr(folder, pixels)
    places = [f"{folder}/{name}" for name in sources]
    check_sources(places)
    names, images = read(places, size)
    assert torch.equal(torch.stack(images), expected)
    assert len(set(names)) == COUNT
    assert list_sources(open_sources(places)).count in (COUNT, None)


@pytest.mark.parametrize("sources", [["photos"], ["photos/*/*.png"], ["part-*.tar"], ["plain.npz"]])
def test_remote_sources_by_fsspec(place, expected, sources):
    fsspec = pytest.importorskip("fsspec")
    folder = place[0]
    system = fsspec.filesystem("memory")
    if not system.exists("/survey"):
        system.put(str(folder), "/survey", recursive=True)
    names, images = read([f"memory://survey/{name}" for name in sources])
    assert torch.equal(torch.stack(images), expected)
    assert all(name.startswith("memory://") for name in names)


def test_numbers_in_braces_in_a_list(tmp_path):
    (tmp_path / "list.txt").write_text("{8..10}.png\nlast.png\n")
    names, _ = read([tmp_path / "list.txt"])
    assert names == ["8.png", "9.png", "10.png", "last.png"]


def test_a_remote_file_that_is_missing_has_a_reason():
    pytest.importorskip("fsspec")
    names, errors = read(["memory://none/a.png", "memory://none/b.tar"])
    assert names == ["memory://none/a.png", "memory://none/b.tar"]
    assert all("No such file" in str(error) for error in errors)


def test_a_folder_is_listed_in_the_order_of_sorted_paths(tmp_path):
    for name in ("b/a.png", "b.png", "b-1.png", "a/x/1.JPG", "a.png/2.tif", ".hidden/3.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    found = (p for p in tmp_path.rglob("*") if p.suffix.lower() in SUFFIXES and not p.is_dir())
    visible = sorted(p for p in found if ".hidden" not in p.parts)
    assert [Path(path) for path in walk_images(tmp_path)] == visible
    assert len(visible) == 5


def test_contents_travel_with_what_is_sent_elsewhere(place, expected):
    folder = place[0]
    places = [
        f"{folder}/{name}" for name in ("part-00.tar", "photos/1/012.png", "photos/1/013.png")
    ]
    sent = []
    for source in open_sources([*places, folder / "plain.npz"]):
        sent += hold_contents(source.segments())
    assert all(isinstance(segment, Held) and segment.here is None for segment in sent)
    _, images = read_segments(sent, **READING)
    assert torch.equal(torch.stack(images), torch.cat([expected[:14], expected]))


def errors_of(places):
    names, images = read(places)
    return [(n, str(i)) for n, i in zip(names, images) if isinstance(i, Exception)], len(names)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_tar_that_is_cut_off_gives_its_images_and_a_reason(place, tmp_path, share):
    whole = (place[0] / "all.tar").read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: int(len(whole) * share)])
    errors, rows = errors_of([cut])
    assert rows - len(errors) == pytest.approx(COUNT * share, abs=3)
    assert errors[-1][0] == str(cut)


def test_a_tar_without_its_end_is_noticed(place, tmp_path):
    """Cut between two members: Python's reader takes that for the end."""
    with tarfile.open(place[0] / "all.tar") as archive:
        fourth = archive.getmembers()[9].offset
    cut = tmp_path / "cut.tar"
    cut.write_bytes((place[0] / "all.tar").read_bytes()[:fourth])
    errors, rows = errors_of([cut])
    assert rows == 4
    assert "its end is missing" in errors[0][1]


def test_a_header_that_is_damaged_is_noticed(place, tmp_path):
    content = bytearray((place[0] / "all.tar").read_bytes())
    with tarfile.open(place[0] / "all.tar") as archive:
        start = archive.getmembers()[9].offset
    content[start : start + 200] = b"x" * 200
    (tmp_path / "bad.tar").write_bytes(content)
    errors, rows = errors_of([tmp_path / "bad.tar"])
    assert (rows, len(errors)) == (4, 1)


def test_a_gzip_that_is_cut_off_is_noticed(place, tmp_path):
    whole = gzip.decompress((place[0] / "all.tgz").read_bytes())
    packed = gzip.compress(whole)
    (tmp_path / "cut.tgz").write_bytes(packed[: len(packed) // 2])
    errors, rows = errors_of([tmp_path / "cut.tgz"])
    assert len(errors) == 1
    assert rows > 3


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.npz", "a.h5", "a.zarr"])
def test_a_file_that_is_something_else_is_one_row(tmp_path, name):
    (tmp_path / name).write_bytes(b"something else" * 100)
    errors, rows = errors_of([tmp_path / name])
    assert (rows, len(errors)) == (1, 1)
    assert name in errors[0][1]


def test_an_unreadable_member_is_a_row_and_the_others_follow(place, tmp_path):
    with tarfile.open(tmp_path / "some.tar", "w") as archive:
        add(archive, "a.png", b"nonsense")
        add(archive, "b.png", place[2][0].read_bytes())
    errors, rows = errors_of([tmp_path / "some.tar"])
    assert rows == 2
    assert [name for name, _ in errors] == [f"{tmp_path}/some.tar/a.png"]


def test_a_link_in_an_archive_is_a_row(place, tmp_path):
    with tarfile.open(tmp_path / "links.tar", "w") as archive:
        add(archive, "a.png", place[2][0].read_bytes())
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo("b.png")
            link.type, link.linkname = kind, "a.png"
            archive.addfile(link)
    errors, rows = errors_of([tmp_path / "links.tar"])
    assert (rows, len(errors)) == (3, 2)
    assert "b.png: must be a regular file" in errors[0][1]


def test_rows_of_an_array_fail_alone(tmp_path):
    values = np.full((3, 12, 12), 0.5, np.float32)
    values[1, 0, 0] = 7
    np.savez(tmp_path / "a.npz", x=values)
    errors, rows = errors_of([tmp_path / "a.npz"])
    assert rows == 3
    assert [name for name, _ in errors] == [f"{tmp_path}/a.npz#x[1]"]


def test_nothing_in_an_array_is_executed(tmp_path):
    np.savez(tmp_path / "objects.npz", x=np.array([[[print]]], object))
    assert "Python objects" in errors_of([tmp_path / "objects.npz"])[0][0][1]
    zarr = pytest.importorskip("zarr")
    place = tmp_path / "pickled.zarr"
    zarr.create_array(str(place), shape=(2, 12, 12), dtype="uint8", zarr_format=2, compressors=None)
    about = json.loads((place / ".zarray").read_text())
    (place / ".zarray").write_text(json.dumps(about | {"filters": [{"id": "pickle"}]}))
    (place / "0.0.0").write_bytes(pickle.dumps(np.zeros((2, 12, 12), np.uint8)))
    (errors, _) = errors_of([place])
    assert "pickle" in errors[0][1]


def test_what_cannot_be_told_is_asked_for(tmp_path):
    two = np.zeros((2, 8, 8), np.uint8)
    np.savez(tmp_path / "two.npz", a=two, b=two)
    assert "choose one of a, b, as in FILE#a" in errors_of([tmp_path / "two.npz"])[0][0][1]
    assert "has no 'c'" in errors_of([f"{tmp_path}/two.npz#c"])[0][0][1]
    assert errors_of([f"{tmp_path}/two.npz#b"]) == ([], 2)


def test_other_images_are_another_listing(place, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(place[0] / "photos", folder)
    before = list_sources(open_sources([folder]))
    assert before == list_sources(open_sources([folder]))
    (folder / "0" / "000.png").rename(folder / "0" / "000a.png")
    assert list_sources(open_sources([folder])) != before


@pytest.mark.parametrize(("module", "extra"), [("fsspec", "remote"), ("zarr", "zarr")])
def test_a_missing_package_is_named(tmp_path, monkeypatch, module, extra):
    (tmp_path / "a.zarr").mkdir()
    monkeypatch.setitem(sys.modules, module, None)
    where = {"fsspec": "memory://a.tar", "zarr": tmp_path / "a.zarr"}[module]
    errors, _ = errors_of([where])
    assert f"pip install 'besselnet[{extra}]'" in errors[0][1]


@pytest.mark.parametrize("place", ["no/such.png", "no/*.png", "no-{0..3}.tar", "no.h5#key"])
def test_a_place_where_nothing_is_is_refused(tmp_path, place):
    with pytest.raises(ValueError, match="no such file or folder"):
        check_sources([tmp_path / place])
