"""Runs that know when their answers are sure."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from besselnet.data import ImageSet, Splits
from besselnet.robust import TRUST_FILE, load_trust
from besselnet.train import (
    DataConfig,
    ModelConfig,
    Run,
    RunConfig,
    TrainConfig,
    evaluate_run,
    load_run,
    predict,
    predict_rows,
    train_run,
)
from train.toy_tasks import make_splits, task_config

SIDE = 12
CLASSES = ("weak", "strong")


def textures(count: int, seed: int) -> ImageSet:
    """Noise on grey, weak or strong, and some of which that is not clear."""
    generator = torch.Generator().manual_seed(seed)
    spread, level = torch.rand(2, count, 1, 1, generator=generator).unbind()
    labels = torch.arange(count) % 2
    size = 0.04 + 0.05 * labels[:, None, None] + 0.06 * spread
    noise = torch.randn(count, SIDE, SIDE, generator=generator)
    images = (0.4 + 0.2 * level + size * noise).clamp(0, 1)
    return ImageSet((255 * images).byte()[:, None], labels, CLASSES)


def config(**data) -> RunConfig:
    train = TrainConfig(epochs=12, batch_size=32, learning_rate=0.03, device="cpu")
    return RunConfig(DataConfig(**data), ModelConfig("toy_pooled"), train)


SPLITS = Splits(textures(300, 0), textures(200, 1), textures(400, 2))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("trust") / "run"
    return train_run(config(), folder, images=SPLITS, quiet=True)


def picture(path: Path, image: torch.Tensor) -> Path:
    Image.fromarray(image.numpy()).save(path)
    return path


def test_a_grey_square_is_not_sure_and_own_images_are(run, tmp_path):
    grey = torch.full((SIDE, SIDE), 128, dtype=torch.uint8)
    noise = torch.randint(256, (SIDE, SIDE), dtype=torch.uint8)
    strange = [picture(tmp_path / "grey.png", grey), picture(tmp_path / "noise.png", noise)]
    assert [answer.sure for answer in predict(run, strange)] == ["unlike", "unlike"]
    own = [picture(tmp_path / f"{n:02}.png", SPLITS.test.images[n, 0]) for n in range(40)]
    rows = list(predict_rows(load_run(run.folder), own, batch_size=16))
    assert sum(row["sure"] == "yes" for row in rows) > 15
    for row in rows:
        assert tuple(row) == ("image", *run.columns, "error")
        assert row["class"] in row["set"].split(";")
        assert 0 < row["probability"] < 1


def test_asking_for_fewer_errors_leaves_fewer_sure_answers(run, tmp_path):
    files = [picture(tmp_path / f"{n:03}.png", SPLITS.test.images[n, 0]) for n in range(100)]

    def sure(**wanted: float) -> int:
        return sum(answer.sure == "yes" for answer in predict(run, files, **wanted))

    assert sure(error_rate=1e-4) == 0 < sure(error_rate=0.05) <= sure(error_rate=0.2)
    assert sure(coverage=0.5, error_rate=0.2) < sure(error_rate=0.2)
    sizes = [
        sum(answer.set.count(";") for answer in predict(run, files, coverage=coverage))
        for coverage in (0.5, 0.99)
    ]
    assert sizes[0] < sizes[1]
    with pytest.raises(ValueError, match="coverage=1"):
        next(predict(run, files, coverage=1.5))


def test_evaluation_reports_calibration_coverage_and_errors(run):
    # Images are not in the configuration of this run.
    object.__setattr__(run, "load_images", lambda: SPLITS)
    found = evaluate_run(run, coverage=0.9)["trust"]
    json.dumps(found, allow_nan=False)
    assert found["held_out_images"] == 200
    assert found["calibration_error"] < found["calibration_error_before"] + 0.01
    assert found["calibration_error"] < 0.08
    assert 0.83 < found["threshold_coverage"] < 0.97
    assert found["threshold_coverage"] <= found["set_coverage"]
    assert found["sure"] + found["unsure"] + found["unlike"] == pytest.approx(1)
    assert found["unlike"] < 0.2
    assert found["error_if_sure"] <= found["error_rate"]
    assert found["error_if_sure"] <= found["error"]
    with Image.open(run.folder / "reliability.png") as drawn:
        drawn.verify()


def test_trust_is_the_same_after_a_kill_before_it_was_written(run, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("besselnet.train._run.save_trust", killed)
        with pytest.raises(KeyboardInterrupt):
            train_run(config(), tmp_path / "run", images=SPLITS, quiet=True)
    assert load_run(tmp_path / "run").trust is None
    train_run(config(), tmp_path / "run", images=SPLITS, resume=True, quiet=True)
    one, other = (place / "model" / TRUST_FILE for place in (run.folder, tmp_path / "run"))
    assert one.read_bytes() == other.read_bytes()


def test_runs_without_trust_predict_without_its_columns(run, tmp_path, capsys):
    plain = train_run(config(), tmp_path / "run", images=Splits(SPLITS.train, test=SPLITS.test))
    assert "no validation images" in capsys.readouterr().out
    assert plain.trust is None is load_trust(plain.folder / "model")
    file = picture(tmp_path / "one.png", SPLITS.test.images[0, 0])
    row = next(predict_rows(plain, [file]))
    assert tuple(row) == ("image", "class", "probability", "error")
    assert next(predict(plain, [file])).sure is None
    with pytest.raises(ValueError, match="must be unset for this run"):
        next(predict(plain, [file], error_rate=0.1))
    values = task_config("regress", epochs=1)
    other = train_run(values, tmp_path / "values", images=make_splits("regress"), quiet=True)
    assert other.trust is None


def test_trust_of_other_weights_is_refused(run, tmp_path):
    other = replace(config(), train=replace(config().train, seed=1))
    second = train_run(other, tmp_path / "run", images=SPLITS, quiet=True)
    foreign = (run.folder / "model" / TRUST_FILE).read_bytes()
    (second.folder / "model" / TRUST_FILE).write_bytes(foreign)
    with pytest.raises(ValueError, match="other weights"):
        load_run(second.folder)
