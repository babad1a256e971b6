"""The Python in the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number, capsys):
    names: dict = {}
    exec(SNIPPETS[number], names)
    assert capsys.readouterr().out
    if "difference" in names:
        assert names["difference"].abs().max() < 1e-5
