"""`besselnet predict` for very many images: sources, files of rows, options that go together."""

import csv
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import besselnet.train
from besselnet.train import Classify, Run, RunConfig, Segment
from masks.networks import equivariant


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with images as files, an archive and an array; the command loads a run of classes."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 12), np.uint8)
    Path("new").mkdir()
    with tarfile.open("all.tar", "w") as archive:
        for number, image in enumerate(pixels):
            path = Path("new", f"{number:02d}.png")
            Image.fromarray(image).save(path)
            archive.add(path, path.name)
    np.savez("all.npz", x=pixels)
    load(monkeypatch, Classify(("a", "b")), nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))
    return tmp_path


def load(monkeypatch, task, model):
    torch.manual_seed(0)
    run = Run(Path("run"), RunConfig(), model.eval(), 1, 8, task.classes, task)
    monkeypatch.setattr(besselnet.train, "load_run", lambda folder, device: run)


def rows_of(text):
    return [(row["class"], row["probability"]) for row in csv.DictReader(io.StringIO(text))]


def test_one_table_is_the_same_from_every_source(call, place):
    tables = []
    for source in ("new", "new/*.png", "all.tar", "all.npz", "all.npz#x"):
        code, output, error = call("predict", "run", source)
        assert code == 0, error
        assert error.splitlines()[-1] == "12 images"
        tables.append(rows_of(output))
    assert len(tables[0]) == 12
    assert all(table == tables[0] for table in tables)


def test_workers_change_no_byte_of_one_table(call, place):
    plainly = call("predict", "run", "new", "--workers", 0)
    assert call("predict", "run", "new", "--workers", 2, "--batch-size", 64)[1] == plainly[1]


def test_files_of_rows_are_resumed(call, place):
    how = ("predict", "run", "new", "all.tar", "--to", "out", "--rows-per-file", 5)
    code, output, error = call(*how)
    assert (code, output) == (0, ""), error
    assert error.splitlines()[-1] == "24 images, written to out"
    files = sorted(Path("out").glob("rows-*"))
    assert len(files) == 4
    before = [path.read_bytes() for path in files]
    assert "out already has rows" in call(*how)[2]
    files[1].unlink()
    code, _, error = call(*how, "--resume")
    assert code == 0
    assert error.splitlines()[-2:] == [
        "skipped 3 files of rows written by earlier calls",
        "5 images, written to out",
    ]
    assert [path.read_bytes() for path in files] == before


def test_json_lines_and_shares(call, place):
    for share in (1, 2):
        options = ("--format", "jsonl", "--rows-per-file", 5, "--shard", f"{share}/2")
        assert call("predict", "run", "new", "--to", "out", *options)[0] == 0
    lines = "".join(path.read_text() for path in sorted(Path("out").glob("rows-*.jsonl")))
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["image"] for row in rows] == [f"new/{n:02d}.png" for n in range(12)]


def test_masks_go_to_the_folder_too(call, place, monkeypatch):
    load(monkeypatch, Segment(("background", "cell", "border")), equivariant())
    code, _, error = call("predict", "run", "all.tar", "--to", "out", "--overlay")
    assert code == 0, error
    for kind in ("masks", "overlays"):
        assert len(list(Path("out", kind).rglob("*.png"))) == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--resume"], "--resume requires --to"),
        (["--shard", "1/2"], "--shard requires --to"),
        (["--format", "csv"], "--format requires --to"),
        (["--cluster", "auto"], "--cluster requires --to"),
        (["--to", "o", "--gpus", "1"], "--gpus requires --cluster"),
        (["--to", "o", "--cluster", "auto", "--device", "cpu"], "--device cannot be combined"),
        (
            ["--to", "o", "--cluster", "auto", "--workers", "0"],
            "workers=0: must be an integer >= 1",
        ),
        (["--batch-size", "0"], "batch_size=0: must be an integer >= 1"),
        (["--to", "o", "--csv", "a.csv"], "--csv cannot be combined with --to"),
        (["--to", "o", "--json"], "--json cannot be combined with --to"),
        (["--to", "o", "--out", "p"], "--out cannot be combined with --to"),
        (["--to", "o", "--shard", "3/2"], "shard='3/2': must be of the form 3/16"),
        (["--to", "o", "--format", "xml"], "form='xml': must be one of"),
        (["--to", "o", "--overlay"], "remove --overlay"),
        (["--to", "o", "--features"], "does not define its last layer"),
        (["--to", "o", "--coverage", "0.9"], "coverage=0.9: must be unset for this run"),
        (["--error-rate", "0.1"], "error_rate=0.1: must be unset for this run"),
        (["--workers", "-1"], "workers=-1: must be an integer >= 0"),
        (["--to", "o", "--cluster", "127.0.0.1:1"], "no Ray cluster at '127.0.0.1:1'"),
    ],
)
def test_a_mistake_is_one_line(call, place, options, message):
    code, output, error = call("predict", "run", "new", *options)
    assert (code, output) == (2, "")
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not list(place.glob("o/rows*"))


def test_exported_networks_have_one_table(call, place):
    code, _, error = call("predict", "network.onnx", "new", "--to", "out")
    assert code == 2
    assert "--to requires a run" in error
