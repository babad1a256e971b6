"""Rows of a run that knows when its answers are sure: the same, however they are made and written."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from besselnet.robust import fit_trust
from besselnet.train import Classify, Run, RunConfig, Segment, predict_rows, predict_shards
from masks.networks import equivariant

SIDE, COUNT = 12, 40
CLASSES = ("weak", "strong")
# A file of rows ends where a batch ends, so that all ways have the same batches.
HOW = {"batch_size": 8, "features": True}
SHARDS = {**HOW, "rows_per_file": 16, "workers": 0}
PROMISES = ({}, {"coverage": 0.6}, {"error_rate": 0.03, "coverage": 0.8})


class Contrast(nn.Module):
    """Tells strong noise from weak: one feature, how far neighbours differ."""

    num_features = 1

    def __init__(self) -> None:
        super().__init__()
        self.differences = nn.Conv2d(1, 1, (1, 2), bias=False)
        self.last = nn.Linear(1, 2)
        with torch.no_grad():
            self.differences.weight.copy_(torch.tensor([-1.0, 1.0]).view(1, 1, 1, 2))
            self.last.weight.copy_(torch.tensor([[-40.0], [40.0]]))
            self.last.bias.copy_(torch.tensor([4.0, -4.0]))

    def get_classifier(self) -> nn.Module:
        return self.last

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.differences(images).abs().mean((2, 3)))


def textures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise (N, 1, S, S) from weak to strong, and labels, which near the middle are not clear."""
    generator = torch.Generator().manual_seed(seed)
    size, doubt = torch.rand(2, count, generator=generator)
    noise = torch.randn(count, 1, SIDE, SIDE, generator=generator)
    images = (0.5 + 0.18 * size[:, None, None, None] * noise).clamp(0, 1)
    return images, (size + 0.3 * (doubt - 0.5) > 0.5).long()


def make_run(held_out: int = 1) -> Run:
    model = Contrast().eval()
    trust = fit_trust(model, [textures(200, 0)], [textures(200, held_out)])
    return Run(Path("run"), RunConfig(), model, 1, SIDE, CLASSES, Classify(CLASSES), trust)


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """Files of which one cannot be read and one is a grey square."""
    folder = tmp_path_factory.mktemp("textures")
    pixels = (255 * textures(COUNT, 2)[0]).byte()
    pixels[20] = 128
    for number, image in enumerate(pixels[:, 0].numpy()):
        Image.fromarray(image).save(folder / f"{number:03d}.png")
    (folder / "011.png").write_bytes(b"nonsense")
    return folder


def table(folder: Path, form: str) -> list[dict]:
    """All rows of a folder, with values as `predict_rows` gives them."""
    rows: list[dict] = []
    for path in sorted(folder.glob(f"rows-*.{form}")):
        if form == "parquet":
            rows += pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
        elif form == "jsonl":
            rows += map(json.loads, path.read_text().splitlines())
        else:
            with path.open(newline="") as file:
                rows += map(parsed, csv.DictReader(file))
    return rows


def parsed(row: dict[str, str]) -> dict:
    numbers = ("probability", "feature_0")
    values = {name: text or None for name, text in row.items()}
    return values | {name: float(row[name]) for name in numbers if row[name]}


@pytest.mark.parametrize("promise", PROMISES)
def test_workers_and_files_of_rows_have_the_rows_of_the_simple_call(images, tmp_path, promise):
    run = make_run()
    simple = list(predict_rows(run, [images], **HOW, **promise))
    assert {row["sure"] for row in simple} == {"yes", "unsure", "unlike", None}
    assert (simple == list(predict_rows(run, [images], **HOW))) == (not promise)
    for number, row in enumerate(simple):
        assert tuple(row) == ("image", *run.columns, "feature_0", "error")
        unanswered = [value for name, value in row.items() if name not in ("image", "error")]
        assert (set(unanswered) == {None}) == (number == 11) == (row["error"] is not None)
    assert list(predict_rows(run, [images], workers=2, **HOW, **promise)) == simple
    for form in ("csv", "jsonl"):
        predict_shards(run, [images], tmp_path / form, form=form, **SHARDS, **promise)
        assert table(tmp_path / form, form) == simple
    predict_shards(run, [images], tmp_path / "2", **{**SHARDS, "workers": 2}, **promise)
    assert table(tmp_path / "2", "csv") == simple


def test_parquet_has_the_rows_and_their_types(images, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    predict_shards(make_run(), [images], tmp_path, form="parquet", **SHARDS)
    assert table(tmp_path, "parquet") == list(predict_rows(make_run(), [images], **HOW))
    schema = parquet.read_schema(next(tmp_path.glob("rows-*")))
    kinds = {field.name: str(field.type) for field in schema}
    numbers = dict.fromkeys(("probability", "feature_0"), "double")
    assert kinds == dict.fromkeys(kinds, "string") | numbers
    assert tuple(kinds) == ("image", "class", "probability", "sure", "set", "feature_0", "error")


def test_resuming_goes_on_with_the_same_promises_alone(images, tmp_path):
    promise = {"coverage": 0.9, "error_rate": 0.2}
    predict_shards(make_run(), [images], tmp_path, **SHARDS, **promise)
    missing = tmp_path / "rows-00000-000001.csv"
    before = missing.read_bytes()
    missing.unlink()
    for other in ({}, {**promise, "coverage": 0.8}, {**promise, "error_rate": 0.1}):
        with pytest.raises(ValueError, match=r"rows of a call with (coverage|error_rate)="):
            predict_shards(make_run(), [images], tmp_path, resume=True, **SHARDS, **other)
    for trust in (None, make_run(held_out=3).trust):
        changed, wanted = replace(make_run(), trust=trust), promise if trust else {}
        with pytest.raises(ValueError, match="other network"):
            predict_shards(changed, [images], tmp_path, resume=True, **SHARDS, **wanted)
    predict_shards(make_run(), [images], tmp_path, resume=True, **SHARDS, **promise)
    assert missing.read_bytes() == before


def test_promises_of_runs_that_know_of_none_are_refused(images, tmp_path):
    classes = ("background", "cell", "border")
    masks = Run(Path("run"), RunConfig(), equivariant(), 1, 8, classes, Segment(classes))
    for run in (masks, replace(make_run(), trust=None)):
        with pytest.raises(ValueError, match=r"error_rate=0\.1: must be unset for this run"):
            predict_shards(run, [images], tmp_path, error_rate=0.1)
    assert not list(tmp_path.iterdir())
