"""`besselnet export`, and `besselnet predict` with the file and without torch."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from besselnet.cli import main
from besselnet.export import OnnxClassifier
from besselnet.hub import from_pretrained
from train.toy_run import make_images

pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def trained(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    settings = [
        "train.epochs=2",
        "train.batch_size=8",
        "train.device=cpu",
        "train.learning_rate=0.01",
    ]
    with pytest.raises(SystemExit) as end:
        main(
            ["train", str(images), "--out", str(folder), "--model", "toy"]
            + [word for setting in settings for word in ("--set", setting)]
        )
    assert end.value.code == 0
    return folder


@pytest.fixture
def call(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        return (end.value.code, *capsys.readouterr())

    return run


def test_what_is_written_is_said(call, trained, tmp_path):
    code, output, error = call("export", trained, "--int8", "--out", tmp_path / "small.onnx")
    assert (code, error) == (0, "")
    lines = output.splitlines()
    assert lines[0].startswith(f"wrote {tmp_path / 'small.onnx'} (")
    assert lines[1] == "accepts any batch size and images of 10 x 10 pixels"
    assert [line.split(" on ")[1] for line in lines[2:4]] == [
        "100 random images (bound 1e-04)",
        "12 real images (bound 1e-04)",
    ]
    assert lines[4].startswith("int8: calibrated on 12 real images")
    assert len(lines) == 5


def test_every_target(call, trained):
    for to, files in (("plain", ("model.py", "model.pt")), ("torch-export", ("model.pt2",))):
        code, output, _ = call("export", trained, "--to", to)
        assert code == 0
        assert all((trained / file).exists() for file in files)
        assert output.count("wrote") == len(files)
    code, output, _ = call("export", trained, "--to", "folder")
    assert code == 0
    model = from_pretrained(trained / "pretrained")
    assert model.classes == ("bars", "blobs")
    card = (trained / "pretrained" / "README.md").read_text()
    assert "| test accuracy |" in card


def test_images_that_are_gone_are_no_obstacle(call, trained, images, tmp_path):
    config = json.loads((trained / "config.json").read_text())
    elsewhere = tmp_path / "run"
    elsewhere.mkdir()
    config["data"]["source"] = str(tmp_path / "gone")
    (elsewhere / "config.json").write_text(json.dumps(config))
    (elsewhere / "model").symlink_to(trained / "model")
    code, output, error = call("export", elsewhere, "--to", "plain")
    assert code == 0
    assert "compared on random images only" in error
    assert "real images" not in output


# Neither torch nor what needs it can be imported.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from besselnet.cli import main
main()
"""


def test_prediction_without_torch_writes_the_rows_of_the_run(call, trained, images, tmp_path):
    folder = images / "test"
    (tmp_path / "broken.png").write_bytes(b"nonsense")
    given = [folder, tmp_path / "broken.png"]
    assert call("export", trained)[0] == 0
    assert call("predict", trained, *given, "--csv", tmp_path / "torch.csv")[0] == 0
    for option, name in (("--csv", "onnx.csv"), ("--json", None)):
        done = subprocess.run(
            [
                *(sys.executable, "-c", WITHOUT_TORCH, "predict", trained / "model.onnx", *given),
                *(option, *([tmp_path / name] if name else [])),
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        assert "13 images, 1 with an error" in done.stderr
    expected, found = (
        list(csv.DictReader((tmp_path / name).read_text().splitlines()))
        for name in ("torch.csv", "onnx.csv")
    )
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["image"] for row in printed] == [row["image"] for row in expected]
    assert len(found) == len(expected) == 13
    for one, other in zip(found, expected):
        # What needs the maps of the layers is the run's alone.
        assert one.keys() == other.keys() - {"sure", "set"}
        for key in ("image", "class", "error"):
            assert one[key] == other[key]
        if one["probability"]:
            assert float(one["probability"]) == pytest.approx(float(other["probability"]), abs=1e-5)


def test_mistakes_are_one_clear_line(call, trained, images, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"nonsense")
    wrong = {
        (
            "export",
            trained,
            "--to",
            "tflite",
        ): "--to='tflite': must be one of 'onnx', 'torch-export'",
        ("export", trained, "--to", "plain", "--int8"): "--int8 requires --to onnx",
        ("export", trained, "--out", tmp_path / "model.pb"): "must end in .onnx",
        ("export", tmp_path): "not a run folder",
        ("export", trained, "--bound", "0"): "nothing was written",
        ("predict", tmp_path / "no.onnx", images): "no.onnx: no such file",
        ("predict", tmp_path / "bad.onnx", images): "bad.onnx is not a readable ONNX file",
        ("predict", tmp_path / "bad.onnx", images, "--device", "tpu"): "device='tpu'",
    }
    for arguments, expected in wrong.items():
        code, _, error = call(*arguments)
        assert code == 2, error
        (line,) = error.strip().splitlines()
        assert expected in line
    assert {path.name for path in tmp_path.iterdir()} == {"bad.onnx"}


def test_files_of_others_are_refused(tmp_path, trained, call):
    onnx = pytest.importorskip("onnx")
    if not (trained / "model.onnx").exists():
        call("export", trained)
    model = onnx.load(trained / "model.onnx")
    facts = json.loads(model.metadata_props[0].value)
    model.metadata_props[0].value = json.dumps({**facts, "format": 9})
    onnx.save(model, tmp_path / "newer.onnx")
    with pytest.raises(ValueError, match="metadata format 9 is not the format 2"):
        OnnxClassifier(tmp_path / "newer.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ValueError, match="has no metadata of besselnet"):
        OnnxClassifier(tmp_path / "other.onnx")


def test_help_has_examples(call):
    _, output, _ = call("export", "--help")
    assert "besselnet export runs/photos" in output.split("Examples:")[1]


def test_the_classifier_checks_its_arguments(trained, call):
    if not (trained / "model.onnx").exists():
        call("export", trained)
    classifier = OnnxClassifier(trained / "model.onnx", threads=1)
    with pytest.raises(ValueError, match="batch_size=0: must be an integer >= 1"):
        next(classifier.predict([Path("a.png")], batch_size=0))


def test_answers_of_a_file_that_are_not_numbers_are_rows_with_the_reason(call, trained, images):
    assert call("export", trained)[0] == 0
    classifier = OnnxClassifier(trained / "model.onnx", threads=1)
    right = classifier.logits

    def spoiled(pixels):
        logits = right(pixels)
        logits[0, 0], logits[1, 1] = np.nan, np.inf
        return logits

    classifier.logits = spoiled
    first, second, *others = classifier.predict([images / "test"])
    for row in (first, second):
        assert (row.label, row.probability) == (None, None)
        assert "NaN" in row.error
    assert all(row.error is None and row.probability > 0 for row in others)
