"""Two processes train as one does on the same batches."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from besselnet.train import TrainConfig
from besselnet.train._together import synchronises
from train.ddp_program import main

PROGRAM = Path(__file__).with_name("ddp_program.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def train_together(folder: Path, devices: int, launcher: list[str]) -> str:
    """Train in processes of their own and return what they print."""
    done = subprocess.run(
        [sys.executable, *launcher, PROGRAM, folder, str(devices)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("devices", "launcher"),
    [(2, []), pytest.param(1, TORCHRUN, marks=pytest.mark.slow)],
    ids=["own processes", "torchrun"],
)
def test_two_processes_follow_the_loss_curve_of_one(tmp_path, devices, launcher):
    main(tmp_path / "one", 1)
    output = train_together(tmp_path / "two", devices, launcher)
    assert output.count("2 processes") == 1
    assert output.count("epoch 1/4") == 1
    for place in (".", "norm"):
        alone, together = (read_metrics(tmp_path / name / place) for name in ("one", "two"))
        assert len(alone) == len(together) == 4
        for a, b in zip(alone, together):
            for column in ("train_loss", "train_accuracy", "val_loss", "val_accuracy"):
                assert float(a[column]) == pytest.approx(float(b[column]), abs=1e-4)


@pytest.mark.parametrize(
    ("batch_size", "processes", "chosen", "expected"),
    [
        (64, 1, True, False),
        (64, 4, None, False),
        (64, 8, None, True),
        (64, 8, False, False),
        (256, 2, True, True),
    ],
)
def test_small_shares_are_normalised_together(batch_size, processes, chosen, expected):
    config = TrainConfig(batch_size=batch_size, sync_norm=chosen)
    assert synchronises(config, processes) == expected


def read_metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))
