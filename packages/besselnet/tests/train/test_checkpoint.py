"""Checkpoints: complete, atomic, and nothing but numbers and text."""

import copy
import errno
import os
import pickle
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from besselnet import atomic
from besselnet.data import ImageSet, Splits
from besselnet.train._checkpoint import (
    Checkpoint,
    load_checkpoint,
    optimizer_moments,
    restore_moments,
    save_checkpoint,
)
from besselnet.train._config import TrainConfig
from besselnet.train._digest import digest_images
from besselnet.train._fit import CHECKPOINT_NAME, fit
from hostile import make_special, refused
from train.toys import ToyBatches, same, toy_model, weights_of, write_weights


def example(fill: float = 1.0) -> Checkpoint:
    tied = torch.full((3, 2), fill)
    return Checkpoint(
        groups={"model": {"a": tied, "b": tied, "count": torch.tensor(4)}, "best": {}},
        values={"position": 3, "text": "é", "loss": 0.1, "none": None},
    )


def test_a_checkpoint_comes_back_whole(tmp_path):
    save_checkpoint(tmp_path / "c", example())
    found = load_checkpoint(tmp_path / "c")
    assert found.values == example().values
    assert found.groups.keys() == example().groups.keys()
    assert same(found.groups["model"], example().groups["model"])
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_goes_on_as_if_it_had_not_stopped(optimizer):
    def step(parameter, method):
        method.zero_grad()
        (parameter**2).sum().backward()
        method.step()

    first = nn.Parameter(torch.arange(3.0))
    settings = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
    one = optimizer([first], lr=0.1, **settings)
    step(first, one)
    second = nn.Parameter(first.detach().clone())
    two = optimizer([second], lr=0.1, **settings)
    # Copies, as from a file: the two must not share their moments.
    restore_moments(two, {name: t.clone() for name, t in optimizer_moments(one).items()})
    for _ in range(3):
        step(first, one)
        step(second, two)
    assert torch.equal(first, second)


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_failure_at_any_call_leaves_the_last_good_file(tmp_path, monkeypatch, call):
    save_checkpoint(tmp_path / "c", example(1.0))

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "open") if call == "open" else (atomic.os, call)), fail)
        with pytest.raises(OSError, match="No space left"):
            save_checkpoint(tmp_path / "c", example(2.0))
    assert same(load_checkpoint(tmp_path / "c").groups["model"], example(1.0).groups["model"])
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


class FillingDisk(ToyBatches):
    """From the second epoch on, the kernel refuses files of more than 4000 bytes."""

    def set_epoch(self, epoch):
        super().set_epoch(epoch)
        if epoch == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))


def test_a_full_disk_leaves_a_training_that_resumes_exactly(tmp_path):
    config = TrainConfig(epochs=3, device="cpu")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match="the last good checkpoint is kept"):
            fit(toy_model(), FillingDisk(), None, config, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert not list(tmp_path.glob("*.partial"))
    assert load_checkpoint(tmp_path / CHECKPOINT_NAME).values["history"]["epoch"] == 1

    resumed, whole = toy_model(), toy_model()
    fit(resumed, ToyBatches(), None, config, tmp_path, resume=True)
    fit(whole, ToyBatches(), None, config)
    assert same(weights_of(resumed), weights_of(whole))


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("content", [pickle.dumps(Bomb()), b"", b"\x00" * 100])
def test_loading_never_runs_code(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        load_checkpoint(tmp_path / "c")
    assert not (tmp_path / "exploded").exists()


def test_a_truncated_checkpoint_is_refused(tmp_path):
    save_checkpoint(tmp_path / "c", example())
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-5])
    with pytest.raises(ValueError, match="not a readable"):
        load_checkpoint(tmp_path / "c")


def test_a_missing_or_foreign_checkpoint_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_checkpoint(tmp_path / "nowhere")
    write_weights(tmp_path / "weights", nn.Linear(2, 2))
    with pytest.raises(ValueError, match="weights: format None is not the format '2'"):
        load_checkpoint(tmp_path / "weights")


def test_a_checkpoint_of_the_first_format_is_refused_in_one_line(tmp_path):
    save_file({}, tmp_path / "old", metadata={"format": "1", "groups": "[]", "values": "{}"})
    with pytest.raises(ValueError, match=r"format '1' .* use besselnet 0\.1\.0") as refused:
        load_checkpoint(tmp_path / "old")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ({"values": "{}"}, "groups"),
        ({"groups": '["model"]'}, "values"),
        ({"groups": "[[]]", "values": "{}"}, "groups"),
        ({"groups": '["best"]', "values": "{}"}, "model/a"),
        ({"groups": '["model"]', "values": "[" * 1000 + "]" * 1000}, "values"),
        ({"groups": '["model"]', "values": "nothing"}, "values"),
    ],
)
def test_a_wrong_header_is_named_with_its_key(tmp_path, header, key):
    path = tmp_path / "c.safetensors"
    save_file({"model/a": torch.zeros(2)}, path, metadata={"format": "2", **header})
    refused(lambda: load_checkpoint(path), "c.safetensors", key)


