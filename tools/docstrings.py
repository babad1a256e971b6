"""An extension of griffe: docstrings, which use some of Sphinx's marks, as the Markdown that mkdocs reads."""

import re
import textwrap
from typing import Any

import griffe

# ".. math:: a = b", or with the formula in the indented lines below.
_FORMULA = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +\S.*| *(?=\n\1 +\S)))*)", re.MULTILINE)
# A session at the end of the text, without a title.
_SESSION = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
# "Properties (each has a test of its name):" and the indented lines below.
_PROPERTIES = re.compile(r"^(Properties)( \(.*\)):\n((?:    .*\n?)+)", re.MULTILINE)


def to_markdown(text: str) -> str:
    """A docstring with formulas between dollar signs and names in backticks."""
    text = _FORMULA.sub(_formula, text)
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)
    text = _PROPERTIES.sub(
        lambda match: f"**{match[1]}**{match[2]}:\n{textwrap.dedent(match[3])}", text
    )
    text = _SESSION.sub(lambda match: "Examples:\n" + textwrap.indent(match[0], "    "), text)
    return re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)


def _formula(match: re.Match[str]) -> str:
    indent, tex = match[1], textwrap.dedent(match[2]).strip()
    lines = textwrap.indent(f"$$\n{tex}\n$$", indent)
    return f"\n{lines}\n"


class MarkdownDocstrings(griffe.Extension):
    """Rewrites every docstring of the package as it is read."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
