"""Images on disk are the images in memory, however the cache came about."""

import errno
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet._pixels import image_files, walk_images
from besselnet.data import (
    Batches,
    Compose,
    Contrast,
    Rotate,
    StoredImages,
    _cache,
    fold_splits,
    ground_colour,
    load_data,
    row_hashes,
)
from besselnet.data._image_files import read_files
from nasty_names import NASTY

# Dies of a kill while the bytes of its third piece are on their way to the disk.
KILLED_WHILE_BUILDING = """
import os, signal, sys
from besselnet.data import _cache, load_data
_cache._PIECE_BYTES, flush, calls = 1000, os.fsync, []
def deadly(descriptor):
    calls.append(descriptor)
    # The size that is chosen, then for each piece the file and its folder.
    if len(calls) == 2 + 2 * 2 + 1:
        os.kill(os.getpid(), signal.SIGKILL)
    flush(descriptor)
os.fsync = deadly
load_data(sys.argv[1], cache="always")
"""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Five images of 8 pixels in a piece."""
    monkeypatch.setattr(_cache, "_PIECE_BYTES", 5 * 3 * 8 * 8)


@pytest.fixture
def decoded(monkeypatch):
    """How many files were decoded into each piece."""
    counts = []
    decode = _cache.decode_files

    def counting(paths, *others):
        counts.append(len(paths))
        return decode(paths, *others)

    monkeypatch.setattr(_cache, "decode_files", counting)
    return counts


def picture(chance, mode="L", size=8):
    if mode == "I;16":
        return Image.fromarray(chance.integers(0, 65536, (size, size)).astype(np.uint16))
    shape = (size, size, 3) if mode == "RGB" else (size, size)
    return Image.fromarray(chance.integers(0, 256, shape, dtype=np.uint8))


def fill(folder: Path, modes=("L",), count=12, size=8) -> Path:
    """Classes of unequal size, whose modes follow each other."""
    chance = np.random.default_rng(5)
    for number, name in enumerate(("cat", "dog", "owl")):
        (folder / name).mkdir(parents=True)
        for index in range(count + 2 * number):
            mode = modes[(number * count + index) * len(modes) // (4 * count)]
            picture(chance, mode, size).save(folder / name / f"{index:02}.png")
    return folder


def pieces(cache: Path) -> list[Path]:
    return sorted(cache.glob("decoded/*/*.safetensors"))


@pytest.mark.parametrize(
    "modes", [("L",), ("RGB",), ("L", "RGB"), ("L", "I;16"), ("RGB", "I;16", "L")]
)
def test_images_on_disk_are_those_in_memory(tmp_path, modes):
    folder = fill(tmp_path / "pets", modes)
    memory, disk = (load_data(folder, cache=cache) for cache in ("never", "always"))
    assert memory.provenance.stored == ""
    assert str(disk.provenance) == str(memory.provenance)
    for name, part in memory.parts().items():
        other = disk.parts()[name]
        assert isinstance(other.images, StoredImages)
        assert torch.equal(other.images[:], part.images)
        assert (other.images.shape, other.images.dtype) == (part.images.shape, part.images.dtype)
        assert torch.equal(other.labels, part.labels)
        assert torch.equal(row_hashes(other.images), row_hashes(part.images))
        assert torch.equal(other[1][0], part[1][0])


def test_indexing_is_that_of_a_tensor(tmp_path):
    folder = fill(tmp_path, ("RGB",))
    memory, disk = (load_data(folder, cache=c).merged().images for c in ("never", "always"))
    for index in (
        3,
        -1,
        slice(2, 30, 7),
        [5, 5, 0],
        torch.tensor([30, 1]),
        (slice(None, None, 4), 1),
    ):
        assert torch.equal(disk[index], memory[index])
    assert torch.equal(disk[::2, :, ::3, ::3], memory[::2, :, ::3, ::3])
    assert torch.equal(pickle.loads(pickle.dumps(disk))[4:9], memory[4:9])
    assert (ground_colour(disk) is None) == (ground_colour(memory) is None)
    with pytest.raises(IndexError):
        disk[len(disk)]


@pytest.mark.parametrize("balance", [False, True])
def test_batches_are_the_same(tmp_path, balance):
    folder = fill(tmp_path, ("L", "RGB"))
    augment = Compose((Rotate(), Contrast()))
    memory, disk = (
        Batches(
            *(load_data(folder, cache=cache).train, 7),
            shuffle=True,
            balance=balance,
            seed=3,
            augment=augment,
        )
        for cache in ("never", "always")
    )
    for epoch in (0, 4):
        for batches in (memory, disk):
            batches.set_epoch(epoch)
        for (images, labels), (others, numbers) in zip(memory, disk, strict=True):
            assert torch.equal(images, others)
            assert torch.equal(labels, numbers)


def test_folds_are_the_same_and_nothing_is_read(tmp_path, monkeypatch):
    folder = fill(tmp_path, count=10)
    memory, disk = (load_data(folder, cache=cache) for cache in ("never", "always"))
    expected = fold_splits(memory.merged(), 4, 1, val_share=0.2)
    with monkeypatch.context() as patch:
        patch.setattr(StoredImages, "_read", None)
        found = fold_splits(disk.merged(), 4, 1, val_share=0.2)
    for one, other in zip(expected, found, strict=True):
        for name, part in one.parts().items():
            assert torch.equal(other.parts()[name].images[:], part.images)


def test_a_table_is_kept_on_disk_too(tmp_path):
    fill(tmp_path / "images", count=5)
    rows = [
        f"images/{p.parent.name}/{p.name},{len(p.name) + i}.5"
        for i, p in enumerate(image_files(tmp_path))
    ]
    (tmp_path / "table.csv").write_text("\n".join(["file,size", *rows]) + "\n")
    memory, disk = (load_data(tmp_path / "table.csv", cache=c) for c in ("never", "always"))
    assert isinstance(disk.train.images, StoredImages)
    assert torch.equal(disk.train.images[:], memory.train.images)
    assert torch.equal(disk.train.labels, memory.train.labels)


def test_pieces_are_made_once(tmp_path, decoded):
    folder = fill(tmp_path)
    load_data(folder, cache="always")
    assert decoded == [5] * 8 + [2]
    decoded.clear()
    load_data(folder, cache="always")
    assert decoded == []
    # Another size is another cache.
    load_data(folder, cache="always", image_size=4)
    assert sum(decoded) == 42


def test_a_changed_file_costs_its_piece(tmp_path, decoded):
    folder = fill(tmp_path)
    before = load_data(folder, cache="always").merged().images[:]
    decoded.clear()
    Image.new("L", (8, 8), 77).save(folder / "dog" / "03.png")
    found = load_data(folder, cache="always")
    assert decoded == [5]
    changed = (found.merged().images[:] != before).flatten(1).any(1)
    assert changed.sum() == 1
    assert torch.equal(found.train.images[:], load_data(folder, cache="never").train.images)


def test_a_kill_costs_the_piece_under_way(tmp_path, cache, decoded, monkeypatch):
    folder = fill(tmp_path)
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_BUILDING, folder], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(pieces(cache)) == 2
    assert len(list(cache.glob("decoded/*/*.partial"))) == 1
    monkeypatch.setattr(_cache, "_PIECE_BYTES", 1000)
    found = load_data(folder, cache="always")
    # 1000 bytes: five images.
    assert sum(decoded) == 42 - 2 * 5
    assert not list(cache.glob("decoded/*/*.partial"))
    assert torch.equal(found.train.images[:], load_data(folder, cache="never").train.images)


def test_a_full_disk_leaves_whole_pieces(tmp_path, cache, decoded, monkeypatch):
    folder = fill(tmp_path)
    write, room = _cache.write_piece, [3]

    def short(path, *content):
        with monkeypatch.context() as patch:
            if not room[0]:
                patch.setattr(os, "fsync", full)
            room[0] -= 1
            write(path, *content)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_cache, "write_piece", short)
    with pytest.raises(OSError, match="No space left") as error:
        load_data(folder, cache="always")
    assert str(cache) in str(error.value.filename)
    assert len(pieces(cache)) == 3
    assert not list(cache.glob("decoded/*/*.partial"))
    room[0] = 100
    decoded.clear()
    load_data(folder, cache="always")
    assert sum(decoded) == 42 - 15


def test_two_at_once_share_the_work(tmp_path, decoded):
    folder = fill(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: load_data(folder, cache="always"), range(2)))
    assert sum(decoded) == 42
    assert torch.equal(both[0].train.images[:], both[1].train.images[:])


def test_a_damaged_image_is_not_trained_on(tmp_path, cache):
    folder = fill(tmp_path)
    images = load_data(folder, cache="always").merged().images
    images[:]
    damaged = pieces(cache)[2]
    content = bytearray(damaged.read_bytes())
    content[-70] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(ValueError, match=f"{damaged.name}.* damaged"):
        load_data(folder, cache="always").merged().images[:]
    damaged.unlink()
    found = load_data(folder, cache="always").merged()
    assert torch.equal(found.images[:], load_data(folder, cache="never").merged().images)


@pytest.mark.parametrize("harm", ["cut", "header", "places"])
def test_a_damaged_piece_is_made_anew(tmp_path, cache, decoded, harm):
    folder = fill(tmp_path)
    load_data(folder, cache="always")
    path = pieces(cache)[4]
    content = bytearray(path.read_bytes())
    if harm == "cut":
        del content[-40:]
    else:
        content[9 if harm == "header" else content.index(b"}}") + 30] ^= 255
    path.write_bytes(content)
    decoded.clear()
    with pytest.warns(UserWarning, match=path.name):
        found = load_data(folder, cache="always")
    assert len(decoded) == 1
    assert torch.equal(found.train.images[:], load_data(folder, cache="never").train.images)


def test_files_that_cannot_be_read(tmp_path, decoded):
    folder = fill(tmp_path)
    (folder / "cat" / "03.png").write_bytes(b"no image")
    for cache in ("never", "always"):
        with pytest.raises(ValueError, match=r"03.png.* \(1 of 42 files cannot be read\)"):
            load_data(folder, cache=cache)
    found = {}
    for cache in ("never", "always"):
        with pytest.warns(UserWarning, match="03.png"):
            found[cache] = load_data(folder, cache=cache, on_error="skip").merged()
    assert len(found["always"]) == 41
    assert torch.equal(found["always"].images[:], found["never"].images)
    assert torch.equal(found["always"].labels, found["never"].labels)
    # A file that is whole again is found to be, and costs its piece.
    picture(np.random.default_rng(0)).save(folder / "cat" / "03.png")
    decoded.clear()
    assert len(load_data(folder, cache="always").merged()) == 42
    assert decoded == [5]


def test_the_size_of_the_images_decides(tmp_path, monkeypatch):
    folder = fill(tmp_path, ("RGB",))
    needed = 42 * 3 * 8 * 8
    monkeypatch.setattr(_cache, "memory_bytes", lambda: 4 * needed)
    assert isinstance(load_data(folder).train.images, torch.Tensor)
    monkeypatch.setattr(_cache, "memory_bytes", lambda: 4 * needed - 1)
    found = load_data(folder)
    assert isinstance(found.train.images, StoredImages)
    assert "42 images of 8 x 8 pixels" in found.provenance.stored
    assert "data.cache='never'" in found.provenance.stored
    assert isinstance(load_data(folder, cache="never").train.images, torch.Tensor)
    assert _cache.memory_bytes() > 0


def test_images_of_more_bits_take_more_memory(tmp_path, monkeypatch):
    folder = fill(tmp_path, ("I;16",))
    needed = 42 * 4 * 8 * 8
    monkeypatch.setattr(_cache, "memory_bytes", lambda: 4 * needed)
    assert load_data(folder).train.images.nbytes <= needed
    monkeypatch.setattr(_cache, "memory_bytes", lambda: 4 * needed - 1)
    assert isinstance(load_data(folder).train.images, StoredImages)


def test_a_chosen_size_is_kept(tmp_path, monkeypatch):
    folder = fill(tmp_path, ("RGB",), size=20)
    picture(np.random.default_rng(1), "RGB", 30).save(folder / "cat" / "00.png")
    first = load_data(folder, cache="always")
    monkeypatch.setattr("besselnet.data._image_files.header_sizes", None)
    second = load_data(folder, cache="always")
    assert first.provenance.fitted == second.provenance.fitted != ""
    monkeypatch.undo()
    memory = load_data(folder, cache="never")
    assert memory.provenance.fitted == first.provenance.fitted
    assert torch.equal(second.train.images[:], memory.train.images)


def test_unknown_choice(tmp_path):
    with pytest.raises(ValueError, match="cache='sometimes'"):
        load_data(fill(tmp_path), cache="sometimes")


def test_files_are_listed_as_paths_are(tmp_path):
    for name in (*NASTY, "a", "a-b", "a b", ".hidden"):
        for part in (tmp_path / "x" / name, tmp_path / "x-y"):
            part.mkdir(parents=True, exist_ok=True)
            for file in ("b.PNG", "a.jpg", ".c.png", "d.txt", name[:100] + ".tif"):
                (part / file).write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "link.png").symlink_to(tmp_path / "x", target_is_directory=True)
    (tmp_path / "lost.png").symlink_to(tmp_path / "nothing")
    assert list(walk_images(tmp_path)) == [str(path) for path in image_files(tmp_path)]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    closed = fill(tmp_path) / "dog"
    scandir = os.scandir

    def refuse(place):
        # As for a user without permission; root may list everything.
        if place == str(closed):
            raise PermissionError(errno.EACCES, "Permission denied", place)
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ValueError, match="dog: cannot list this folder: permission denied"):
        list(walk_images(tmp_path))


def test_nothing_readable_is_said(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"")
    how = dict.fromkeys(("channels", "bits", "page", "max_pixels"))
    for size in (None, 8):
        with pytest.raises(ValueError, match="1 of 1 file"):
            read_files(tmp_path, [path], size, "crop", "skip", "always", **how)
