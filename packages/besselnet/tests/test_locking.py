"""Locks: one process at a time, free as soon as that one has ended, however it ended."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from besselnet.atomic import atomic_file
from besselnet.locking import Busy, hold_folder, hold_output, is_held

HOLDER = """
import sys
from besselnet.atomic import atomic_file
from besselnet.locking import {lock}
with {lock}(sys.argv[1]), atomic_file(sys.argv[2]) as file:
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(lock, place, file):
    """Another process that holds `place` and is writing `file`."""
    program = [sys.executable, "-c", HOLDER.format(lock=lock), str(place), str(file)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        yield other
        other.kill()


@pytest.mark.parametrize("lock", [hold_folder, hold_output])
def test_a_second_process_is_refused_and_a_killed_one_lets_go(tmp_path, lock):
    place = tmp_path / "run"
    inside = lock is hold_folder
    file = place / "a.txt" if inside else place
    with holder(lock.__name__, place, file) as other:
        started = time.monotonic()
        with pytest.raises(Busy, match="run is in use") as refused, lock(place):
            pass
        assert time.monotonic() - started < 2
        assert len(str(refused.value).splitlines()) == 1
        assert list(tmp_path.rglob("*.partial"))
        other.kill()
        other.wait()
        started = time.monotonic()
        with lock(place):
            # What the killed one left is gone.
            assert not list(tmp_path.rglob("*.partial"))
        assert time.monotonic() - started < 0.5
    if not inside:
        assert not list(tmp_path.iterdir())


def test_the_holder_may_hold_again_and_other_threads_may_not(tmp_path):
    found = []

    def other():
        try:
            with hold_folder(tmp_path):
                found.append("held")
        except Busy:
            found.append("busy")

    with hold_folder(tmp_path), atomic_file(tmp_path / "a"):
        assert is_held(tmp_path / ".lock")
        # Nothing of the holder's is taken for a leftover.
        with hold_folder(tmp_path):
            assert list(tmp_path.glob("*.partial"))
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert found == ["busy"]
    assert not is_held(tmp_path / ".lock")
    assert not is_held(tmp_path / "nothing")


def test_a_mistake_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="mistake"), hold_folder(tmp_path / "runs" / "a"):
        raise ValueError("mistake")
    with pytest.raises(ValueError, match="mistake"), hold_output(tmp_path / "out" / "a"):
        raise ValueError("mistake")
    assert not list(tmp_path.iterdir())
