"""Files of rows: a function of network, images and options, whoever wrote them and was killed meanwhile."""

import csv
import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from besselnet.locking import hold
from besselnet.models import create_model
from besselnet.train import (
    Classify,
    Regress,
    Run,
    RunConfig,
    Segment,
    default_workers,
    predict_rows,
    predict_shards,
)
from besselnet.train import _shards as shards
from besselnet.train._answers import ImageAnswers
from masks.networks import equivariant

COUNT = 50
HOW = {"rows_per_file": 20, "batch_size": 8, "workers": 0}


def make_run(task=None, model=None, size=8):
    torch.manual_seed(0)
    task = task or Classify(("a", "b", "c"))
    model = model or nn.Sequential(nn.Flatten(), nn.Linear(64, len(task.classes)))
    return Run(Path("run"), RunConfig(), model.eval(), 1, size, task.classes, task)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder with a file that cannot be read, and an archive with five of its images."""
    folder = tmp_path_factory.mktemp("survey") / "images"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 12, 12), np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number:03d}.png")
    (folder / "033.png").write_bytes(b"nonsense")
    with tarfile.open(folder.parent / "five.tar", "w") as archive:
        for number in range(5):
            archive.add(folder / f"{number:03d}.png", f"{number}.png")
    return folder


def places_of(images):
    return [images, images.parent / "five.tar"]


def contents(folder, pattern="rows-*"):
    return {path.name: path.read_bytes() for path in sorted(folder.glob(pattern))}


def table(folder):
    rows = []
    for path in sorted(folder.glob("rows-*.csv")):
        with path.open() as file:
            rows += csv.DictReader(file)
    return rows


def test_files_have_the_rows_of_the_images_in_order(images, tmp_path):
    report = predict_shards(make_run(), places_of(images), tmp_path, **HOW)
    assert (report.images, report.failures, report.files, report.skipped) == (55, 1, 4, 0)
    rows = table(tmp_path)
    plainly = list(predict_rows(make_run(), places_of(images), batch_size=8))
    assert [row["image"] for row in rows] == [row["image"] for row in plainly]
    assert [row["class"] for row in rows] == [row["class"] or "" for row in plainly]
    for row, expected in zip(rows, plainly):
        if expected["error"] is None:
            assert float(row["probability"]) == pytest.approx(expected["probability"], abs=1e-6)
    assert "033.png" in rows[33]["error"]
    assert len({row["image"] for row in rows}) == 55
    sizes = [len(content.splitlines()) - 1 for content in contents(tmp_path).values()]
    assert sizes == [20, 20, 10, 5]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_workers_change_no_byte(images, tmp_path, form):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    for workers in (0, 2):
        how = {**HOW, "workers": workers, "form": form}
        predict_shards(make_run(), places_of(images), tmp_path / str(workers), **how)
    found = contents(tmp_path / "0")
    assert len(found) == 4
    assert found == contents(tmp_path / "2")


def test_a_network_elsewhere_than_on_the_cpu_stays_in_the_main_process(
    images, tmp_path, monkeypatch
):
    predict_shards(make_run(), places_of(images), tmp_path / "cpu", **HOW)
    main, answered = os.getpid(), []
    answer = ImageAnswers.answer

    def note_process(self, read, folder=None):
        answered.append(os.getpid())
        return answer(self, read, folder)

    # As a GPU would be: workers read, and what they read is answered here.
    monkeypatch.setattr("besselnet.train._in_flight.device_of", lambda _: torch.device("meta"))
    monkeypatch.setattr(ImageAnswers, "answer", note_process)
    predict_shards(make_run(), places_of(images), tmp_path / "gpu", **{**HOW, "workers": 2})
    assert set(answered) == {main}
    assert contents(tmp_path / "gpu") == contents(tmp_path / "cpu")


def test_formats_agree(images, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    for form in ("jsonl", "parquet"):
        predict_shards(make_run(), [images], tmp_path / form, form=form, **HOW)
    lines = "".join(path.read_text() for path in sorted((tmp_path / "jsonl").glob("rows-*")))
    # A folder of files is a table to other programs.
    rows = parquet.read_table(tmp_path / "parquet").to_pylist()
    assert rows == [json.loads(line) for line in lines.splitlines()]


def test_the_type_of_a_column_does_not_depend_on_its_rows(images, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    how = {**HOW, "rows_per_file": 1, "form": "parquet"}
    predict_shards(make_run(), [images / "033.png", images / "001.png"], tmp_path, **how)
    schemas = [parquet.read_schema(path) for path in sorted(tmp_path.glob("rows-*"))]
    assert schemas[0] == schemas[1]
    assert str(schemas[0].field("probability").type) == "double"


def test_the_shares_of_several_calls_are_the_whole(images, tmp_path):
    whole = tmp_path / "whole"
    predict_shards(make_run(), places_of(images), whole, **HOW)
    seen = []
    for share in range(1, 4):
        report = predict_shards(
            make_run(), places_of(images), tmp_path / "shared", shard=f"{share}/3", **HOW
        )
        seen.append(report.images)
    assert sum(seen) == 55
    assert contents(tmp_path / "shared") == contents(whole)


@pytest.mark.parametrize("shard", ["0/3", "4/3", "3", "a/b", "-1/3", "1/0", ""])
def test_a_share_that_does_not_exist_is_refused(images, tmp_path, shard):
    with pytest.raises(ValueError, match="must be of the form 3/16"):
        predict_shards(make_run(), [images], tmp_path, shard=shard, **HOW)


def test_features_are_what_the_last_layer_takes(images, tmp_path):
    model = create_model("cnn", in_channels=1, num_classes=3, image_size=28).eval()
    run = make_run(model=model, size=28)
    rows = list(predict_rows(run, [images], features=True, batch_size=COUNT))
    good = [row for row in rows if row["error"] is None]
    features = torch.tensor(
        [[row[f"feature_{i}"] for i in range(model.num_features)] for row in good]
    )
    shares = model.get_classifier()(features).softmax(1).max(1).values
    assert torch.allclose(shares, torch.tensor([row["probability"] for row in good]), atol=1e-6)
    assert rows[33]["feature_0"] is None
    with pytest.raises(ValueError, match="does not define its last layer"):
        next(predict_rows(make_run(), [images], features=True))


def test_a_call_goes_on_with_the_first_file_that_is_missing(images, tmp_path):
    predict_shards(make_run(), places_of(images), tmp_path, **HOW)
    before = contents(tmp_path)
    (tmp_path / "rows-00000-000001.csv").unlink()
    with pytest.raises(ValueError, match="already has rows"):
        predict_shards(make_run(), places_of(images), tmp_path, **HOW)
    report = predict_shards(make_run(), places_of(images), tmp_path, resume=True, **HOW)
    assert (report.images, report.files, report.skipped) == (20, 1, 3)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("another network", {"run": make_run(model=nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))}),
        ("other images", {"places": 1}),
        ("rows_per_file=20", {"rows_per_file": 19}),
        ("raw_csv=False", {"raw_csv": True}),
        ("batch_size=8", {"batch_size": 9}),
        ("max_pixels=None", {"max_pixels": 10**6}),
    ],
)
def test_resuming_refuses_what_would_give_other_rows(images, tmp_path, what, change):
    change = dict(change)
    predict_shards(make_run(), places_of(images), tmp_path, **HOW)
    places = places_of(images)[: change.pop("places", None)]
    with pytest.raises(ValueError, match=f"rows of a call with {what}: choose"):
        predict_shards(
            change.pop("run", make_run()), places, tmp_path, resume=True, **{**HOW, **change}
        )


def test_jobs_that_differ_do_not_mix_before_there_are_rows(images, tmp_path):
    other = make_run(model=nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))
    predict_shards(make_run(), [images], tmp_path, shard="1/3", **HOW)
    for path in tmp_path.glob("rows-*"):
        path.unlink()
    refused = pytest.raises(ValueError, match="rows of a call with another network")
    with hold(tmp_path / ".lock-1-of-3", "the first job"), refused:
        predict_shards(other, [images], tmp_path, shard="2/3", **HOW)
    assert not contents(tmp_path)
    predict_shards(other, [images], tmp_path, shard="2/3", **HOW)
    assert contents(tmp_path)


def test_resuming_refuses_the_same_weights_with_other_options(images, tmp_path):
    shape = {"in_channels": 1, "num_classes": 3, "image_size": 8, "width": 0.25}
    single, averaged = (create_model("besselnet_small", **shape, rotations=n) for n in (1, 2))
    averaged.load_state_dict(single.state_dict())
    predict_shards(make_run(model=single.eval()), [images], tmp_path, **HOW)
    with pytest.raises(ValueError, match="another network"):
        predict_shards(make_run(model=averaged.eval()), [images], tmp_path, resume=True, **HOW)


def test_a_folder_that_changes_meanwhile_is_noticed(images, tmp_path, monkeypatch):
    plan = shards._plan

    def plan_late(*arguments):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(extra)
        return plan(*arguments)

    extra = images / "000a.png"
    monkeypatch.setattr(shards, "_plan", plan_late)
    try:
        with pytest.raises(ValueError, match="had 50 images and now has 51"):
            predict_shards(make_run(), [images], tmp_path, **HOW)
    finally:
        extra.unlink()


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_full_disk_leaves_whole_files_and_resuming_goes_on(images, tmp_path, monkeypatch, moment):
    predict_shards(make_run(), places_of(images), tmp_path / "whole", **HOW)
    whole, fsync, calls = contents(tmp_path / "whole"), os.fsync, []

    def fail(descriptor):
        calls.append(descriptor)
        # Each file and its folder, after the two of _predict.json.
        if len(calls) > 2 * moment:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left") as failure:
        predict_shards(make_run(), places_of(images), tmp_path / "full", **HOW)
    assert "rows-" in failure.value.filename
    monkeypatch.setattr(os, "fsync", fsync)
    found = contents(tmp_path / "full")
    assert len(found) == moment - 1
    assert found.items() <= whole.items()
    assert not list((tmp_path / "full").rglob("*.partial"))
    predict_shards(make_run(), places_of(images), tmp_path / "full", resume=True, **HOW)
    assert contents(tmp_path / "full") == whole


def test_a_file_is_not_completed_after_a_failure(images, tmp_path, monkeypatch):
    add = shards._RowFiles._add

    def fail_at_last(self, answer):
        if answer.rows[-1]["image"].endswith("049.png"):
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, answer)

    monkeypatch.setattr(shards._RowFiles, "_add", fail_at_last)
    with pytest.raises(OSError, match="No space left"):
        predict_shards(make_run(), [images], tmp_path, **HOW)
    assert sorted(contents(tmp_path)) == ["rows-00000-000000.csv", "rows-00000-000001.csv"]
    assert not list(tmp_path.glob("*.partial"))


def test_an_archive_without_images_has_a_file_without_rows(tmp_path):
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    how = {**HOW, "resume": True}
    report = predict_shards(make_run(), [tmp_path / "empty.tar"], tmp_path / "out", **how)
    assert (report.images, report.files) == (0, 1)
    assert contents(tmp_path / "out") == {"rows-00000.csv": b"image,class,probability,error\n"}
    report = predict_shards(make_run(), [tmp_path / "empty.tar"], tmp_path / "out", **how)
    assert (report.files, report.skipped) == (0, 1)


def test_the_main_process_computes_as_workers_do(images, tmp_path):
    threads = []

    class Watched(nn.Flatten):
        def forward(self, images):
            threads.append(torch.get_num_threads())
            return super().forward(images)[:, :3]

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        predict_shards(make_run(model=Watched()), [images], tmp_path, **HOW)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {1}


@pytest.mark.parametrize(
    ("count", "batch_size", "expected"),
    [(7 * 64, 64, 0), (8 * 64, 64, 4), (7, 1, 0), (8, 1, 4), (None, 64, 4), (0, 64, 0)],
)
def test_workers_are_started_for_enough_batches(monkeypatch, count, batch_size, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    assert default_workers(count, batch_size) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": -1}, "workers=-1: must be an integer >= 0"),
        ({"workers": 0, "cluster": "auto"}, "workers=0: must be an integer >= 1"),
        ({"gpus": 0.5}, "gpus=0.5: must be 0 without a cluster"),
        ({"gpus": -1, "cluster": "auto", "workers": None}, "gpus=-1: must be a finite number >= 0"),
    ],
)
def test_numbers_of_workers_and_gpus_are_checked(images, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        predict_shards(make_run(), [images], tmp_path / "out", **{**HOW, **options})
    assert not (tmp_path / "out").exists()


def test_a_worker_that_is_killed_is_one_line(images, tmp_path, monkeypatch):
    def kill_yourself(self, piece):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("besselnet.train._answers.ImageAnswers.read", kill_yourself)
    with pytest.raises(ValueError, match="a worker process was killed"):
        predict_shards(make_run(), [images], tmp_path, **{**HOW, "workers": 1})
    assert not list(tmp_path.glob("rows-*"))


def test_masks_are_written_once_for_each_image(images, tmp_path):
    run = make_run(Segment(("background", "cell", "border")), equivariant())
    how = {**HOW, "instances": "components", "overlays": True}
    for workers in (0, 2):
        place = tmp_path / f"out{workers}"
        report = predict_shards(run, places_of(images), place, **{**how, "workers": workers})
        assert (report.images, report.failures) == (55, 1)
        rows = table(place)
        masks = [row["mask"] for row in rows if not row["error"]]
        assert len(set(masks)) == 54
        assert all(Path(mask).is_file() for mask in masks)
        assert len(list(place.rglob("overlays/*/*.png"))) == 54
        assert len(contents(place, "measures-*")) == 4
    first, second = (contents(tmp_path / f"out{n}", "m*/**/*.png") for n in (0, 2))
    assert first == second
    assert contents(tmp_path / "out0", "measures-*") == contents(tmp_path / "out2", "measures-*")


def test_options_of_another_task_are_refused(images, tmp_path):
    with pytest.raises(ValueError, match="predicts no masks"):
        predict_shards(make_run(Regress(("x",))), [images], tmp_path, overlays=True, **HOW)
    run = make_run(Segment(("background", "cell", "border")), equivariant())
    with pytest.raises(ValueError, match="features=True"):
        predict_shards(run, [images], tmp_path, features=True, **HOW)


def predict_again(images, out):
    """In a process that may be killed at any moment."""
    how = {"rows_per_file": 1000, "workers": 2, "resume": True}
    predict_shards(make_run(), [images], out, **how)


@pytest.mark.skipif(os.name != "posix", reason="forks")
@pytest.mark.parametrize(
    ("count", "kills"), [(3000, 2), pytest.param(20_000, 50, marks=pytest.mark.slow)]
)
def test_kills_at_random_moments_change_no_byte(tmp_path, count, kills):
    processes = multiprocessing.get_context("forkserver")
    # Importing torch takes longer than a prediction.
    processes.set_forkserver_preload([__name__])
    images, whole, out = (
        write_many(tmp_path / "images", count),
        tmp_path / "whole",
        tmp_path / "out",
    )

    def begin(folder):
        process = processes.Process(target=predict_again, args=(images, folder))
        process.start()
        return process

    begun = time.monotonic()
    begin(whole).join()
    longest, expected = (time.monotonic() - begun) / 3, contents(whole)
    assert [row["image"] for row in table(whole)] == sorted(map(str, images.iterdir()))
    chance, killed = random.Random(0), 0
    while killed < kills:
        process = begin(out)
        process.join(chance.uniform(0, longest))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        killed += process.exitcode != 0
        if process.exitcode == 0:
            # The next kills are for another one.
            assert contents(out) == expected
            shutil.rmtree(out)
    predict_again(images, out)
    assert contents(out) == expected
    assert not list(out.rglob("*.partial"))


PROGRAM = """
import sys
from pathlib import Path
import torch
from torch import nn
from besselnet.train import Classify, Run, RunConfig, predict_shards
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
run = Run(Path("run"), RunConfig(), model, 1, 8, ("a", "b", "c"), Classify(("a", "b", "c")))
predict_shards(run, [sys.argv[1]], sys.argv[2], rows_per_file=int(sys.argv[3]), workers=2, resume=True)
"""


def own_memory(process):
    """Bytes of a process that belong to no file: what libraries take depends on who else has them."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def children_of(process):
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += path.read_text().split()
        except OSError:
            continue
    return found


