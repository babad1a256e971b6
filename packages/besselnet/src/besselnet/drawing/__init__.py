"""Pictures: the style that all figures share, the pictures of a run, feature maps, contact sheets."""

from besselnet.drawing._contact_sheet import contact_sheet
from besselnet.drawing._feature_maps import draw_feature_maps, layer_outputs, strongest_maps
from besselnet.drawing._runs import (
    draw_confusion,
    draw_curves,
    draw_filters,
    draw_rotated,
    learned_filters,
)
from besselnet.drawing._style import (
    DIVERGING,
    GREY,
    LINES,
    SEQUENTIAL,
    SMALL,
    WIDTH,
    LineStyle,
    gif_bytes,
    line_style,
    new_figure,
    png_bytes,
    show,
    svg_bytes,
    write_figure,
)

__all__ = [
    "DIVERGING",
    "GREY",
    "LINES",
    "SEQUENTIAL",
    "SMALL",
    "WIDTH",
    "LineStyle",
    "contact_sheet",
    "draw_confusion",
    "draw_curves",
    "draw_feature_maps",
    "draw_filters",
    "draw_rotated",
    "gif_bytes",
    "layer_outputs",
    "learned_filters",
    "line_style",
    "new_figure",
    "png_bytes",
    "show",
    "strongest_maps",
    "svg_bytes",
    "write_figure",
]
