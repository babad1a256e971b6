"""Checkpoints: complete, atomic, and nothing but numbers and text."""

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
from besselnet.train._checkpoint import (
    Checkpoint,
    load_checkpoint,
    optimizer_moments,
    restore_moments,
    save_checkpoint,
)
from besselnet.train._config import TrainConfig
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
        with pytest.raises(OSError, match="the last good state is kept: make room, then resume"):
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
