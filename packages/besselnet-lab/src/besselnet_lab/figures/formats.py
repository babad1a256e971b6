"""Figures as SVG, and several of them as one moving GIF."""

import io
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image


def svg_bytes(figure: Figure) -> bytes:
    """The figure as SVG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "besselnet"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def gif_bytes(frames: Sequence[Figure], milliseconds: int, dpi: int = 75) -> bytes:
    """The figures one after the other, over and over, in the colours of all of them together.

    600 pixels wide and 128 colours: a turn in 24 frames takes less than a megabyte.
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
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
