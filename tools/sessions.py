"""A hook of mkdocs: Python sessions are shown as code and its output, without the marks of doctest.

The highlighter tells prompts, code and output apart; the style sheet hides the prompts, also from the
button that copies.
"""

import re
from typing import Any

_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FLAGS = re.compile(r" *# doctest: .*$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its sessions marked as such."""
    return _FENCE.sub(_session, markdown)


def _session(match: re.Match[str]) -> str:
    code = match[1]
    if not code.startswith(">>> "):
        return match[0]
    return f"```pycon\n{_FLAGS.sub('', code)}```"
