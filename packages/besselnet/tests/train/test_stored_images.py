"""Training on images on disk is training on images in memory."""

import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from besselnet.cli import main
from besselnet.data import StoredImages, _cache
from besselnet.train import Interrupted, load_images, train_folds, train_run
from train.toy_run import make_images, quick_config
from train.toys import same


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("BESSELNET_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "_PIECE_BYTES", 7 * 3 * 10 * 10)
    found = quick_config(make_images(tmp_path / "images"))
    return replace(found, data=replace(found.data, augment=("rotate", "contrast"), balance=True))


def kept(config, where):
    return replace(config, data=replace(config.data, cache=where))


def test_weights_are_the_same_bit_for_bit(config, tmp_path, capsys):
    runs = {}
    for where in ("never", "always"):
        runs[where] = train_run(kept(config, where), tmp_path / where)
        said = "are read from disk" in capsys.readouterr().out
        assert said == (where == "always")
    assert isinstance(load_images(kept(config, "always").data).train.images, StoredImages)
    assert same(runs["never"].model.state_dict(), runs["always"].model.state_dict())
    assert runs["never"].results() == runs["always"].results()


def test_a_run_resumes_on_disk_or_in_memory(config, tmp_path, monkeypatch):
    whole = train_run(kept(config, "never"), tmp_path / "whole", quiet=True)
    monkeypatch.setattr("besselnet.train._process.StopRequest.__enter__", stopping)
    folder = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        train_run(kept(config, "never"), folder, quiet=True)
    # Step by step, each time with the images elsewhere.
    for where in ("always", None, "always"):
        with pytest.raises(Interrupted):
            train_run(kept(config, where), folder, resume=True, quiet=True)
    monkeypatch.undo()
    monkeypatch.setenv("BESSELNET_DATA", str(tmp_path / "cache"))
    resumed = train_run(kept(config, "always"), folder, resume=True, quiet=True)
    assert same(resumed.model.state_dict(), whole.model.state_dict())


def stopping(request):
    request.signal_number = signal.SIGINT
    return request


def test_folds_are_the_same(config, tmp_path):
    divided = replace(config, data=replace(config.data, folds=2))
    found = [
        train_folds(kept(divided, where), tmp_path / str(where), quiet=True)
        for where in ("never", "always")
    ]
    assert found[0] == found[1]


def test_changed_pixels_on_disk_are_refused(config, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.setattr("besselnet.train._process.StopRequest.__enter__", stopping)
    with pytest.raises(Interrupted):
        train_run(kept(config, "always"), tmp_path / "run", quiet=True)
    image = tmp_path / "images" / "train" / "bars" / "3.png"
    Image.new("L", (10, 10), 9).save(image)
    with pytest.raises(ValueError, match="pixels of 1 image"):
        train_run(kept(config, "always"), tmp_path / "run", resume=True, quiet=True)


def test_sources_in_memory_cannot_be_kept_on_disk(config):
    config = replace(config, data=replace(config.data, source="mnist-mini", cache="always"))
    with pytest.raises(ValueError, match=r"data.cache='always': must be unset for mnist-mini"):
        load_images(config.data)


def test_the_command_line_has_the_setting(config, tmp_path, capsys):
    arguments = ["train", config.data.source, "--model", "toy", "--out", str(tmp_path / "run")]
    settings = ["train.epochs=1", "data.cache=always", "train.device=cpu"]
    chosen = [part for text in settings for part in ("--set", text)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, *chosen])
    assert ended.value.code == 0
    assert f"read from disk (data.cache='always'): {tmp_path / 'cache'}" in capsys.readouterr().out


MEMORY = """
import sys, torch
from pathlib import Path
from torch import nn
from besselnet import train
from besselnet.models import register_model
@register_model("tiny", symmetry="none", exactness="none", sizes="any", smallest_size=8, summary="")
def tiny(*, in_channels, num_classes, image_size):
    return nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(in_channels * 16, num_classes))
torch.set_num_threads(1)
source, folder = sys.argv[1:]
settings = ["data.cache=always", "data.augment=[]", "train.epochs=1", "train.device=cpu"]
config, images, _ = train.recommend_config(
    {"data": {"source": source}, "model": {"name": "tiny"}}, settings=settings
)
run = train.train_run(config, folder, images=images, quiet=True)
with open("/proc/self/status") as file:
    print(next(line for line in file if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")
def test_memory_does_not_grow_with_the_images(tmp_path, monkeypatch):
    """The most memory that training on 20 000 and on 200 000 files of 64 pixels takes."""
    monkeypatch.setenv("BESSELNET_DATA", str(tmp_path / "cache"))
    peaks = {}
    for count in (20_000, 200_000):
        write_noise(tmp_path / str(count), count)
        # The first one makes the cache as well.
        for turn in ("making", "reading"):
            done = subprocess.run(
                [sys.executable, "-c", MEMORY, tmp_path / str(count), tmp_path / f"{count}-{turn}"],
                capture_output=True,
                text=True,
                check=True,
            )
            print(count, turn, done.stdout)
            peaks[turn, count] = int(done.stdout.split()[-1]) / 1024
    assert peaks["reading", 200_000] <= 1.1 * peaks["reading", 20_000], peaks
    assert peaks["making", 200_000] <= 1.25 * peaks["making", 20_000], peaks


def write_noise(folder, count):
    """JPEG files of 64 pixels in two classes, a hundred different ones."""
    import io

    import numpy as np
    from PIL import Image

    chance, files = np.random.default_rng(0), []
    for _ in range(100):
        buffer = io.BytesIO()
        Image.fromarray(chance.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(buffer, "JPEG")
        files.append(buffer.getvalue())
    for number in range(count):
        place = folder / "ab"[number % 2]
        if number < 2:
            place.mkdir(parents=True)
        (place / f"{number:07}.jpg").write_bytes(files[number % 100])
