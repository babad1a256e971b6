"""A hook of mkdocs: numbers such as 12 000 stay on one line."""

import re
from typing import Any

# Code and formulas as they are, or one mark; what is left is text.
_NOT_TEXT = re.compile(r"(<(?:pre|code|math)\b.*?</(?:pre|code|math)>|<[^>]+>)", re.DOTALL)
_GROUPS = re.compile(r"(?<=\d) (?=\d{3}\b)")
NARROW_SPACE = "\u202f"


def on_page_content(content: str, **_: Any) -> str:
    """The HTML of a page with a narrow space that does not break before each group of three digits."""
    parts = _NOT_TEXT.split(content)
    parts[::2] = [_GROUPS.sub(NARROW_SPACE, text) for text in parts[::2]]
    return "".join(parts)
