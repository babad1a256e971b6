"""kill -9 at any moment, then the same command again: the files of an undisturbed run, none half-written."""

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from abuse.fork_server import Ended, Kill
from besselnet_lab.study.store import Store
from study.toys import comparable, write_study
from train.toy_run import make_images

TRAINING = [
    *("--model", "stateful", "--resume", "--out", "out"),
    *("--set", "train.epochs=2", "--set", "train.batch_size=8", "--set", "train.device=cpu"),
    *(
        "--set",
        "train.checkpoint_steps=1",
        "--set",
        "train.ema_decay=0.9",
        "--set",
        "train.keep=best",
    ),
]
# Of the files of a run, those that say nothing of times.
OF_A_RUN = ("config.json", "results.json", "confusion.png", "model/*")


@dataclass(frozen=True)
class Work:
    """A command that fills the folder `out` of its working folder; `same` are the files to compare."""

    command: Sequence[object]
    same: Sequence[str] = ("**/*",)

    def answers(self, folder: Path) -> dict[Path, bytes]:
        paths = (path for pattern in self.same for path in (folder / "out").glob(pattern))
        return {path.relative_to(folder): path.read_bytes() for path in paths if path.is_file()}


def names(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def next_kill(chance: random.Random, whole: Ended, whom: Sequence[str] = ("itself",)) -> Kill:
    """At a random time, or just before one of the changes of files, where a kill does most harm."""
    if len(whom) == 1 and chance.random() < 0.5:
        return Kill(change=chance.randint(1, whole.changes))
    return Kill(seconds=chance.uniform(0, whole.seconds), whom=chance.choice(whom))


def kill_at_random(server, work: Work, kills: int, folder: Path) -> None:
    chance = random.Random(0)

    def call(name: str, kill: Kill | None = None) -> Ended:
        (folder / name / "out").mkdir(parents=True, exist_ok=True)
        ended = server.run(*work.command, folder=folder / name, kill=kill)
        assert ended.code == 0 or (kill and ended.killed), ended
        return ended

    whole = call("whole")
    expected, all_names = work.answers(folder / "whole"), names(folder / "whole")
    assert expected
    done = 0
    while done < kills:
        disturbed = folder / "disturbed"
        for _ in range(chance.randint(1, 3)):
            done += call("disturbed", next_kill(chance, whole)).killed
            found = work.answers(disturbed)
            # Names that are not expected may be temporary ones; under their own names, files are whole.
            assert all(found[path] == expected[path] for path in found.keys() & expected.keys())
        call("disturbed")
        assert work.answers(disturbed) == expected
        assert names(disturbed) == all_names
        shutil.rmtree(disturbed)


def train(folder: Path, run: Path) -> Work:
    images = make_images(folder / "images", size=6)
    return Work(["besselnet", "train", images, *TRAINING], OF_A_RUN)


def predict(folder: Path, run: Path) -> Work:
    return Work(["besselnet", "predict", run, run.parent / "images", "--csv", "out/rows.csv"])


def predict_shards(folder: Path, run: Path) -> Work:
    options = ["--to", "out/rows", "--rows-per-file", 3, "--batch-size", 2, "--resume"]
    command = ["besselnet", "predict", run, run.parent / "images", *options, "--workers", 2]
    return Work(command)


def predict_20_000(folder: Path, run: Path) -> Work:
    images = folder / "many"
    for number, name in enumerate(sorted((run.parent / "images").rglob("*.png")) * 420):
        place = images / f"{number // 1000:02d}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:05d}.png").symlink_to(name)
    assert number > 20_000
    options = ["--to", "out/rows", "--rows-per-file", 500, "--resume", "--workers", 2]
    return Work(["besselnet", "predict", run, images, *options])


def export_plain(folder: Path, run: Path) -> Work:
    return Work(["besselnet", "export", run, "--to", "plain", "--out", "out/network.py"])


def export_folder(folder: Path, run: Path) -> Work:
    return Work(["besselnet", "export", run, "--to", "folder", "--out", "out/network"])


def export_onnx(folder: Path, run: Path) -> Work:
    return Work(["besselnet", "export", run, "--out", "out/network.onnx"])


def kill_study_at_random(server, kills: int, folder: Path) -> None:
    chance = random.Random(0)
    recipe = write_study(folder)
    options = ["--jobs", 2, "--threads", 1, "--data-root", folder, "--retries", 1000]

    def call(results: Path, kill: Kill | None = None) -> Ended:
        command = ["besselnet-lab", "study", "run", recipe, "--results", results, *options]
        ended = server.run(*command, folder=folder, kill=kill)
        assert ended.code == 0 or (kill and ended.killed), ended
        assert not ended.orphans, "a worker outlives its runner"
        return ended

    whole = call(folder / "whole")
    expected = [comparable(result) for result in Store(folder / "whole").results()]
    assert len(expected) == 4
    done = 0
    while done < kills:
        store = Store(folder / f"disturbed-{done}")
        finished: list[dict] = []
        for _ in range(chance.randint(1, 3)):
            kill = next_kill(chance, whole, ("itself", "workers", "all"))
            done += min(1, call(store.folder, kill).killed)
            results = [comparable(result) for result in store.results()]
            assert all(result in results for result in finished), "a result is lost"
            finished = results
        call(store.folder)
        assert [comparable(result) for result in store.results()] == expected
        log = [line.split()[1:] for line in (store.work / "log.txt").read_text().splitlines()]
        times = Counter(words[1] for words in log if words[0] == "finished")
        assert set(times.values()) == {1}, "a result was written twice"
        assert not [path for path in (store.work / "runs").rglob("*") if path.is_file()]
        assert not list(store.folder.glob("*/*.failed.json"))


@pytest.mark.parametrize(
    ("work", "kills"),
    [
        (train, 11), (predict, 8), (predict_shards, 12), (export_plain, 4), (export_folder, 4),
        pytest.param(train, 400, marks=pytest.mark.slow),
        pytest.param(predict, 200, marks=pytest.mark.slow),
        pytest.param(predict_shards, 200, marks=pytest.mark.slow),
        pytest.param(predict_20_000, 50, marks=pytest.mark.slow),
        pytest.param(export_plain, 120, marks=pytest.mark.slow),
        pytest.param(export_folder, 120, marks=pytest.mark.slow),
        pytest.param(export_onnx, 60, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_kills_change_nothing(server, run, tmp_path, work, kills):
    kill_at_random(server, work(tmp_path, run), kills, tmp_path)


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_kills_of_a_study_lose_nothing_and_repeat_nothing(lab_server, tmp_path, kills):
    kill_study_at_random(lab_server, kills, tmp_path)
