"""The style of all figures: colour-blind safe colours and readable text.

Figures are 8 inches wide at 125 dots per inch, 1000 pixels. Text has at least 8 points, 14 pixels.
"""

import io
import logging
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from besselnet.atomic import write_atomically

WIDTH = 8.0
DPI = 125
SMALL = 8.5
"""Font size in points for labels in and next to small panels."""

# Lightness rises all the way in the first and falls alike to both sides in the second: they can be
# read without colour vision, but for the sign, whose red and blue nobody confuses.
SEQUENTIAL = "cividis"
DIVERGING = "RdBu_r"
GREY = "gray"


class LineStyle(NamedTuple):
    """Colour, marker and dashes, so that lines also differ in print and for colour-blind readers."""

    color: str
    marker: str
    linestyle: str | tuple[int, tuple[int, ...]]


# Okabe and Ito's colours, without the yellow, which is too light for a line on white.
LINES = (
    LineStyle("#000000", "o", "-"),
    LineStyle("#0072B2", "s", "--"),
    LineStyle("#E69F00", "D", "-."),
    LineStyle("#009E73", "^", ":"),
    LineStyle("#D55E00", "v", (0, (5, 1, 1, 1, 1, 1))),
    LineStyle("#CC79A7", "P", (0, (8, 2))),
    LineStyle("#56B4E9", "X", (0, (2, 2))),
)


def line_style(number: int) -> LineStyle:
    """Return the style of a line; colours repeat with other markers and dashes."""
    again, place = divmod(number, len(LINES))
    other = LINES[(place + 3 * again) % len(LINES)]
    return LineStyle(LINES[place].color, other.marker, other.linestyle)


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure. Default width: `WIDTH` inches."""
    return Figure(figsize=(width, height), layout="constrained")


def show(
    axes: Axes, image: ArrayLike, *, cmap: str = GREY, low: float = 0.0, high: float = 1.0
) -> ScalarMappable:
    """Show an image without ticks; NaN (outside a disc) is white."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes.imshow(np.asarray(image), cmap=cmap, vmin=low, vmax=high, interpolation="nearest")


def visible_text(text: str, most: int = 40) -> str:
    """A text from outside (the name of a class or file), of at most `most` characters that can be drawn.

    Control characters and the bytes of names that are not UTF-8 become the replacement character.
    """
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c for c in cut)


def plain_text(text: str, most: int = 40) -> str:
    """Return `visible_text` for matplotlib, with dollar signs and leading underscores escaped."""
    shown = visible_text(text, most).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def attempt(draw: Callable[..., object], path: str | Path, *arguments: Any) -> bool:
    """Call ``draw(path, *arguments)``, or log why it failed; return whether it succeeded."""
    try:
        draw(path, *arguments)
    except Exception as error:  # Whatever it is, what is shown is worth more than the picture.
        reason = " ".join(str(error).split()) or type(error).__name__
        # Not a warning, which may have been made an error.
        logging.getLogger(__name__).warning("%s was not drawn: %s", path, reason)
        return False
    return True


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Without matplotlib's warnings of letters that its font lacks, and of texts that leave no room."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def png_bytes(figure: Figure) -> bytes:
    """Return the figure as PNG."""
    buffer = io.BytesIO()
    with _without_remarks():
        figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def write_figure(path: str | Path, figure: Figure) -> None:
    """Write the figure as PNG, atomically."""
    write_atomically(path, png_bytes(figure))


def svg_bytes(figure: Figure, *, letters: bool = False) -> bytes:
    """Return the figure as SVG, with text as shapes or as `letters`; the same figure gives the same bytes.

    Element ids are hashes of their content, so several figures can share one page.
    """
    fonts = "none" if letters else "path"
    buffer = io.BytesIO()
    with (
        matplotlib.rc_context({"svg.hashsalt": "besselnet", "svg.fonttype": fonts}),
        _without_remarks(),
    ):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def gif_bytes(frames: Sequence[Figure], milliseconds: int, dpi: int = 75) -> bytes:
    """Return the figures as a looping GIF, with a common palette.

    With 600 pixels and 128 colours, a rotation in 24 frames takes less than a megabyte.
    """
    pictures = [Image.fromarray(_pixels(frame, dpi)) for frame in frames]
    # One palette, from all frames side by side: with a palette for each, still parts would flicker.
    together = Image.fromarray(np.concatenate([np.asarray(p)[::4, ::4] for p in pictures]))
    palette = together.quantize(128, method=Image.Quantize.MEDIANCUT)
    first, *others = [p.quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures]
    buffer = io.BytesIO()
    first.save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=others,
        duration=milliseconds,
        loop=0,
        optimize=True,
    )
    return buffer.getvalue()


def _pixels(figure: Figure, dpi: int) -> NDArray[np.uint8]:
    """(height, width, 3)."""
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    with _without_remarks():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
