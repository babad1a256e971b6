"""A hook of mkdocs: the notebooks of examples/ as pages, with what they showed when they last ran.

docs/notebooks/NAME.md is made of examples/NAME.ipynb. Pictures are files beside the page.
"""

import base64
import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).parents[1] / "examples"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, its pictures, and the notebook itself to download."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        text, pictures = page_of(path)
        made: dict[str, str | bytes] = {f"{path.stem}.md": text, path.name: path.read_bytes()}
        for name, content in (made | pictures).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def page_of(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by the names that the page has for them."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    blocks: list[str] = []
    pictures: dict[str, bytes] = {}
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
            continue
        blocks.append(f"```python\n{source}\n```")
        for output in _joined(cell["outputs"]):
            if isinstance(output, bytes):
                name = f"{path.stem}-{number}.png"
                pictures[name] = output
                blocks.append(f"![what the cell draws]({name})")
            else:
                blocks.append(f"```text\n{output.rstrip()}\n```")
    title, *others = blocks
    link = (
        f"[Download the notebook]({path.name}), or open `examples/{path.name}` of the repository."
    )
    return "\n\n".join([title, link, *others]) + "\n", pictures


def _joined(outputs: list[dict[str, Any]]) -> list[str | bytes]:
    """What a cell shows: texts, those one after the other as one, and pictures."""
    found: list[str | bytes] = []
    for output in outputs:
        data = output.get("data", {})
        if "image/png" in data:
            found.append(base64.b64decode("".join(data["image/png"])))
            continue
        text = "".join(output.get("text", data.get("text/plain", "")))
        if found and isinstance(found[-1], str):
            found[-1] += text
        else:
            found.append(text)
    return found
