"""Pictures: the style that all figures share, pictures of networks, contact sheets."""

from besselnet.drawing._contact_sheet import contact_sheet
from besselnet.drawing._networks import (
    draw_confusion,
    draw_curves,
    draw_feature_maps,
    draw_filters,
    draw_rotated,
    layer_outputs,
    learned_filters,
    strongest_maps,
)
from besselnet.drawing._style import (
    DIVERGING,
    GREY,
    LINES,
    SEQUENTIAL,
    SMALL,
    WIDTH,
    LineStyle,
    line_style,
    new_figure,
    png_bytes,
    show,
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
    "layer_outputs",
    "learned_filters",
    "line_style",
    "new_figure",
    "png_bytes",
    "show",
    "strongest_maps",
    "write_figure",
]
