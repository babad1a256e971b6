"""The report of a study: its results beside the published numbers, as Markdown and as a page."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from besselnet.atomic import write_atomically
from besselnet.untrusted import printable_text
from besselnet_lab.report.collect import collect
from besselnet_lab.report.figures import draw_figures
from besselnet_lab.report.markdown import markdown
from besselnet_lab.report.page import page
from besselnet_lab.report.robustness import collect_robust, has_robustness
from besselnet_lab.report.segmentation import collect_masks, has_masks

__all__ = ["write_report"]


def write_report(
    results: Iterable[Mapping[str, Any]], folder: str | Path, title: str
) -> list[Path]:
    """Write report.md with its figures, and report.html, which holds everything.

    Args:
        results: as `Store.results` gives them.
        folder: made if it is not there.
    """
    folder = Path(folder)
    found = list(results)
    masks = collect_masks(result for result in found if has_masks(result))
    classes = [result for result in found if not has_masks(result)]
    # Beside masks alone, there is nothing to compare with the paper.
    tables = collect(classes) if classes or not masks else []
    robust = collect_robust(result for result in classes if has_robustness(result))
    figures = draw_figures(tables, masks, robust)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for drawing in figures.drawings:
        write_atomically(folder / "figures" / drawing.file, printable_text(drawing.svg))
        if drawing.png:
            picture = (folder / "figures" / drawing.file).with_suffix(".png")
            write_atomically(picture, drawing.png)
    files = {
        folder / "report.md": markdown(tables, figures, title, masks, robust),
        folder / "report.html": page(tables, figures, title, masks, robust),
    }
    for path, text in files.items():
        write_atomically(path, printable_text(text))
    return list(files)
