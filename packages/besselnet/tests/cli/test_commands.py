"""The commands as a user meets them: output, exit codes, and one line for every mistake."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image

import besselnet
from besselnet.cli import Command, Program, main, program
from besselnet.data import list_data
from besselnet.models import list_models, model_info
from besselnet.robust import load_trust
from besselnet.train import TrainConfig, choose_device, load_run
from hostile import make_special, png
from train.toy_run import make_images

TESTS = Path(__file__).parents[1]
QUICK = [
    *("--model", "toy", "--set", "train.epochs=2", "--set", "train.batch_size=8"),
    *("--set", "train.device=cpu"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def trained(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.raises(SystemExit) as end:
        main(["train", str(images), "--out", str(folder), *QUICK])
    assert end.value.code == 0
    return folder


def test_help_names_every_command_and_does_not_import_torch():
    code = textwrap.dedent(
        """
        import sys
        from besselnet.cli import program
        code = program().run(["--help"])
        print("torch" in sys.modules, file=sys.stderr)
        raise SystemExit(code)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "False"
    assert all(
        name in done.stdout and known.help in done.stdout
        for name, known in program().commands.items()
    )


COMMANDS = [
    *("demo", "new", "train", "evaluate", "predict", "inspect", "export", "play", "models", "info"),
    *("data list", "data fetch", "data show"),
]


