"""Batches from tar shards: every image once, in an order that seed and epoch decide."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.data import Contrast, ShardBatches, decode_image, open_sources, read_segments
from besselnet.data._tar import iter_samples
from besselnet.train import TrainConfig, fit
from train.toys import same, weights_of

CLASSES = ("bar", "blob")
COUNTS = (7, 11, 5)


def png(value, size=8):
    buffer = io.BytesIO()
    Image.fromarray(np.full((size, size), value, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def add(archive, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path):
    """Three shards; image n has the grey value 10 n, and class n % 2 as a number, name or JSON."""
    number = 0
    for shard, count in enumerate(COUNTS):
        with tarfile.open(tmp_path / f"train-{shard:02}.tar", "w") as archive:
            for _ in range(count):
                label = number % 2
                add(archive, f"part/{number:04}.png", png(10 * number))
                if number % 3 == 2:
                    about = {"label": CLASSES[label], "source": "test"}
                    add(archive, f"part/{number:04}.json", json.dumps(about).encode())
                else:
                    text = str(label) if number % 3 else CLASSES[label]
                    add(archive, f"part/{number:04}.cls", text.encode())
                number += 1
    return str(tmp_path / "train-{00..02}.tar")


def paths_of(shards):
    return [shards.replace("{00..02}", f"{number:02}") for number in range(3)]


def batches_of(shards, batch_size=4, **options):
    return ShardBatches(shards, batch_size, classes=CLASSES, image_size=8, channels=1, **options)


def numbers(images):
    return (images[:, 0, 0, 0] * 25.5).round().int().tolist()


@pytest.mark.parametrize("buffer", [1, 6, 1000])
def test_an_epoch_has_every_image_once(shards, buffer):
    found = batches_of(shards, shuffle=True, buffer=buffer)
    assert len(found) == 6
    orders = []
    for epoch in (0, 1, 0):
        found.set_epoch(epoch)
        images, labels = (torch.cat(column) for column in zip(*found))
        orders.append(numbers(images))
        assert sorted(orders[-1]) == list(range(23))
        assert labels.tolist() == [n % 2 for n in orders[-1]]
    assert orders[0] == orders[2] != orders[1]
    assert [n for images, _ in batches_of(shards) for n in numbers(images)] == list(range(23))


def test_iteration_can_start_anywhere(shards):
    found = batches_of(shards, shuffle=True, buffer=5, augment=Contrast())
    whole = list(found)
    for first in (0, 2, 5):
        rest = list(found.iter_from(first))
        assert len(rest) == len(whole) - first
        for (images, labels), (others, wanted) in zip(rest, whole[first:]):
            assert torch.equal(images, others)
            assert torch.equal(labels, wanted)


def test_processes_share_the_batch_of_one(shards):
    options = {"shuffle": True, "buffer": 5, "augment": Contrast()}
    alone = list(batches_of(shards, 6, **options))
    for rank in range(3):
        shares = batches_of(shards, 6, rank=rank, world_size=3, **options)
        for (images, labels), (share, share_labels) in zip(alone, shares, strict=True):
            torch.testing.assert_close(share, images[rank::3], atol=1e-5, rtol=0)
            assert torch.equal(share_labels, labels[rank::3])


def test_fit_resumes_exactly(shards, tmp_path):
    def train(stop=False, resume=False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        batches = batches_of(shards, shuffle=True, buffer=6, images=23, augment=Contrast())
        folder = tmp_path / ("stopped" if stop or resume else "whole")
        config = TrainConfig(epochs=3, device="cpu", checkpoint_steps=1)
        if stop:
            model.register_forward_hook(Stop(after=9))
        fit(model, batches, None, config, folder, resume=resume, quiet=True)
        return weights_of(model)

    whole = train()
    with pytest.raises(KeyboardInterrupt):
        train(stop=True)
    assert same(train(resume=True), whole)


class Stop:
    """Ends the training in the middle of an epoch."""

    def __init__(self, after):
        self.left = after

    def __call__(self, *_):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_shards_by_address(shards):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (extra: remote)")
    memory = fsspec.filesystem("memory")
    for path in paths_of(shards):
        with open(path, "rb") as file, memory.open(f"/{path.rsplit('/', 1)[1]}", "wb") as copy:
            copy.write(file.read())
    remote, local = batches_of("memory://train-{00..02}.tar"), batches_of(shards)
    for (images, _), (others, _) in zip(remote, local, strict=True):
        assert torch.equal(images, others)


def test_images_are_decoded_as_elsewhere(tmp_path):
    chance = np.random.default_rng(0)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        buffer = io.BytesIO()
        Image.fromarray(chance.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(buffer, "JPEG")
        add(archive, "x.JPG", buffer.getvalue())
        add(archive, "x.cls", b"1\n")
        add(archive, "x.thumbnail.txt", b"")
    ((images, labels),) = ShardBatches(tmp_path / "a.tar", 8, classes=CLASSES, image_size=9)
    expected = decode_image(buffer.getvalue())[:, :, 1:10].float() / 255
    assert torch.equal(images[0], expected)
    assert labels.tolist() == [1]


@pytest.mark.parametrize("share", [0.05, 0.4, 0.7])
def test_a_shard_that_was_cut_off_is_named(shards, share):
    path = paths_of(shards)[1]
    with open(path, "rb") as file:
        content = file.read()
    # Also at the end of a member, which tarfile takes for the end of the archive.
    for length in (int(share * len(content)), int(share * len(content)) // 512 * 512):
        with open(path, "wb") as file:
            file.write(content[:length])
        with pytest.raises(ValueError, match=r"train-01\.tar"):
            list(iter_samples(path))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"x.png": png(1), "x.cls": b"cat"}, "x: its class is 'cat'"),
        ({"x.png": png(1), "x.cls": b"2"}, "x: its class is '2'"),
        ({"x.png": png(1)}, "x: its class is None"),
        ({"x.png": png(1), "x.json": b"{"}, r"a\.tar: x"),
        ({"x.png": b"no image", "x.cls": b"0"}, "x: is not an image file"),
        ({"x.cls": b"0"}, "x: has 0 images"),
        ({"x.png": png(1), "x.jpg": png(1), "x.cls": b"0"}, "x: has 2 images"),
        ({"x.png": png(1), "x.PNG": png(2)}, "twice"),
    ],
)
def test_bad_samples_are_named(tmp_path, files, message):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in files.items():
            add(archive, name, content)
    with pytest.raises(ValueError, match=message) as error:
        list(batches_of(tmp_path / "a.tar"))
    assert "a.tar" in str(error.value)


def test_links_are_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("x.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(ValueError, match=r"a\.tar: x\.png: must be a regular file"):
        list(iter_samples(str(tmp_path / "a.tar")))


@pytest.mark.parametrize("images", [22, 24, 40])
def test_a_wrong_number_of_images_is_told(shards, images):
    with pytest.raises(ValueError, match=f"images={images}"):
        list(batches_of(shards, images=images))


@pytest.mark.parametrize("name", ["train-*.tar", "train-0[0-2].tar", "list.txt"])
def test_shards_are_named_as_predict_takes_them(shards, name):
    folder = Path(shards).parent
    (folder / "list.txt").write_text("\n".join(paths_of(shards)))
    for (images, _), (others, _) in zip(batches_of(folder / name), batches_of(shards), strict=True):
        assert torch.equal(images, others)


@pytest.mark.parametrize("packed", [False, True])
def test_training_reads_the_images_that_predict_reads(shards, packed):
    places = paths_of(shards)
    if packed:
        for path in places:
            Path(path[:-4] + ".tgz").write_bytes(gzip.compress(Path(path).read_bytes()))
        places = [path[:-4] + ".tgz" for path in places]
    segments = [segment for source in open_sources(places) for segment in source.segments()]
    _, images = read_segments(segments, image_size=8, channels=1)
    trained = torch.cat([images for images, _ in batches_of(places)])
    assert torch.equal(trained, torch.stack(images).float() / 255)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "must be tar archives"),
        ("photo.png", "must be tar archives"),
        ("*.tar", "no such file"),
    ],
)
def test_what_is_no_archive_is_refused(tmp_path, name, message):
    (tmp_path / "photo.png").write_bytes(png(1))
    with pytest.raises(ValueError, match=message):
        batches_of(tmp_path / name)
    with pytest.raises(ValueError, match="must have at least one"):
        batches_of([])


def test_a_damaged_header_is_noticed(shards):
    """Python's reader takes it for the end of the archive."""
    path = Path(paths_of(shards)[1])
    with tarfile.open(path) as archive:
        start = archive.getmembers()[4].offset
    content = bytearray(path.read_bytes())
    content[start : start + 200] = b"x" * 200
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"train-01\.tar: the archive is truncated or damaged"):
        list(iter_samples(str(path)))
