"""Files that appear whole: names of their own, several at once, and nothing left of killed writers."""

import errno
import os
import subprocess
import sys
import threading

import pytest

from besselnet import atomic
from besselnet.atomic import (
    atomic_file,
    made_folder,
    remove_leftovers,
    write_atomically,
    write_together,
)
from hostile import make_special, refused

DEAD = subprocess.Popen([sys.executable, "-c", ""])
DEAD.wait()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "a"
    with atomic_file(path) as first, atomic_file(path) as second:
        first.write(b"first")
        second.write(b"second, longer")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["a"]


def test_many_writers_at_once_leave_one_of_their_contents(tmp_path):
    path, failures = tmp_path / "a", []

    def write(number):
        try:
            for _ in range(20):
                write_atomically(path, str(number) * 1000)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert path.read_text() in {str(number) * 1000 for number in range(4)}
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_of_several_files_all_change_or_none(tmp_path, monkeypatch, call):
    write_together(tmp_path / "net", {"weights": b"old", "config": "old"})
    real, calls = getattr(os, call), []

    def fail_at_second(*arguments):
        calls.append(arguments)
        if len(calls) == (2 if call == "fsync" else 1):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, call, fail_at_second)
        with pytest.raises(OSError, match="No space left") as full:
            write_together(tmp_path / "net", {"weights": b"new", "config": "new"})
        calls.clear()
        with pytest.raises(OSError, match="No space left"):
            write_together(tmp_path / "other", {"weights": b"new", "config": "new"})
    assert "net" in full.value.filename
    assert {p.name: p.read_bytes() for p in (tmp_path / "net").iterdir()} == {
        "weights": b"old",
        "config": b"old",
    }
    assert names(tmp_path) == ["net"]


def test_leftovers_are_those_of_dead_processes(tmp_path):
    (tmp_path / "model").mkdir()
    dead = [f"model/config.json.{DEAD.pid}-0123abcd.partial", f"[x].{DEAD.pid}-0123abcd.partial"]
    # Of a process of the same number in an earlier container.
    own = f"log.{os.getpid()}-0123abcd.partial"
    kept = [f"log.{os.getppid()}-0123abcd.partial", "my.partial", f"x.{DEAD.pid}-0123abcd.part"]
    for name in (*dead, own, *kept):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path, "[x]")
    assert not (tmp_path / dead[1]).exists()
    assert (tmp_path / own).exists()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted(["model", *kept])
    assert names(tmp_path / "model") == []


def test_a_folder_that_stays_empty_goes_with_its_failure(tmp_path):
    with pytest.raises(ValueError, match="mistake"), made_folder(tmp_path / "a" / "b"):
        raise ValueError("mistake")
    assert names(tmp_path) == []
    with pytest.raises(IsADirectoryError), made_folder(tmp_path / "a" / "b"):
        write_together(tmp_path / "a" / "b", {"work": b"", "../b": b""})
    assert names(tmp_path / "a" / "b") == ["work"]


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_what_is_no_file_is_not_replaced(tmp_path, kind):
    path = make_special(tmp_path / "thing", kind)
    before = path.lstat()
    refused(lambda: write_atomically(path, "text"), str(path))
    refused(lambda: write_together(tmp_path, {"other": "text", "thing": "text"}), str(path))
    assert path.lstat().st_ino == before.st_ino
    assert names(tmp_path) == ["thing"]


def test_names_that_are_not_utf_8_can_be_written(tmp_path):
    write_atomically(tmp_path / "a", "class " + os.fsdecode(b"caf\xe9") + " 🐍")
    assert (tmp_path / "a").read_text(encoding="utf-8") == r"class caf\udce9 🐍"
