"""The page on deployment can be followed, with a run and images that the test has made."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from besselnet.cli import main
from places import DOCS
from train.toy_run import make_images

PAGE = DOCS / "deployment.md"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def command(line: str) -> None:
    program, *arguments = shlex.split(line, comments=True)
    if program == "pip":
        return
    assert program == "besselnet"
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0, line


def test_page_can_be_followed(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    make_images(Path("photos"), size=16)
    shutil.copytree("photos/test/bars", "new")
    Path("new/0.png").rename("new/001.png")
    command("besselnet train photos --out runs/photos --model toy --set train.epochs=1")
    names: dict = {"__name__": "page"}
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "deployment.md", "exec"), names)
        else:
            for line in text.splitlines():
                command(line)
    sys.modules.pop("photos")
    assert Path("answers.csv").read_text().startswith("image,class,probability,error\n")
    assert names["CLASSES"] == ["bars", "blobs"]
    assert names["model"].recipe.name == "besselnet_small"
    assert all(Path(file).exists() for file in ("photos8.onnx", "photos.pt", "mine/README.md"))
    assert "besselnet_small/digits" in capsys.readouterr().out
