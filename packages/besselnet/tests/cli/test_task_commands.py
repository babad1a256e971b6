"""The commands for masks, values and several labels."""

import json

import pytest

from besselnet.cli import main
from besselnet.train import load_run, predict, predict_rows
from train.toy_tasks import make_splits

QUICK = ("train.epochs=2", "train.device=cpu", "train.batch_size=16")
MODELS = {"segment": "toy_pixels", "regress": "toy_pooled", "multilabel": "toy_pooled"}
SCORES = {"segment": "iou", "regress": "r2", "multilabel": "f1"}


def run_command(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    said = capsys.readouterr()
    return stop.value.code or 0, said.out, said.err


def training(folder, task, *more):
    settings = [word for one in QUICK for word in ("--set", one)]
    kind = ("--set", f"data.options.task={task}")
    return ("train", "toy-particles", "--out", folder, *kind, *settings, *more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for task, model in MODELS.items():
        with pytest.raises(SystemExit) as stop:
            main(list(map(str, training(folder / task, task, "--model", model))))
        assert not stop.value.code
    return folder


@pytest.mark.parametrize("task", MODELS)
def test_evaluate_reports_the_score_upright_and_rotated(runs, capsys, task):
    options = ("--rotated", "--angles", 3, "--untrained")
    code, out, _ = run_command(capsys, "evaluate", runs / task, *options, "--json")
    assert code == 0
    report = json.loads(out)
    trained, score = report["rotated"]["trained"], SCORES[task]
    assert report[score] == load_run(runs / task).results()["test"][score]
    score = {"iou": "dice"}.get(score, score)
    assert len(trained[score]) == len(trained["agreement_by_angle"]) == 3
    assert trained["agreement_by_angle"][0] == pytest.approx(1)
    code, out, _ = run_command(capsys, "evaluate", runs / task, *options)
    assert code == 0
    assert all(name in out for name in load_run(runs / task).classes)


@pytest.mark.parametrize("task", MODELS)
def test_inspect_knows_networks_of_every_task(runs, capsys, task):
    code, out, _ = run_command(capsys, "inspect", runs / task, "--json")
    assert code == 0
    assert json.loads(out)["worst_equivariance_error"] > 0


@pytest.mark.parametrize("task", MODELS)
def test_a_finished_run_resumes_with_its_own_settings(runs, capsys, task):
    code, _, _ = run_command(capsys, "train", "--out", runs / task, "--resume")
    assert code == 0


@pytest.mark.parametrize(
    ("task", "more", "words"),
    [
        (
            "segment",
            ("--model", "toy_pooled"),
            "toy_pooled returns one prediction per image; use --model",
        ),
        (
            "regress",
            ("--model", "toy_pixels"),
            "toy_pixels returns one prediction per pixel; use --mo",
        ),
        ("regress", ("--set", "data.task=segment"), "toy-particles has values"),
    ],
)
def test_a_wrong_pairing_is_one_line(tmp_path, capsys, task, more, words):
    code, _, err = run_command(capsys, *training(tmp_path / "run", task, *more))
    assert code == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", ["regress", "multilabel"])
def test_only_folders_of_values_and_labels_are_exported(runs, capsys, task):
    code, _, err = run_command(capsys, "export", runs / task, "--to", "plain")
    assert code == 2
    assert "--to folder" in err
    code, _, _ = run_command(capsys, "export", runs / task, "--to", "folder")
    assert code == 0
    about = json.loads((runs / task / "pretrained" / "config.json").read_text())["about"]
    assert about["task"] == task


def test_rates_are_found_for_masks(tmp_path, capsys):
    more = ("--model", "toy_pixels", "--find-rate")
    code, _, _ = run_command(capsys, *training(tmp_path / "run", "segment", *more))
    assert code == 0
    assert (tmp_path / "run" / "rates.json").exists()


def test_rows_have_a_column_for_each_value_or_label(runs, tmp_path):
    from PIL import Image

    for i in range(3):
        image = make_splits("regress").test.images[i, 0]
        Image.fromarray((255 * image).byte().numpy()).save(tmp_path / f"{i}.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    for task, names in (("regress", ("area", "rest")), ("multilabel", ("disc", "ground"))):
        rows = list(predict_rows(load_run(runs / task), [tmp_path], batch_size=2))
        assert len(rows) == 4
        assert sum(row["error"] is not None for row in rows) == 1
        for row in rows:
            assert (row["error"] is None) == all(row[name] is not None for name in names)
    values = [
        row["area"] + row["rest"]
        for row in predict_rows(load_run(runs / "regress"), [tmp_path / "0.png"])
    ]
    assert 50 < values[0] < 150  # in their own units: their sum is 100
    with pytest.raises(ValueError, match="its task is 'regress'"):
        next(predict(load_run(runs / "regress"), [tmp_path]))
    with pytest.raises(ValueError, match="its task is 'segment'"):
        next(predict_rows(load_run(runs / "segment"), [tmp_path]))