def test_all_commands_are_tried():
    assert {command.split()[0] for command in COMMANDS} == program().commands.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_has_examples_and_is_readable_in_80_columns(call, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    code, output, _ = call(*command.split(), "--help")
    assert code == 0
    head, examples = output.split("Examples:\n")
    assert f"\n      besselnet {command}" in examples
    assert "install-completion" not in output
    # A flag takes no value, and markup swallows nothing.
    assert "bool" not in output
    assert (command == "demo") == ("pip install 'besselnet[demo]'" in output)
    assert max(map(len, head.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_the_names_in_the_examples_exist(call, command):
    output = call(*command.split(), "--help")[1].split("Examples:\n")[1].split("\n\n")
    for line in (line.strip() for line in output if line.strip().startswith("besselnet ")):
        words = line.removeprefix(f"besselnet {command}").split()
        if "--model" in words:
            assert words[words.index("--model") + 1] in list_models(), line
        named = words[: next((i for i, w in enumerate(words) if w.startswith("-")), len(words))]
        if command == "models":
            assert set(named) <= set(list_models()), line
        elif command == "train" or command.startswith("data"):
            assert {name for name in named if "/" not in name} <= set(list_data()), line


def test_no_arguments_show_the_help_and_version_the_version(call):
    assert "Usage: besselnet" in call()[1]
    assert call("--version")[1].startswith("besselnet 0.")


def test_settings_are_listed_with_the_values_that_the_model_gets(call):
    def listed(*arguments):
        output = call("train", "--settings", *arguments)[1]
        return dict(line.split()[:2] for line in output.splitlines())

    shown = listed()
    assert shown["model.name"] == json.dumps(list_models()[0])
    assert "data.augment" in shown
    suited = model_info(list_models()[0]).training
    assert {key: json.loads(shown[f"train.{key}"]) for key in suited} == suited
    rate = TrainConfig().learning_rate
    assert suited["learning_rate"] != rate
    assert listed("--model", "cnn")["train.learning_rate"] == str(rate)
    assert listed("--set", "train.epochs=3")["train.epochs"] == "3"


def test_training_prints_plain_lines_and_what_comes_next(call, images, tmp_path):
    code, output, _ = call("train", images, "--out", tmp_path / "run", *QUICK)
    assert code == 0
    reason, time_needed, *lines = output.splitlines()
    assert reason.startswith("24 images, 2 classes, 10 x 10: ")
    assert time_needed.startswith("training 2 epochs, 6 steps: about ")
    assert [line.split("  ")[0] for line in lines[:2]] == ["epoch 1/2", "epoch 2/2"]
    assert lines[-1].endswith(f"next: besselnet evaluate {tmp_path / 'run'} --rotated")
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


def test_evaluation_rotates_and_announces_how_long_it_takes(call, trained):
    quick = ("--rotated", "--angles", "4")
    code, output, error = call("evaluate", trained, *quick, "--json")
    assert code == 0
    report = json.loads(output)
    assert report["images"] == report["rotated"]["images"] == 12
    # The untrained network only where it is asked for: it takes as long again.
    assert report["rotated"].keys() == {"images", "border", "trained"}
    rotated = report["rotated"]["trained"]
    assert report["rotated"]["border"] == rotated["border"] == "disc"
    assert len(rotated["accuracy"]) == len(rotated["angles"]) == 4
    assert {"accuracy_spread", "agreement", "logit_drift", "rotated_accuracy"} <= rotated.keys()
    assert (trained / "rotated.png").exists()
    assert error.splitlines() == ["rotating images (all) to 4 angles: about 0s"]

    code, output, _ = call("evaluate", trained, *quick, "--part", "val", "--untrained")
    assert code == 0
    assert output.startswith("val: 12 images")
    assert "same answer when rotated" in output
    head = next(line for line in output.splitlines() if line.startswith("12 images, rotated"))
    assert head.split()[-2:] == ["untrained", "trained"]
    # The option had another name in 0.1.0.
    assert "same answer when rotated" in call("evaluate", trained, "--turned", "--angles", "4")[1]


@pytest.mark.parametrize("border", ["disc", "reflect", "black"])
def test_the_table_and_the_report_say_which_border_was_used(call, trained, border):
    command = ("evaluate", trained, "--rotated", "--angles", "2", "--border", border)
    assert f"\n12 images, rotated ({border})" in call(*command)[1]
    report = json.loads(call(*command, "--json")[1])
    assert report["rotated"]["border"] == border
    if border != "disc":
        # The upright images are as they are.
        upright = report["rotated"]["trained"]["upright_accuracy"]
        assert upright == pytest.approx(report["accuracy"])


def test_evaluation_rotates_a_sample_of_many_images_and_says_so(call, trained):
    sample = ("evaluate", trained, "--rotated", "--angles", "2", "--most-images", "5", "--json")
    code, output, error = call(*sample)
    assert code == 0
    report = json.loads(output)
    assert (report["images"], report["rotated"]["images"]) == (12, 5)
    assert error.startswith("rotating images (5 of 12, at random) to 2 angles: about ")
    assert json.loads(call(*sample)[1]) == report
    code, output, _ = call(*sample[:-2], "0", "--json")
    assert json.loads(output)["rotated"]["images"] == 12
    code, output, _ = call(*sample[:-2], "1")
    assert "\n1 image, rotated" in output


def test_robustness_is_measured_once_kept_and_drawn(call, trained):
    command = ("evaluate", trained, "--robust", "--most-images", "4")
    code, output, error = call(*command)
    assert code == 0
    assert error.startswith("corrupting 4 images, attacking 4: at most about ")
    lines = output.splitlines()
    assert any(line.startswith("gaussian noise ") for line in lines)
    assert any(line.startswith("PGD, 50 steps, 5 starts ") for line in lines)
    assert lines[-1].endswith("robust.png")
    assert (trained / "robust.png").exists()
    kept = (trained / "robust.json").read_text()
    code, output, error = call(*command, "--json")
    assert (code, error) == (0, "")
    found = json.loads(output)["robust"]
    assert found["images"] == found["attacks"]["images"] == 4
    assert (trained / "robust.json").read_text() == kept
    (trained / "robust.json").write_text("nothing")
    code, _, error = call(*command)
    assert code == 2
    assert len(error.splitlines()) == 1


def test_devices_are_chosen_as_in_training(trained, monkeypatch):
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="device='cuda' is not available: "):
        choose_device("auto")


def test_prediction_writes_one_row_per_image(call, trained, images, tmp_path):
    folder = tmp_path / "new"
    shutil.copytree(images / "test", folder)
    (folder / "bars" / "broken.png").write_bytes(b"nonsense")
    code, output, error = call("predict", trained, folder, "--csv", tmp_path / "answers.csv")
    assert code == 0
    assert output == ""
    assert "13 images, 1 with an error, written to" in error
    with (tmp_path / "answers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == [str(path) for path in sorted(folder.rglob("*.png"))]
    assert [bool(row["error"]) for row in rows].count(True) == 1
    assert {row["class"] for row in rows} <= {"bars", "blobs", ""}

    code, output, _ = call("predict", trained, folder, "--json")
    answers = [json.loads(line) for line in output.splitlines()]
    assert [answer["image"] for answer in answers] == [row["image"] for row in rows]
    code, output, error = call("predict", trained, folder / "bars" / "0.png")
    assert error == "1 image\n"
    assert output.splitlines()[0] == "image,class,probability,sure,set,error"


def test_trust_is_told_in_training_evaluation_and_prediction(call, trained, images, tmp_path):
    code, output, _ = call("train", "--out", trained, "--resume")
    assert (code, output.count("12 validation images are too few")) == (0, 1)
    code, output, _ = call("evaluate", trained)
    assert "trust, from 12 validation images" in output
    assert output.rstrip().endswith(str(trained / "reliability.png"))
    _, output, _ = call("evaluate", trained, "--coverage", "0.8", "--error-rate", "0.3", "--json")
    found = json.loads(output)["trust"]
    assert (found["coverage"], found["error_rate"]) in ((0.8, 0.3), (0.8, None))
    Image.new("L", (10, 10), 128).save(tmp_path / "grey.png")
    _, output, _ = call("predict", trained, tmp_path / "grey.png", "--coverage", "0.8")
    assert next(csv.DictReader(output.splitlines()))["sure"] == "unlike"
    for place in ([], ["--to", tmp_path / "rows"]):
        asked = call("predict", trained, tmp_path / "grey.png", "--error-rate", "0.01", *place)
        assert asked[0] == 0
        assert asked[2].count("12 validation images cannot guarantee an error rate of 0.01") == 1
    assert call("export", trained, "--to", "folder", "--out", tmp_path / "net")[0] == 0
    digest = json.loads((tmp_path / "net" / "config.json").read_text())["weights"]
    assert load_trust(tmp_path / "net", digest).temperature == load_run(trained).trust.temperature
    code, _, error = call("predict", "model.onnx", images, "--error-rate", "0.1")
    assert (code, error.count("--error-rate requires")) == (2, 1)


def test_prediction_goes_on_after_files_that_are_not_what_they_seem(
    call, trained, images, tmp_path
):
    folder = tmp_path / "new"
    shutil.copytree(images / "test" / "bars", folder)
    (folder / "a-large.png").write_bytes(png(20_000, 20_000))
    Image.new("L", (8, 8)).save(folder / "b-gif.png", "GIF")
    make_special(folder / "c-fifo.png", "FIFO")
    (folder / os.fsdecode(b"d-\xff.png")).write_bytes(b"nonsense")
    code, output, error = call("predict", trained, folder)
    assert code == 0
    assert "4 with an error" in error
    rows = list(csv.DictReader(output.splitlines()))
    reasons = {Path(row["image"]).name: row["error"] for row in rows if row["error"]}
    assert len(rows) == 4 + len(list((images / "test" / "bars").iterdir()))
    for name, word in (("a-large", "max_pixels"), ("b-gif", "GIF"), ("c-fifo", "FIFO")):
        assert word in reasons[f"{name}.png"]
    code, output, _ = call("predict", trained, folder / "a-large.png", "--max-pixels", 4 * 10**8)
    assert "max_pixels" not in output


def test_no_cell_of_a_prediction_is_a_formula(call, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("L", (28, 28)).save("=1+1.png")
    shown = {}
    for option in ((), ("--raw-csv",), ("--json",)):
        _, output, _ = call("predict", trained, "=1+1.png", *option)
        shown[option] = output.splitlines()[-1]
    assert shown[()].startswith("'=1+1.png,")
    assert shown["--raw-csv",].startswith("=1+1.png,")
    assert json.loads(shown["--json",])["image"] == "=1+1.png"


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
    shutil.copytree(trained, folder / "first")
    (folder / "first" / "config.json").write_text(json.dumps({**config, "format": 1}))
    (folder / "damaged").mkdir()
    shutil.copytree(trained, folder / "damaged", dirs_exist_ok=True)
    (folder / "damaged" / "model" / "model.safetensors").write_bytes(b"\x00" * 50)
    (folder / "bad.toml").write_text("[train]\nepoch = 3\n")
    (folder / "empty").mkdir()
    shutil.copytree(images, folder / "broken")
    (folder / "broken" / "train" / "bars" / "0.png").write_bytes(b"nonsense")
    out = ["--out", folder / "new"]
    return {
        "wrong command": (["trian"], "trian"),
        "wrong option": (["train", images, "--epochs", "3"], "--epochs"),
        "wrong type": (["train", images, "--devices", "two"], "--devices"),
        "no data": (["train", *out], "DATA is missing"),
        "missing data": (["train", folder / "nowhere", *out], "nowhere"),
        "missing config": (["train", images, "--config", folder / "no.toml"], "no.toml"),
        "wrong key in file": (
            ["train", images, "--config", folder / "bad.toml"],
            "unknown setting 'train.epoch': did you mean 'train.epochs'?",
        ),
        "wrong key": (["train", images, "--set", "train.epoch=3"], "did you mean 'train.epochs'?"),
        "wrong value": (
            ["train", images, "--set", "train.epochs=no"],
            "='no': must be an integer",
        ),
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
        "one fold": (["train", images, "--folds", "1", *out], "folds=1"),
        "more folds than images": (["train", images, "--folds", "99", *QUICK, *out], "folds=99"),
        "folds in processes": (
            ["train", images, "--folds", "2", "--devices", "2", *QUICK, *out],
            "in one process",
        ),
        "folds of a run": (
            ["train", "--out", trained, "--resume", "--folds", "2"],
            "already holds a run",
        ),
        "rate of folds": (["train", images, "--find-rate", "--folds", "2"], "--find-rate"),
        "resume what": (["train", images, "--resume"], "--resume requires"),
        "loss not finite": (
            ["train", images, *out, *QUICK, "--set", "train.learning_rate=1e30"],
            "lower train.learning_rate",
        ),
        "other version": (["evaluate", other], "format 7 is not the format 2"),
        "first version": (["evaluate", folder / "first"], "use besselnet 0.1.0"),
        "untrained alone": (["evaluate", trained, "--untrained"], "--untrained requires --rotated"),
        "no such device": (["evaluate", trained, "--device", "xyz"], "'xyz' is not available"),
        "one angle": (["evaluate", trained, "--rotated", "--angles", "1"], "angles=1: must be"),
        "size alone": (["models", "--size", "64"], "--model require --speed"),
        "no network fits": (["models", "--speed", "--size", "1"], "no network to measure: "),
        "no such network": (["models", "--speed", "--model", "x*"], "no model matches 'x*'"),
        "no such border": (
            ["evaluate", trained, "--border", "red"],
            "border='red': must be one of",
        ),
        "broken image": (
            ["train", folder / "broken", "--out", folder / "a", *QUICK],
            "(command line: --set data.options.on_error=skip)",
        ),
        "not a run": (["evaluate", images], "not a run folder"),
        "wrong part": (
            ["evaluate", trained, "--part", "all"],
            "part='all': must be one of",
        ),
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


def warn() -> None:
    warnings.warn("the images are dark:\n  set bits", stacklevel=2)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("name", ["besselnet", "besselnet-lab"])
def test_a_warning_is_one_line_without_the_place_in_the_program(capsys, name):
    shown_before = warnings.showwarning
    commands = {"warn": Command(__name__, "warn", "Warn."), "other": Command("", "", "")}
    assert Program(name, "1", "About.", commands).run(["warn"]) == 0
    assert capsys.readouterr().err == f"{name}: warning: the images are dark: set bits\n"
    assert warnings.showwarning is shown_before


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
        f"continue with: besselnet train --out {out} --resume"
    )
    code, output, _ = call("train", "--out", out, "--resume")
    assert code == 0
    assert output.startswith("resuming at epoch 2, step 4")
    for file in ("model.safetensors", "trust.safetensors"):
        one, other = ((run / "model" / file).read_bytes() for run in (out, trained))
        assert one == other


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
