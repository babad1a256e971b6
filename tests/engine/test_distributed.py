"""Two processes train as one does on the same batches."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("ddp_program.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def train(folder: Path, devices: int, launcher: list[str]) -> tuple[list[dict[str, str]], str]:
    done = subprocess.run(
        [sys.executable, *launcher, PROGRAM, folder, str(devices)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file)), done.stdout


def check_same(alone: list[dict[str, str]], together: list[dict[str, str]]) -> None:
    assert len(alone) == len(together) == 4
    for a, b in zip(alone, together):
        for column in ("train_loss", "train_accuracy", "val_loss", "val_accuracy"):
            assert float(a[column]) == pytest.approx(float(b[column]), abs=1e-4)


def test_two_processes_follow_the_loss_curve_of_one(tmp_path):
    alone, _ = train(tmp_path / "one", 1, [])
    together, output = train(tmp_path / "two", 2, [])
    assert output.count("2 processes") == 1
    assert output.count("epoch 1/4") == 1
    check_same(alone, together)


@pytest.mark.slow
def test_torchrun_follows_it_too(tmp_path):
    alone, _ = train(tmp_path / "one", 1, [])
    together, output = train(tmp_path / "two", 1, TORCHRUN)
    assert output.count("2 processes") == 1
    check_same(alone, together)
