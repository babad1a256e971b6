"""A hook of mkdocs: formulas become MathML while the site is built.

pymdownx.arithmatex marks what stands between dollar signs and leaves it to a script in the browser; that
script would come from the network. Browsers draw MathML by themselves.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """The HTML of a page with MathML in place of TeX."""

    def mathml(match: re.Match[str], display: str) -> str:
        tex = html.unescape(match[1]).strip()
        try:
            drawn = convert(tex, display=display)
        except Exception as error:
            raise PluginError(f"{page.file.src_path}: cannot read the formula {tex}") from error
        # What the converter does not know it passes on as text: commands, and "&" in `aligned`.
        if "\\" in drawn or "&<" in drawn:
            raise PluginError(f"{page.file.src_path}: an unknown command in the formula {tex}")
        return drawn

    content = _INLINE.sub(lambda match: mathml(match, "inline"), content)
    return _BLOCK.sub(lambda match: f'<div class="formula">{mathml(match, "block")}</div>', content)
