"""`besselnet train`: settings from the images, folds, the learning-rate finder."""

import pytest

from train.toy_run import make_images

QUICK = [
    *("--model", "toy", "--set", "train.epochs=2", "--set", "train.batch_size=8"),
    *("--set", "train.device=cpu"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


def test_the_images_choose_what_is_not_given_and_settings_show_it(call, images):
    def listed(*arguments):
        output = call("train", *arguments, "--model", "toy", "--settings")[1]
        return dict(line.split()[:2] for line in output.splitlines())

    chosen, usual = listed(images), listed()
    assert chosen["train.epochs"] != usual["train.epochs"]
    assert (chosen["data.border"], usual["data.border"]) == ('"reflect"', '"zeros"')
    assert listed(images, "--set", "train.epochs=3")["train.epochs"] == "3"


def test_folds_are_trained_told_and_resumed(call, images, tmp_path):
    out = tmp_path / "out"
    code, output, _ = call("train", images, "--folds", "2", "--out", out, *QUICK)
    assert code == 0
    assert output.startswith("24 images")
    assert [line for line in output.splitlines() if line.startswith("fold ")] == [
        "fold 1 of 2",
        "fold 2 of 2",
    ]
    assert "95% confidence interval" in output
    (out / "folds.json").unlink()
    code, again, _ = call("train", "--out", out, "--resume")
    assert code == 0
    assert again.count("already finished") == 2
    assert again.splitlines()[-3:] == output.splitlines()[-3:]
    assert (out / "folds.json").exists()
    assert call("evaluate", out / "fold-2")[0] == 0


def test_a_rate_is_suggested_and_nothing_is_trained(call, images, tmp_path):
    out = tmp_path / "run"
    code, output, _ = call("train", images, "--find-rate", "--out", out, *QUICK)
    assert code == 0
    assert "suggested learning rate" in output
    assert {path.name for path in out.iterdir()} == {"rates.json", "rates.png", ".lock"}
    suggestion = output.split("--set train.learning_rate=")[1].strip()
    # The folder is still free for a run.
    rate = ["--set", f"train.learning_rate={suggestion}"]
    assert call("train", images, "--out", out, *QUICK, *rate)[0] == 0
