"""The commands as a user meets them: output, exit codes, and one line for every mistake."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import besselnet
from besselnet.cli import main
from train.toy_run import make_images

TESTS = Path(__file__).parents[1]
QUICK = [
    *("--model", "toy", "--set", "train.epochs=2", "--set", "train.batch_size=8"),
    *("--set", "train.device=cpu"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def call(capsys):
    """Call the command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        return (end.value.code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def trained(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.raises(SystemExit) as end:
        main(["train", str(images), "--out", str(folder), *QUICK])
    assert end.value.code == 0
    return folder


def test_help_names_every_command_and_does_not_import_torch():
    program = textwrap.dedent(
        """
        import sys, types
        # The package itself, without what its front door imports.
        package = types.ModuleType("besselnet")
        package.__path__ = [sys.argv.pop(1)]
        sys.modules["besselnet"] = package
        _run = program().run
        code = _run(sys.argv[1:])
        print("torch" in sys.modules, file=sys.stderr)
        raise SystemExit(code)
        """
    )
    package = Path(besselnet.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", program, package, "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "False"
    assert all(
        name in done.stdout and known.help in done.stdout
        for name, known in program().commands.items()
    )


@pytest.mark.parametrize("command", ["train", "evaluate", "predict", "inspect"])
def test_each_help_has_examples(call, command):
    code, output, _ = call(command, "--help")
    assert code == 0
    assert "Examples:" in output
    assert f"besselnet {command} " in output.split("Examples:")[1]
    assert "install-completion" not in output


def test_no_arguments_show_the_help_and_version_the_version(call):
    assert "Usage: besselnet" in call()[1]
    assert call("--version")[1].startswith("besselnet 0.")


def test_settings_are_listed(call):
    _, output, _ = call("train", "--settings")
    assert "train.learning_rate" in output
    assert "data.augment" in output


def test_training_prints_plain_lines_and_what_comes_next(call, images, tmp_path):
    code, output, _ = call("train", images, "--out", tmp_path / "run", *QUICK)
    assert code == 0
    lines = output.splitlines()
    assert [line.split("  ")[0] for line in lines[:2]] == ["epoch 1/2", "epoch 2/2"]
    assert lines[-1].endswith(f"next: besselnet evaluate {tmp_path / 'run'} --turned")
    assert all(line.isprintable() for line in lines)


def test_a_recipe_file_and_the_command_line_add_up(call, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text('[train]\nepochs = 9\nbatch_size = 8\n[model]\nname = "toy"\n')
    code, *_ = call("train", images, "--config", "recipe.toml", "--set", "train.epochs=1")
    assert code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith(f"{images.name}-toy-")
    config = json.loads((folder / "config.json").read_text())
    assert (config["train"]["epochs"], config["train"]["batch_size"]) == (1, 8)


def test_settings_that_suit_a_model_are_taken_unless_given(call, images, tmp_path):
    suited = besselnet.models.model_info("besselnet_small").training
    assert suited["batch_size"] != 8
    options = [
        "--set",
        "train.epochs=1",
        "--set",
        "train.batch_size=8",
        "--set",
        "model.options.width=0.2",
    ]
    code, _, _ = call("train", images, "--out", tmp_path / "run", *options)
    assert code == 0
    used = json.loads((tmp_path / "run" / "config.json").read_text())["train"]
    assert used["batch_size"] == 8
    assert {key: used[key] for key in suited if key != "batch_size"} == {
        key: value for key, value in suited.items() if key != "batch_size"
    }


def test_evaluation_reports_before_and_after_training(call, trained):
    code, output, _ = call("evaluate", trained, "--turned", "--angles", "4", "--json")
    assert code == 0
    report = json.loads(output)
    assert report["images"] == 12
    for when in ("before", "after"):
        turned = report["turned"][when]
        assert len(turned["accuracy"]) == len(turned["angles"]) == 4
        assert {"accuracy_spread", "agreement", "logit_drift"} <= turned.keys()
    assert report["turned"]["after"]["upright_accuracy"] == pytest.approx(report["accuracy"])
    assert (trained / "turned.png").exists()
    code, output, _ = call("evaluate", trained, "--turned", "--angles", "4", "--part", "val")
    assert code == 0
    assert output.startswith("val: 12 images")
    assert "same answer when turned" in output


def test_prediction_writes_one_row_per_image(call, trained, images, tmp_path):
    folder = tmp_path / "new"
    shutil.copytree(images / "test", folder)
    (folder / "bars" / "broken.png").write_bytes(b"nonsense")
    code, output, error = call("predict", trained, folder, "--csv", tmp_path / "answers.csv")
    assert code == 0
    assert output == ""
    assert "13 images, 1 of them could not be read, written to" in error
    with (tmp_path / "answers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == [str(path) for path in sorted(folder.rglob("*.png"))]
    assert [bool(row["error"]) for row in rows].count(True) == 1
    assert {row["class"] for row in rows} <= {"bars", "blobs", ""}

    code, output, _ = call("predict", trained, folder, "--json")
    answers = [json.loads(line) for line in output.splitlines()]
    assert [answer["image"] for answer in answers] == [row["image"] for row in rows]
    code, output, _ = call("predict", trained, folder / "bars" / "0.png")
    assert output.splitlines()[0] == "image,class,probability,error"


def test_inspection_prints_or_gives_json(call, trained):
    code, output, _ = call("inspect", trained, "--json")
    assert code == 0
    assert json.loads(output)["model"] == "toy"
    code, output, _ = call("inspect", trained)
    assert "multiply-adds" in output
    assert "equivariance error" in output


def mistakes(images: Path, trained: Path, folder: Path) -> dict[str, tuple[list, str]]:
    """Command lines that are wrong, and what the answer must contain."""
    other = folder / "other"
    shutil.copytree(trained, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "format": 7, "novel": 1}))
    (folder / "damaged").mkdir()
    shutil.copytree(trained, folder / "damaged", dirs_exist_ok=True)
    (folder / "damaged" / "model" / "model.safetensors").write_bytes(b"\x00" * 50)
    (folder / "bad.toml").write_text("[train]\nepoch = 3\n")
    (folder / "empty").mkdir()
    out = ["--out", folder / "new"]
    return {
        "wrong command": (["trian"], "trian"),
        "wrong option": (["train", images, "--epochs", "3"], "--epochs"),
        "wrong type": (["train", images, "--devices", "two"], "--devices"),
        "no data": (["train", *out], "what to train on?"),
        "missing data": (["train", folder / "nowhere", *out], "nowhere"),
        "missing config": (["train", images, "--config", folder / "no.toml"], "no.toml"),
        "wrong key in file": (
            ["train", images, "--config", folder / "bad.toml"],
            "unknown setting 'train.epoch': did you mean 'train.epochs'?",
        ),
        "wrong key": (["train", images, "--set", "train.epoch=3"], "did you mean 'train.epochs'?"),
        "wrong value": (["train", images, "--set", "train.epochs=no"], "must be a whole number"),
        "wrong model": (["train", images, "--model", "toyy", *out], "toyy"),
        "wrong model option": (
            ["train", images, "--model", "toy", "--set", "model.options.depth=3", *out],
            "depth",
        ),
        "existing run": (["train", images, "--out", trained, *QUICK], "already holds a run"),
        "changed config": (
            ["train", "--out", trained, "--resume", "--set", "train.epochs=5"],
            "train.epochs: 2 -> 5",
        ),
        "nothing to resume": (["train", "--out", folder / "no", "--resume"], "not a run folder"),
        "resume what": (["train", images, "--resume"], "which run to resume?"),
        "loss not finite": (
            ["train", images, *out, *QUICK, "--set", "train.learning_rate=1e30"],
            "lower train.learning_rate",
        ),
        "other version": (["evaluate", other], "run format 7 is not the format 1"),
        "not a run": (["evaluate", images], "not a run folder"),
        "wrong part": (["evaluate", trained, "--part", "all"], "train, val, test, got 'all'"),
        "damaged weights": (["predict", folder / "damaged", images], "model.safetensors"),
        "missing image": (["predict", trained, folder / "no.png"], "no.png: no such file"),
        "no images": (["predict", trained, folder / "empty"], "no images in"),
        "cannot write": (
            ["predict", trained, images, "--csv", folder / "no" / "a.csv"],
            "No such file or directory",
        ),
        "wrong device": (["inspect", trained, "--device", "cpu"], "--device"),
    }


def test_every_mistake_is_one_clear_line_and_exit_code_2(call, images, trained, tmp_path):
    for name, (arguments, expected) in mistakes(images, trained, tmp_path).items():
        code, _, error = call(*arguments)
        assert code == 2, f"{name}: {error}"
        lines = error.strip().splitlines()
        assert len(lines) == 1, f"{name}: {error}"
        assert lines[0].startswith("besselnet: "), name
        assert expected in lines[0], f"{name}: {error}"


def test_traceback_is_shown_when_asked_for(trained):
    with pytest.raises(ValueError, match="must be one of"):
        main(["--traceback", "evaluate", str(trained), "--part", "all"])


# Sends itself Ctrl-C in the second epoch, in the middle of a long training.
INTERRUPTED = textwrap.dedent(
    f"""
    import os, signal, sys
    sys.path.insert(0, {str(TESTS)!r})
    import train.toy_run
    from besselnet.cli import main
    from besselnet.data import Batches

    real = Batches.set_epoch
    def set_epoch(self, epoch):
        real(self, epoch)
        if epoch == 1 and self.shuffle:
            os.kill(os.getpid(), signal.{{signal}})
    Batches.set_epoch = set_epoch
    main()
    """
)


@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_ctrl_c_saves_and_says_how_to_go_on(call, images, tmp_path, name, trained):
    program = INTERRUPTED.format(signal=name)
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", program, "train", images, "--out", out, *QUICK],
        capture_output=True,
        text=True,
        # Sums over as many threads as in this process, which goes on with the run: the same rounding.
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert done.returncode == 128 + getattr(signal, name)
    assert done.stderr.strip() == (
        f"besselnet: stopped at epoch 2, step 4; the state is saved in {out}; "
        f"go on with: besselnet train --out {out} --resume"
    )
    code, output, _ = call("train", "--out", out, "--resume")
    assert code == 0
    assert output.startswith("resuming at epoch 2, step 4")
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (out, trained)]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_two_processes_from_the_command_line(images, tmp_path):
    program = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r}); import train.toy_run; "
        "from besselnet.cli import main; main()"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    for devices in (1, 2):
        done = subprocess.run(
            [
                *(sys.executable, script, "train", images, "--out", tmp_path / str(devices)),
                *(*QUICK, "--devices", str(devices), "--set", "data.augment=['rotate']"),
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("saved in") == 1
    results = [json.loads((tmp_path / d / "results.json").read_text()) for d in "12"]
    assert results[0]["test"]["images"] == results[1]["test"]["images"] == 12
    # Sums of float32 gradients in another order, over six steps.
    assert results[0]["test"]["loss"] == pytest.approx(results[1]["test"]["loss"], abs=1e-4)
