"""Running a study: results, going on, failures, two runners."""

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from besselnet.models import create_model, save_network
from besselnet_lab.cli import main
from besselnet_lab.study import local
from besselnet_lab.study.cells import expand
from besselnet_lab.study.images import ROOT_VARIABLE
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.store import Store
from besselnet_lab.study.train_cell import fill_cell, train_cell
from study.forks import fork_worker
from study.toys import RECIPE, write_images, write_study

TESTS = Path(__file__).parents[1]


@pytest.fixture
def forked(monkeypatch):
    """Workers as forks of this process."""
    monkeypatch.setattr(local._Worker, "_open", fork_worker)


def run(folder, results, recipe=None, **options):
    """Run the tiny study in `folder`: (summary, what was shown)."""
    shown = io.StringIO()
    cells = expand(read_recipe(recipe or folder / "tiny.toml"))
    settings = {"study": "tiny", "threads": 1, "data_root": folder, "stream": shown, **options}
    return local.run_local(cells, Store(results), **settings), shown.getvalue()


@pytest.fixture
def call(capsys):
    """Call the command line in this process: (exit code, standard output, standard error)."""

    def call_main(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["study", *map(str, arguments)])
        return (end.value.code, *capsys.readouterr())

    return call_main


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with the tiny study, all of it done."""
    folder = tmp_path_factory.mktemp("study")
    write_study(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local._Worker, "_open", fork_worker)
        summary, shown = run(folder, folder / "results", jobs=2)
    assert (summary.done, summary.done_before, summary.failed) == (4, 0, [])
    assert shown.count("done    D upright low") == 4
    return folder


def test_each_cell_leaves_one_file_that_tells_everything(finished):
    store = Store(finished / "results")
    files = sorted(p.name for p in (finished / "results" / "d-upright-low").iterdir())
    assert files == [f"{name}.seed{s}.json" for name in ("narrow", "quick.none") for s in (0, 1)]
    for result in store.results():
        assert result["study"] == "tiny"
        assert result["config"]["model"] == {
            "name": "cnn",
            "options": {"width": 0.13},
            "weights": None,
        }
        assert result["config"]["train"]["seed"] == result["cell"]["seed"]
        assert result["curve"]["epoch"] == [1, 2]
        assert result["judged"] == {"part": "test", "images": 10}
        assert sum(map(sum, result["confusion"])) == 10
        assert result["train_images"] == 8
        assert result["notes"] == ["judged on at most 10 images, not on all"]
        assert result["model"]["options"] == {"width": 0.13, "padding_scheme": None}
        assert result["model"]["parameters"] > 0
        assert result["model"]["multiply_adds"] > 0
        # A plain network, on random images.
        assert result["model"]["trained_quarter_turn_error"] > 1e-3
        rotation = result["rotation"]
        assert rotation["images"] == 10
        assert rotation["black_corners_by_angle"][0] == 1
        assert 0 <= rotation["quarter_turns"] <= 1
        environment = result["environment"]
        assert {"versions", "source", "lab_source", "machine", "commit"} <= environment.keys()
        assert result["seconds"]["training"] > 0
    quick = store.results()[2]
    assert quick["config"]["train"]["learning_rate"] == 0.01
    text = "".join(p.read_text() for p in (finished / "results").glob("*/*.json"))
    assert str(finished) not in text
    assert not [p for p in (store.work / "runs").rglob("*") if p.is_file()]


def test_recommended_settings_lie_under_those_of_the_method(tmp_path, monkeypatch):
    recipe = RECIPE.replace('"quick"', '"quick"\nrecommended = true').replace("[0, 1]", "[3]")
    write_study(tmp_path, recipe)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    given = []

    def recommend(splits, model, over):
        given.append((len(splits.train), model, over["train"]))
        settings = {"data": {"interpolation": "bilinear"}, "train": {"epochs": 3, "momentum": 0.5}}
        return SimpleNamespace(settings=settings, reason="few images")

    monkeypatch.setattr("besselnet_lab.study.train_cell.recommend_settings", recommend)
    _, cell = expand(read_recipe(tmp_path / "tiny.toml"))
    store = Store(tmp_path / "results")
    store.prepare()
    result = fill_cell(store, cell, "tiny")
    assert given == [(8, "cnn", {"learning_rate": 0.01, "seed": 3})]
    assert result["curve"]["epoch"] == [1, 2, 3]
    found = result["recommendation"]
    assert found["reason"] == "few images"
    assert found["images"]["interpolation"] == "bilinear"
    assert (found["train"]["momentum"], found["train"]["learning_rate"]) == (0.5, 0.01)
    store.check_settings(cell)
    plain = read_recipe(write_study(tmp_path / "plain", recipe.replace("recommended = true", "")))
    with pytest.raises(ValueError, match="recommended: True -> False"):
        store.check_settings(expand(plain)[1])


def test_a_method_starts_from_weights_that_set_its_options(tmp_path, monkeypatch):
    shape = {"in_channels": 1, "num_classes": 3, "image_size": 28}
    trained = create_model("besselnet_small", **shape, width=0.2, field="none")
    save_network(trained, tmp_path / "trained")
    quick = f'"quick"\nrecommended = true\nweights = "{tmp_path / "trained"}"'
    recipe = RECIPE.replace('"quick"', quick).replace("[0, 1]", "[3]")
    recipe = recipe.replace('"cnn"\noptions = { width = 0.13 }\ntrain', '"besselnet_small"\ntrain')
    recipe += "train = { epochs = 1 }\n"
    write_study(tmp_path, recipe)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    _, cell = expand(read_recipe(tmp_path / "tiny.toml"))
    result = train_cell(cell, tmp_path / "run", "tiny")
    assert result["config"]["model"]["weights"] == str(tmp_path / "trained")
    options = result["recommendation"]["model"]["options"]
    assert (options["width"], options["field"]) == (0.2, "none")
    without = recipe.replace("recommended = true", "")
    with pytest.raises(ValueError, match=r"methods\[1\].weights: must be unset without"):
        read_recipe(write_study(tmp_path / "without", without))


def test_done_cells_are_left_alone(finished):
    def contents():
        return {p: p.read_bytes() for p in (finished / "results").glob("*/*.json")}

    before = contents()
    summary, _ = run(finished, finished / "results")
    assert (summary.done, summary.done_before) == (0, 4)
    assert contents() == before


def test_a_result_of_other_settings_is_not_taken_for_this_one(finished, call):
    code, _, error = call(
        *("run", finished / "tiny.toml", "--results", finished / "results"),
        *("--set", "train.epochs=3"),
    )
    assert code == 2
    assert "has other settings (train.epochs: 2 -> 3)" in error
    assert error.count("\n") == 1


def test_a_default_that_has_changed_since_is_noticed(finished, tmp_path):
    cell = expand(read_recipe(finished / "tiny.toml"))[0]
    result = Store(finished / "results").result(cell.key)
    store = Store(tmp_path)
    store.prepare()
    store.write_result(cell.key, result)
    store.check_settings(cell)
    result["model"]["options"]["padding_scheme"] = "malaria"
    store.write_result(cell.key, result)
    with pytest.raises(ValueError, match=r"model\.options\.padding_scheme: 'malaria' -> None"):
        store.check_settings(cell)


def test_a_failure_is_recorded_tried_again_and_forgotten(tmp_path, forked):
    write_study(tmp_path, RECIPE.replace("tiny.npz", "later.npz").replace("[0, 1]", "[0]"))
    summary, shown = run(tmp_path, tmp_path / "results", retries=1)
    assert [cell.key.method for cell in summary.failed] == ["narrow", "quick"]
    assert shown.count("failed ") == 4
    store = Store(tmp_path / "results")
    failure = store.failure(summary.failed[0].key)
    assert failure["attempts"] == 2
    assert "later.npz" in failure["error"]
    assert any("load_images" in line for line in failure["traceback"])
    assert not store.results()
    write_images(tmp_path / "later.npz")
    summary, _ = run(tmp_path, tmp_path / "results")
    assert (summary.done, summary.failed) == (2, [])
    assert not list(tmp_path.glob("results/*/*.failed.json"))


def test_without_the_folder_of_data_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    cells, store = expand(read_recipe(write_study(tmp_path))), Store(tmp_path / "results")
    with pytest.raises(ValueError, match="nowhere: no such data folder"):
        local.run_local(cells, store, study="tiny", data_root=tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"tiny\.npz must be in the data root"):
        local.run_local(cells, store, study="tiny")
    assert not store.folder.exists()


def test_a_crash_is_a_failure_like_any_other(tmp_path, monkeypatch):
    class Dying:
        """A process that ends at once."""

        def __init__(self):
            self.stdin, self.stdout = io.StringIO(), io.StringIO()

        def wait(self, timeout=None):
            return -signal.SIGKILL

    monkeypatch.setattr(local._Worker, "_open", lambda place: Dying())
    write_study(tmp_path, RECIPE.replace("[0, 1]", "[0]"))
    summary, shown = run(tmp_path, tmp_path / "results", retries=0)
    assert len(summary.failed) == 2
    assert "the process ended with signal SIGKILL" in shown


@pytest.mark.parametrize(
    ("changes", "continued"),
    [
        ({}, True),
        ({"cell.json": {"settings": {"train": {"epochs": 99}}}}, False),
        ({"cell.json": {"source": "other code"}}, False),
        ({"cell.json": {"lab_source": "other code"}}, False),
        ({"environment.json": {"commit": "of a page of the documentation"}}, True),
    ],
)
def test_only_a_run_of_the_same_settings_and_code_is_continued(
    tmp_path, monkeypatch, changes, continued
):
    path = write_study(tmp_path)
    monkeypatch.setenv("BESSELNET_DATA_ROOT", str(tmp_path))
    store = Store(tmp_path / "results")
    store.prepare()
    cell = expand(read_recipe(path))[0]
    folder = store.run_folder(cell.key)
    train_cell(cell, folder, "tiny")
    (folder / "log.txt").write_text("of the first session\n")
    for name, other in changes.items():
        values = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**values, **other}))
    monkeypatch.setattr(store.__class__, "clean", lambda *_: None)
    result = fill_cell(store, cell, "tiny")
    assert len(result["curve"]["epoch"]) == 2
    assert ("of the first session" in (folder / "log.txt").read_text()) == continued


def test_a_cell_that_another_runner_holds_is_left_to_it(tmp_path, forked):
    write_study(tmp_path, RECIPE.replace("[0, 1]", "[0]"))
    cells = expand(read_recipe(tmp_path / "tiny.toml"))
    store = Store(tmp_path / "results")
    store.prepare()
    with store.lock(cells[0].key):
        assert store.is_running(cells[0].key)
        summary, _ = run(tmp_path, store.folder)
    assert (summary.done, summary.elsewhere) == (1, 1)
    assert not store.is_running(cells[0].key)
    assert not store.result_path(cells[0].key).exists()


def test_status_counts_cells_and_estimates_the_rest(finished, call):
    results = ("--results", finished / "results")
    code, out, _ = call("status", finished / "tiny.toml", *results, "--json")
    assert code == 0
    assert [(c["column"], c["done"], c["missing"]) for c in json.loads(out)] == [
        ("D upright low", 4, 0),
        ("all", 4, 0),
    ]
    more = ("--set", "seeds=[0, 1, 2]")
    (column, _) = json.loads(call("status", finished / "tiny.toml", *results, *more, "--json")[1])
    assert (column["missing"], column["unknown"]) == (2, 0)
    assert column["seconds_left"] > 0
    store = Store(finished / "results")
    missing = expand(read_recipe(finished / "tiny.toml", ["seeds=[2]"]))[0]
    with store.lock(missing.key):
        (column, _) = json.loads(
            call("status", finished / "tiny.toml", *results, *more, "--json")[1]
        )
    assert (column["running"], column["missing"]) == (1, 1)
    assert "D upright low" in call("status", finished / "tiny.toml", *results)[1]


def test_dry_run_lists_cells_and_measures_each_kind_once(tmp_path, call, monkeypatch):
    path = write_study(tmp_path)
    monkeypatch.setenv("BESSELNET_DATA", str(tmp_path / "cache"))
    arguments = ("run", path, "--dry-run", "--threads", 1, "--results", tmp_path / "results")
    code, out, error = call(*arguments)
    assert code == 0
    assert out.count("missing  D upright low") == 4
    assert "4 cells, 0 done; the rest takes about" in out
    # Both methods are the same network on the same images.
    assert error.count("measuring") == 1
    assert "measuring" not in call(*arguments)[2]
    assert not (tmp_path / "results").exists()
    (kept,) = (tmp_path / "cache").glob("*.json")
    (kind,) = json.loads(kept.read_text())
    for damaged in ("[1]", "[" * 100_000, *(json.dumps({kind: p}) for p in ("x", None, [], -1.0))):
        kept.write_text(damaged)
        code, _, error = call(*arguments)
        assert (code, error.count("measuring")) == (0, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "nowhere.toml"),
        ("run", "{recipe}", "--only", "metod=x"),
        ("run", "{recipe}", "--only", "method=zzz*"),
        ("run", "{recipe}", "--set", "train.epochs=many"),
        ("status", "{recipe}", "--only", "seed=7"),
        ("report", "nowhere"),
    ],
)
def test_a_mistake_ends_in_one_line(tmp_path, call, arguments):
    recipe = write_study(tmp_path)
    code, out, error = call(*(a.format(recipe=recipe) for a in arguments))
    assert (code, out) == (2, "")
    assert error.startswith("besselnet-lab: ")
    assert error.count("\n") == 1


def test_stopping_saves_and_going_on_continues(tmp_path):
    """The command as users call it: Ctrl-C, then again; workers go with their runner."""
    write_study(tmp_path, RECIPE.replace("epochs = 2", "epochs = 2000").replace("[0, 1]", "[0]"))
    command = [sys.executable, "-m", "besselnet_lab", "study", "run", "tiny.toml", "--results", "r"]
    command += ["--data-root", ".", "--only", "method=narrow"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as runner:
        run_folder = tmp_path / "r" / ".work" / "runs" / "d-upright-low" / "narrow.seed0"
        deadline = time.monotonic() + 240
        while not (run_folder / "metrics.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        runner.send_signal(signal.SIGINT)
        _, error = runner.communicate(timeout=120)
    assert runner.returncode == 130
    assert "stopped; run again to continue" in error
    # The lock is free: the worker has ended. Its last state is there to go on from.
    store = Store(tmp_path / "r")
    cell = expand(read_recipe(tmp_path / "tiny.toml"))[0]
    assert not store.is_running(cell.key)
    assert (run_folder / "checkpoint.safetensors").exists()
    assert not store.results()
