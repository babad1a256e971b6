"""Cross-validation: every image is tested once, and what is finished stays."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from besselnet.data import Splits
from besselnet.locking import Busy
from besselnet.train import (
    Classify,
    CrossValidation,
    DataConfig,
    Interrupted,
    digest_images,
    evaluate_run,
    load_images,
    load_run,
    read_folds_config,
    train_folds,
    train_run,
    wilson_interval,
)
from train.toy_run import make_images, quick_config
from train.toys import same, weights_of

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


def folds_config(images: Path, folds: int = 3):
    config = quick_config(images)
    return replace(config, data=replace(config.data, folds=folds))


@pytest.fixture(scope="module")
def finished(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds") / "out"
    return folder, train_folds(folds_config(images), folder, quiet=True)


def hashes(part) -> list[int]:
    return digest_images(Splits(part)).tensors["train/pixels"].tolist()


def test_each_image_is_tested_once_and_never_by_a_network_that_learned_it(images):
    whole = sorted(hashes(load_images(DataConfig(source=str(images))).merged()))
    tested = []
    for fold in (1, 2, 3):
        splits = load_images(DataConfig(source=str(images), folds=3, fold=fold))
        test = hashes(splits.test)
        assert not set(test) & set(hashes(splits.train))
        if splits.val is not None:
            assert not set(test) & set(hashes(splits.val))
        tested += test
    assert sorted(tested) == whole


def test_the_folder_holds_the_runs_and_what_they_come_to(finished):
    folder, found = finished
    names = {path.name for path in folder.iterdir()}
    assert names == {"fold-1", "fold-2", "fold-3", "folds.json", "folds.png", ".lock"}
    written = json.loads((folder / "folds.json").read_text())
    assert written == found.to_dict()
    assert written["images"] == 48
    low, high = written["confidence_interval_95"]
    assert low <= written["accuracy"] <= high


def test_a_fold_is_a_run_that_is_tested_on_its_own_images(finished):
    folder, found = finished
    for number, (right, images) in enumerate(zip(found.right, found.images), 1):
        report = evaluate_run(load_run(folder / f"fold-{number}"))
        assert (report["images"], round(report["accuracy"] * images)) == (images, right)


def test_finished_folds_are_kept_and_the_rest_is_made_up_for(images, finished, tmp_path):
    folder, found = finished
    config = folds_config(images)
    options = {"resize": "crop"}  # a run names it
    assert read_folds_config(folder).data == replace(config.data, options=options)
    changed = list(folder.rglob("checkpoint.safetensors"))
    before = [path.stat().st_mtime_ns for path in changed]
    assert train_folds(read_folds_config(folder), folder, resume=True, quiet=True) == found
    assert [path.stat().st_mtime_ns for path in changed] == before
    with pytest.raises(ValueError, match="already holds folds"):
        train_folds(folds_config(images), folder, quiet=True)
    with pytest.raises(ValueError, match="already holds folds"):
        train_run(quick_config(images), folder, quiet=True)
    with pytest.raises(ValueError, match=r"data.folds: 3 -> 2"):
        train_folds(folds_config(images, 2), folder, resume=True, quiet=True)


# Kills itself in the first epoch of the second fold.
KILLED = textwrap.dedent(
    f"""
    import os, signal, sys
    sys.path.insert(0, {str(TESTS)!r})
    from pathlib import Path
    from besselnet.train import _folds
    from train.test_folds import folds_config

    real = _folds.train_run
    def train_run(config, folder, **more):
        if config.data.fold == 2:
            from besselnet.data import Batches
            Batches.set_epoch_before = Batches.set_epoch
            def set_epoch(self, epoch):
                self.set_epoch_before(epoch)
                if epoch == 1:
                    os.kill(os.getpid(), int(sys.argv[3]))
            Batches.set_epoch = set_epoch
        return real(config, folder, **more)
    _folds.train_run = train_run
    _folds.train_folds(folds_config(Path(sys.argv[1])), sys.argv[2], quiet=True)
    """
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_kill_in_a_fold_is_made_up_for(images, finished, tmp_path, number):
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, images, out, str(int(number))],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert done.returncode != 0
    if number == signal.SIGINT:
        assert Interrupted.__name__ in done.stderr
    assert (out / "fold-1" / "model").exists()
    assert not (out / "folds.json").exists()
    folder, found = finished
    assert train_folds(read_folds_config(out), out, resume=True, quiet=True) == found
    runs = [load_run(place / "fold-2").model for place in (out, folder)]
    assert same(*map(weights_of, runs))


def test_a_second_process_is_refused(images, tmp_path):
    config = folds_config(images)
    program = "import sys; from besselnet.locking import hold_folder\n"
    program += "with hold_folder(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "out"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "held\n"
    with pytest.raises(Busy):
        train_folds(config, tmp_path / "out", quiet=True)
    other.communicate()


def test_several_processes_are_refused(images, tmp_path):
    config = folds_config(images)
    several = replace(config, train=replace(config.train, devices=2))
    with pytest.raises(ValueError, match="in one process"):
        train_folds(several, tmp_path / "out", quiet=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folds": 1}, "folds=1"),
        ({"fold": 2}, "fold=2: must be unset"),
        ({"folds": 3, "fold": 4}, "fold=4"),
    ],
)
def test_folds_that_cannot_be_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**settings)


@pytest.mark.parametrize(("right", "total"), [(0, 10), (10, 10), (81, 90), (1, 2)])
def test_the_interval_is_where_the_normal_test_accepts(right, total):
    """The ends p of Wilson's interval solve (share - p)^2 = z^2 p (1 - p) / total."""
    share = right / total
    for end in wilson_interval(right, total):
        assert (share - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / total, abs=1e-9)
    low, high = wilson_interval(right, total)
    assert 0 <= low <= share <= high <= 1
    mirrored = wilson_interval(total - right, total)
    assert mirrored == pytest.approx((1 - high, 1 - low))


def test_the_pooled_accuracy_counts_images_and_the_mean_counts_folds():
    found = CrossValidation((0.9, 0.5), (10, 2), Classify(("a", "b")))
    assert found.right == (9, 1)
    assert found.accuracy == pytest.approx(10 / 12)
    assert found.to_dict()["mean_accuracy"] == pytest.approx((0.9 + 0.5) / 2)
    assert found.spread == pytest.approx(0.4 / 2**0.5)
