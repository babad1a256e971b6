"""What a run records about the code that made it."""

from besselnet.train._environment import source_digest


def test_other_code_has_another_digest(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "room" / "b.py").write_text("y = 2\n")
    first = source_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("not code")
    assert source_digest(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2\n")
    second = source_digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "c.py")
    assert len({first, second, source_digest(tmp_path)}) == 3