def peak_with_workers(images, out, rows_per_file=100):
    """Bytes of memory that a prediction and its workers have at most, each for itself."""
    command = [sys.executable, "-c", PROGRAM, str(images), str(out), str(rows_per_file)]
    with subprocess.Popen(command) as process:
        peak = 0
        while process.poll() is None:
            everyone = [process.pid, *children_of(process.pid)]
            peak = max(peak, sum(map(own_memory, everyone)))
            time.sleep(0.01)
    assert process.returncode == 0
    return peak


def write_many(folder, count):
    """A folder with so many names of one image: names are what could pile up."""
    content = np.random.default_rng(0).integers(0, 256, (10, 10), np.uint8)
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number:06d}.png"
        if number % 1000:
            # A file has a limited number of names.
            os.link(folder / f"{number // 1000 * 1000:06d}.png", path)
        else:
            Image.fromarray(content).save(path)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("few", "many"), [(200, 4000), pytest.param(2000, 200_000, marks=pytest.mark.slow)]
)
def test_memory_does_not_grow_with_the_images(tmp_path, few, many):
    peaks = []
    for count in (few, many):
        folder = write_many(tmp_path / f"images{count}", count)
        peaks.append(peak_with_workers(folder, tmp_path / f"out{count}", min(few, 1000)))
    assert max(peaks) < 1.1 * min(peaks)
