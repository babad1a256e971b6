"""NaN and infinity are never a setting, a loss, a weight or an answer."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn
from torchmetrics import MeanMetric

from besselnet.atomic import write_json
from besselnet.data import data_source, load_data
from besselnet.train import (
    DataConfig,
    ModelConfig,
    NonFiniteLoss,
    Run,
    TrainConfig,
    evaluate,
    evaluate_rotated,
    evaluate_run,
    fit,
    inspect_run,
    load_run,
    make_config,
    predict,
    train_run,
)
from train.toy_run import make_images
from train.toys import ToyBatches, toy_model

NOT_FINITE = [math.nan, math.inf, -math.inf]


def quick(**settings):
    return TrainConfig(**{"epochs": 2, "batch_size": 16, "device": "cpu", **settings})


@pytest.mark.parametrize("value", NOT_FINITE)
def test_every_setting_that_is_a_number_must_be_finite(value):
    numbers = [name for name, default in vars(TrainConfig()).items() if type(default) is float]
    for name in [*numbers, "clip_norm", "ema_decay"]:
        with pytest.raises(ValueError, match=f"{name}={value}"):
            TrainConfig(**{name: value})
    with pytest.raises(ValueError, match=r"class_weights\[1\]"):
        TrainConfig(class_weights=(1.0, value))
    for kind in (DataConfig, ModelConfig):
        with pytest.raises(ValueError, match=r"options.shares\[1\]"):
            kind(options={"shares": [0.5, value]})


def test_options_must_exist_and_be_finite():
    with pytest.raises(ValueError, match="no option 'in_channels'"):
        make_config(settings=["model.options.in_channels=3"])
    with pytest.raises(ValueError, match=r"model\.options\.width=inf"):
        make_config(settings=["model.options.width=inf"])
    with pytest.raises(ValueError, match=r"data\.options\.seed"):
        make_config(settings=["data.options.seed=3"])


@pytest.mark.parametrize("split", [5, "text", [0.5, 0.5], [math.nan, 0.5, 0.5], [1, 1, 1]])
def test_shares_are_checked_also_where_they_are_not_needed(split, tmp_path):
    assert "split" in data_source("folder").options
    with pytest.raises(ValueError, match=r"split.*must"):
        load_data(make_images(tmp_path / "images"), split=split)


class Answering(nn.Module):
    """Logits that are not finite for images whose first pixel is large, in evaluation alone."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.inner, self.value = toy_model(0.0), value

    def forward(self, x):
        logits = self.inner(x)
        bad = x[:, :1, 0, 0] > 1
        return logits if self.training else torch.where(bad, self.value, logits)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_validation_loss_that_is_not_finite_stops_the_run(tmp_path, value):
    with pytest.raises(NonFiniteLoss, match=r"validation after epoch 1, step 4.*learning_rate"):
        fit(Answering(value), ToyBatches(), ToyBatches(), quick(), tmp_path)
    assert not (tmp_path / "metrics.csv").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_evaluation_does_not_leave_out_what_is_not_finite(value):
    with pytest.raises(NonFiniteLoss, match="NaN"):
        evaluate(Answering(value), ToyBatches())
    with pytest.raises(NonFiniteLoss, match="NaN"):
        evaluate_rotated(Answering(value), ToyBatches(), angles=2, border="black")


class LastStepBreaks(ToyBatches):
    """One batch: the loss of no later one tells that the weights broke."""

    def __len__(self):
        return 1

    def __iter__(self):
        yield next(super().__iter__())


def test_weights_that_the_last_step_broke_are_not_a_result(tmp_path):
    settings = quick(epochs=1, learning_rate=1e38, optimizer="sgd", weight_decay=1e38, warmup=0)
    with pytest.raises(NonFiniteLoss, match="after step 1"):
        fit(toy_model(), LastStepBreaks(), None, settings, tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


class Undefined(MeanMetric):
    def update(self, logits, labels):
        super().update(1.0)

    def compute(self):
        return torch.tensor(math.nan)


def test_a_metric_that_is_not_a_number_is_absent(tmp_path):
    history = fit(
        toy_model(), ToyBatches(), ToyBatches(), quick(), tmp_path, metrics={"odd": Undefined()}
    )
    assert [row["odd"] for row in history.rows] == [None, None]
    again = fit(
        toy_model(),
        ToyBatches(),
        ToyBatches(),
        quick(),
        tmp_path,
        metrics={"odd": Undefined()},
        resume=True,
    )
    assert again.rows == history.rows


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("not finite")
    settings = {"epochs": 1, "batch_size": 8, "device": "cpu"}
    sections = {"data": {"source": str(make_images(folder / "images"))}, "train": settings}
    config = make_config({**sections, "model": {"name": "toy"}})
    return train_run(config, folder / "run", quiet=True)


@pytest.fixture
def broken(run) -> Run:
    """The same run with a network that answers NaN."""
    model = load_run(run.folder).model
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    return replace(run, model=model)


def test_predictions_that_are_not_numbers_are_rows_with_the_reason(broken):
    files = sorted((broken.folder.parent / "images" / "test").rglob("*.png"))
    rows = list(predict(broken, files, batch_size=5))
    assert [row.image for row in rows] == [str(file) for file in files]
    assert all(row.label is None and row.probability is None for row in rows)
    assert all("NaN" in row.error for row in rows)


def test_reports_on_a_broken_network_are_errors(broken):
    with pytest.raises(NonFiniteLoss, match="NaN"):
        evaluate_run(broken)
    with pytest.raises(ValueError, match="NaN"):
        inspect_run(broken)


def test_pictures_that_cannot_be_written_are_one_line_each(run, tmp_path, caplog):
    shutil.copytree(run.folder, tmp_path / "run")
    # As in a folder that cannot be written to, for whoever runs this.
    for name in ("filters.png", "reliability.png", "rotated.png"):
        (tmp_path / "run" / name).mkdir()
    locked = replace(run, folder=tmp_path / "run")
    before = sorted(path.name for path in locked.folder.iterdir())
    assert inspect_run(locked)["filters"] is None
    report = evaluate_run(locked, rotated=True, angles=2)
    filters, reliability, rotated = (record.getMessage() for record in caplog.records)
    assert "filters.png" in filters
    assert "rotated.png" in rotated
    assert "reliability.png" in reliability
    assert (report["picture"], report["trust"]["picture"]) == (None, None)
    assert report["rotated"]["trained"]["accuracy"]
    assert sorted(path.name for path in locked.folder.iterdir()) == before


@pytest.mark.parametrize("value", NOT_FINITE)
def test_json_files_are_json(tmp_path, value):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"value": value})
    assert not list(tmp_path.iterdir())
    write_json(tmp_path / "a.json", {"value": None})
    assert json.loads((tmp_path / "a.json").read_text()) == {"value": None}
