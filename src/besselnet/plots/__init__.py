"""Figures: functions that compute what is shown, and functions that draw it. Files are for the caller."""

from besselnet.plots.accuracy import AngleCurve
from besselnet.plots.catalogue import FIGURES, Drawing, FigureEntry, Request, choose_figures
from besselnet.plots.feature_maps import draw_feature_maps
from besselnet.plots.learning import LearningCurve, read_learning
from besselnet.plots.pictures import read_picture

__all__ = [
    "FIGURES",
    "AngleCurve",
    "Drawing",
    "FigureEntry",
    "LearningCurve",
    "Request",
    "choose_figures",
    "draw_feature_maps",
    "read_learning",
    "read_picture",
]
