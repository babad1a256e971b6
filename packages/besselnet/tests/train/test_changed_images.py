"""Resuming refuses images that are not those that the training began with, and says what changed."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import safe_open, save_file

from besselnet.cli import main
from besselnet.data import ImageSet, Splits
from besselnet.train import TrainConfig, digest_images, fit, load_images, train_run
from besselnet.train._digest import changed_images
from train.toy_run import make_images, quick_config
from train.toys import ToyBatches, toy_model


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Images and a run on them, to be copied."""
    folder = tmp_path_factory.mktemp("original")
    make_images(folder / "images")
    train_run(quick_config(folder / "images"), folder / "run", quiet=True)
    return folder


@pytest.fixture
def begun(original, tmp_path):
    """The images and the run at places of their own."""
    shutil.copytree(original / "images", tmp_path / "images")
    shutil.copytree(original / "run", tmp_path / "run")
    config = (tmp_path / "run" / "config.json").read_text()
    moved = config.replace(str(original / "images"), str(tmp_path / "images"))
    (tmp_path / "run" / "config.json").write_text(moved)
    return tmp_path


def rename_class(images):
    for part in ("train", "val", "test"):
        # After "blobs": the labels of both classes change places, too.
        (images / part / "bars").rename(images / part / "stripes")


def swap_labels(images):
    bars, blobs = images / "train" / "bars" / "0.png", images / "train" / "blobs" / "0.png"
    bars.rename(images / "aside.png")
    blobs.rename(bars)
    (images / "aside.png").rename(blobs)


def replace_pixels(images):
    path = images / "train" / "bars" / "3.png"
    pixels = np.asarray(Image.open(path)).copy()
    pixels[4, 4] ^= 1
    Image.fromarray(pixels).save(path)


def resize(images):
    for path in images.rglob("*.png"):
        Image.open(path).resize((12, 12)).save(path)


def add_files(images):
    for number in (20, 21):
        Image.fromarray(np.full((10, 10), number, np.uint8)).save(
            images / "train" / "bars" / f"{number}.png"
        )


def remove_file(images):
    (images / "train" / "blobs" / "5.png").unlink()


def move_to_another_part(images):
    (images / "test" / "bars" / "1.png").rename(images / "train" / "bars" / "moved.png")


def drop_a_part(images):
    shutil.rmtree(images / "test")


def add_a_class(images):
    shutil.copytree(images / "train" / "bars", images / "train" / "waves")


def reorder(images):
    (images / "train" / "bars" / "0.png").rename(images / "train" / "bars" / "z.png")


def deepen(images):
    path = images / "val" / "bars" / "0.png"
    Image.fromarray(np.asarray(Image.open(path)).astype(np.uint16) * 257).save(path)


KINDS = {
    rename_class: "class 'bars' is now 'stripes'",
    swap_labels: "labels of 2 images",
    replace_pixels: "pixels of 1 image",
    resize: "shape [1, 10, 10] is now [1, 12, 12]",
    add_files: "2 images added",
    remove_file: "1 image removed",
    move_to_another_part: "1 image in another part",
    drop_a_part: "12 images removed",
    add_a_class: "class 'waves' added, 12 images added",
    reorder: "the order of the images",
    deepen: "type uint8 is now float32",
}


@pytest.mark.filterwarnings("ignore:.*16-bit")
@pytest.mark.parametrize(
    ("change", "words"), KINDS.items(), ids=lambda one: getattr(one, "__name__", "")
)
def test_each_kind_of_change_is_refused_by_name(begun, capsys, change, words):
    before = {p: p.read_bytes() for p in (begun / "run" / "model").iterdir()}
    change(begun / "images")
    with pytest.raises(SystemExit) as end:
        main(["train", "--out", str(begun / "run"), "--resume"])
    error = capsys.readouterr().err.splitlines()[-1]
    assert end.value.code == 2
    assert f"cannot resume {begun / 'run'}: its images have changed: {words};" in error
    assert {p: p.read_bytes() for p in (begun / "run" / "model").iterdir()} == before


def test_the_same_images_are_taken_up(begun):
    run = train_run(quick_config(begun / "images"), begun / "run", resume=True, quiet=True)
    assert "already finished" in (run.folder / "log.txt").read_text()
    # Copied files have other times and the same content.
    for path in (begun / "images").rglob("*.png"):
        path.write_bytes(path.read_bytes())
    train_run(quick_config(begun / "images"), begun / "run", resume=True, quiet=True)


def test_images_that_are_given_are_looked_at_too(begun):
    splits = load_images(quick_config(begun / "images").data)
    train_run(quick_config(begun / "images"), begun / "run", images=splits, resume=True, quiet=True)
    pixels = splits.train.images.clone()
    pixels[3] += 1
    other = replace(splits, train=replace(splits.train, images=pixels))
    with pytest.raises(ValueError, match="changed: pixels of 1 image;"):
        train_run(
            quick_config(begun / "images"), begun / "run", images=other, resume=True, quiet=True
        )


def test_a_checkpoint_that_says_nothing_of_its_images_is_taken_with_a_line(begun, caplog):
    path = begun / "run" / "checkpoint.safetensors"
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        tensors = {n: file.get_tensor(n) for n in file.keys() if not n.startswith("images/")}  # noqa: SIM118
    start = header["values"].index('"images"')
    header["values"] = header["values"][: start - 2] + "}"
    header["groups"] = header["groups"].replace(', "images"', "")
    save_file(tensors, path, metadata=header)
    train_run(quick_config(begun / "images"), begun / "run", resume=True, quiet=True)
    assert [r.message.count("checkpoint.safetensors") for r in caplog.records] == [1]


def test_batches_of_any_kind_train_without_a_digest(tmp_path):
    config = TrainConfig(epochs=1, device="cpu")
    fit(toy_model(), ToyBatches(), None, config, tmp_path, quiet=True)
    fit(toy_model(), ToyBatches(), None, config, tmp_path, resume=True, quiet=True)


def some(labels, classes=("a", "b", "c"), seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (len(labels), 1, 4, 4), generator=generator).to(torch.uint8)
    return ImageSet(images, torch.tensor(labels), classes)


def test_several_changes_are_all_named():
    old = digest_images(Splits(some([0, 1, 2, 0, 1, 2])))
    assert changed_images(old, old) == []
    whole = some([0, 1, 2, 0, 1, 2])
    fewer = replace(whole, labels=torch.tensor([0, 2, 1, 0, 1, 2])).select(torch.arange(5))
    new = digest_images(Splits(replace(fewer, classes=("a", "b", "d"))))
    assert changed_images(old, new) == [
        "class 'c' is now 'd'",
        "1 image removed",
        "labels of 2 images",
    ]
    shuffled = digest_images(Splits(replace(whole, classes=("b", "a", "c"))))
    assert changed_images(old, shuffled) == ["the order of the classes", "labels of 4 images"]