@pytest.mark.parametrize("fill", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(tmp_path, fill):
    save_checkpoint(tmp_path / "c.safetensors", example(fill))
    refused(lambda: load_checkpoint(tmp_path / "c.safetensors"), "c.safetensors", "'a'")


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_what_is_no_file_is_refused(tmp_path, kind):
    path = make_special(tmp_path / "c.safetensors", kind)
    refused(lambda: load_checkpoint(path), "c.safetensors", kind)


def take_up(folder: Path, resume: bool = True) -> None:
    """Train for two epochs with everything that a checkpoint can hold."""
    batches = ToyBatches()
    images = ImageSet((batches.images * 20 + 99).to(torch.uint8), batches.labels, ("a", "b"))
    config = TrainConfig(epochs=2, device="cpu", ema_decay=0.9, keep="best")
    digest = digest_images(Splits(images))
    fit(toy_model(), batches, batches, config, folder, resume=resume, digest=digest, quiet=True)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    take_up(folder, resume=False)
    return load_checkpoint(folder / CHECKPOINT_NAME)


def change_and_resume(stored: Checkpoint, folder: Path, place: str, change) -> str:
    """The line that resuming ends in once `change` was made to the mapping at `place` of a checkpoint."""
    groups = {name: dict(tensors) for name, tensors in stored.groups.items()}
    values = copy.deepcopy(stored.values)
    found = {"groups": groups, "values": values}
    for key in place.split("."):
        found = found[key]
    change(found)
    save_checkpoint(folder / CHECKPOINT_NAME, Checkpoint(groups, values))
    return refused(lambda: take_up(folder), str(folder / CHECKPOINT_NAME))


def test_what_is_unchanged_is_taken_up(stored, tmp_path):
    save_checkpoint(tmp_path / CHECKPOINT_NAME, stored)
    take_up(tmp_path)


HISTORY = ("rows", "epoch", "batch", "step", "sums", "best", "epochs_since_best", "finished")
PLACES = [
    *(("values", key) for key in ("train", "batches", "history", "precision", "images")),
    *(("values.history", key) for key in HISTORY),
    *(("values.images", key) for key in ("shape", "type", "classes")),
]


WRONG = [
    *((place, key, True if key != "finished" else 1) for place, key in PLACES),
    *((place, key, None) for place, key in PLACES if key != "best"),
    *(("values.history", key, -1) for key in ("epoch", "batch", "step", "epochs_since_best")),
    *(("values.history", key, 99) for key in ("epoch", "batch", "step", "epochs_since_best")),
    *(("values.history", "rows", rows) for rows in ([], [{}], [1, 2])),
    *(("values.history", "sums", sums) for sums in ([], [0.0, 1.0, None, 1.0, 1.0])),
    ("values.history", "more", 1),
    ("values.images", "classes", [{}, "b"]),
    ("values.images", "classes", ["a"]),
]


@pytest.mark.parametrize(("place", "key", "wrong"), WRONG)
def test_a_value_that_does_not_fit_is_named(stored, tmp_path, place, key, wrong):
    line = change_and_resume(stored, tmp_path, place, lambda at: at.update({key: wrong}))
    assert key in line or place.removeprefix("values.") in line


@pytest.mark.parametrize(("place", "key"), [p for p in PLACES if p != ("values", "images")])
def test_a_value_that_is_missing_is_named(stored, tmp_path, place, key):
    assert key in change_and_resume(stored, tmp_path, place, lambda at: at.pop(key))


@pytest.mark.parametrize("group", ["model", "optimizer", "best", "average", "images"])
def test_a_group_of_tensors_that_is_missing_is_named(stored, tmp_path, group):
    assert repr(group) in change_and_resume(stored, tmp_path, "groups", lambda at: at.pop(group))


TENSORS = [
    *((group, "5.weight") for group in ("model", "best", "average")),
    *(("optimizer", f"0/{name}") for name in ("step", "exp_avg", "exp_avg_sq")),
]


@pytest.mark.parametrize(("group", "name"), TENSORS)
@pytest.mark.parametrize("wrong", [None, torch.zeros(3), torch.zeros(2, 64, dtype=torch.int64)])
def test_a_tensor_that_is_missing_or_does_not_fit_is_named(stored, tmp_path, group, name, wrong):
    def change(at):
        at.pop(name) if wrong is None else at.update({name: wrong})

    assert name in change_and_resume(stored, tmp_path, f"groups.{group}", change)


@pytest.mark.parametrize("name", ["99/step", "-1/step", "x/step", "0/other"])
def test_a_moment_of_nothing_is_named(stored, tmp_path, name):
    def change(at):
        at[name] = torch.tensor(1.0)

    assert name in change_and_resume(stored, tmp_path, "groups.optimizer", change)


@pytest.mark.parametrize("group", ["best", "average"])
def test_other_weights_that_are_no_numbers_are_named(stored, tmp_path, group):
    def change(at):
        at["5.bias"] = torch.full((2,), torch.nan)

    assert "5.bias" in change_and_resume(stored, tmp_path, f"groups.{group}", change)
