"""Cells that test the robustness of the network they have trained."""

import json
from dataclasses import replace

import pytest

from besselnet_lab.study import robustness
from besselnet_lab.study.cells import expand
from besselnet_lab.study.estimate import Estimate
from besselnet_lab.study.images import ROOT_VARIABLE
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.store import Store, json_by_line
from besselnet_lab.study.train_cell import fill_cell
from besselnet_lab.study.worker import as_job, cell_of
from places import LAB
from study.robust_toys import ROBUST_RECIPE, robust_result
from study.toys import RECIPE, write_study


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The store and the first cells of a tiny study."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    cells = expand(read_recipe(write_study(tmp_path, ROBUST_RECIPE)))
    store = Store(tmp_path / "results")
    store.prepare()
    return store, cells


def test_networks_are_tested_alike_and_no_training_is_lost(study, monkeypatch):
    store, (narrow, quick, *_) = study

    def killed(*_args, **_kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(robustness, "evaluate_robust", killed)
        with pytest.raises(KeyboardInterrupt):
            fill_cell(store, narrow, "tiny")
    metrics = store.run_folder(narrow.key) / "metrics.csv"
    trained = [float(row.split(",")[-1]) for row in metrics.read_text().splitlines()[1:]]
    header = metrics.read_text().splitlines()[0].split(",")
    with monkeypatch.context() as patch:
        patch.setattr(robustness, "noise_changes", killed)
        with pytest.raises(KeyboardInterrupt):
            fill_cell(store, narrow, "tiny")
    parts = json.loads((store.run_folder(narrow.key) / "robust.json").read_text())["parts"]
    results = [fill_cell(store, cell, "tiny") for cell in (narrow, quick)]
    # With the times of the first session: nothing was trained again.
    assert results[0]["curve"][header[-1]] == pytest.approx(trained, rel=1e-5)
    assert len(parts["clean"]) / 6 == results[0]["robust"]["accuracy"]
    for result in results:
        robust = result["robust"]
        assert (robust["images"], robust["attacks"]["images"], robust["spatial"]["images"]) == (
            6,
            3,
            2,
        )
        assert (robust["attacks"]["epsilon"], robust["settings"]["border"]) == (0.02, "reflect")
        assert robust["noise"]["layers"][-1] == "logits"
    assert store.result(narrow.key) == json.loads(json.dumps(results[0]))
    assert not store.run_folder(narrow.key).exists()


def test_only_cells_that_are_asked_test_robustness(tmp_path):
    (cell, *_) = expand(read_recipe(write_study(tmp_path)))
    assert cell.robust is None
    assert "robust" not in cell.settings()


def test_a_worker_gets_the_whole_cell(study):
    store, cells = study
    job = json.loads(json.dumps(as_job(cells[0], "tiny", store.folder)))
    assert cell_of(job) == cells[0]


def test_a_result_of_another_test_is_not_taken_for_this_one(study):
    store, (cell, *_) = study
    result = {**robust_result(0.5), "config": cell.settings()}
    store.write_result(cell.key, result)
    store.check_settings(cell)
    plan = cell.robust
    other = replace(cell, robust=replace(plan, attacks=replace(plan.attacks, steps=3)))
    with pytest.raises(ValueError, match=r"robust\.attacks\.steps: 2 -> 3"):
        store.check_settings(other)
    without = {k: v for k, v in result.items() if k != "robust"}
    without["config"] = replace(cell, robust=None).settings()
    store.write_result(cell.key, without)
    with pytest.raises(ValueError, match="robust: None -> "):
        store.check_settings(cell)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("border = 'black'", r"data\.D\.robust\.border='black'"),
        ("images = 0", r"data\.D\.robust\.images=0"),
        ("epsilon = 1", r"data\.D\.robust\.epsilon"),
        ("attacks = { strong_epsilon = 0.3 }", r"data\.D\.robust\.attacks\.strong_epsilon=0\.3"),
    ],
)
def test_a_mistake_in_a_recipe_is_named(tmp_path, wrong, message):
    recipe = RECIPE.replace("[[methods]]", f"[data.D.robust]\n{wrong}\n[[methods]]", 1)
    with pytest.raises(ValueError, match=message):
        read_recipe(write_study(tmp_path, recipe))


def test_estimates_count_attacks_and_adversarial_training(study):
    _, (cell, *_) = study
    plain = replace(cell, robust=None)
    train = replace(cell.config.train, adversarial=0.1)
    adversarial = replace(plain, config=replace(cell.config, train=train))
    estimate = Estimate()
    result = {"seconds": {"training": 12.0}, "curve": {"step": [4]}}
    estimate.learn([plain], [result])
    short, long = (estimate.seconds(c) for c in (plain, adversarial))
    # Two epochs of two steps of three seconds, and what is judged.
    assert long - short == pytest.approx(12 * 5)
    forwards, gradients = cell.robust.passes(cell.judged_images)
    longer = estimate.seconds(cell) - short
    assert longer == pytest.approx(3 * (gradients + forwards / 3) / 4)
    again = Estimate()
    again.learn([adversarial], [{**result, "seconds": {"training": 72.0}}])
    assert again.paces == pytest.approx(estimate.paces)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("corruptions",), []),
        (("corruptions", "blur"), 3),
        (("corruptions", "blur", "accuracy"), [0.5] * 4),
        (("corruptions", "blur", "accuracy"), [0.5] * 4 + [1.5]),
        (("attacks", "fgsm"), [0.1]),
        (("attacks", "epsilon"), None),
        (("attacks", "strong", "pgd"), "0.5"),
        (("spatial", "worst_accuracy"), -0.1),
        (("gradient_masking", "reasons"), [1]),
        (("accuracy",), True),
    ],
)
def test_a_damaged_result_is_refused_in_one_line(study, place, value):
    store, (cell, *_) = study
    result = robust_result(0.5)
    table = result["robust"]
    for name in place[:-1]:
        table = table[name]
    table[place[-1]] = value
    path = store.result_path(cell.key)
    path.parent.mkdir(parents=True)
    path.write_text(json_by_line(result))
    with pytest.raises(ValueError, match=rf"robust\.{'.'.join(place)}") as refused:
        store.result(cell.key)
    assert len(str(refused.value).splitlines()) == 1


def test_the_networks_of_the_study_are_tested_alike():
    cells = expand(read_recipe(LAB / "recipes" / "robustness.toml"))
    by_column = {}
    for cell in cells:
        by_column.setdefault(cell.key.column, set()).add(cell.robust)
    assert all(len(plans) == 1 for plans in by_column.values())
    for (plan,) in by_column.values():
        assert plan.attacks.strong_epsilon is not None
        assert (plan.attacks.steps, plan.attacks.restarts) == (50, 5)
    # What mean corruption errors are relative to is in every column.
    assert {c.key.column for c in cells if c.key.row == "plain CNN"} == by_column.keys()
