"""kill -9 at any moment, then resume: the weights of an undisturbed training, bit for bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("kill_driver.py")


def kill_and_resume(folder: Path, kills: int) -> None:
    done = subprocess.run(
        [sys.executable, DRIVER, folder, str(kills), "0"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) >= kills


def test_ten_kills_change_nothing(tmp_path):
    kill_and_resume(tmp_path, 10)


@pytest.mark.slow
def test_a_hundred_kills_change_nothing(tmp_path):
    kill_and_resume(tmp_path, 100)
