"""Figures: functions that compute the data, and functions that draw it. The caller writes the files."""

from besselnet_lab.figures.accuracy import AngleCurve
from besselnet_lab.figures.catalogue import FIGURES, Drawing, FigureEntry, Request, choose_figures
from besselnet_lab.figures.learning import LearningCurve, read_learning
from besselnet_lab.figures.noise import NoiseCurve, read_noise
from besselnet_lab.figures.pictures import read_picture

__all__ = [
    "FIGURES",
    "AngleCurve",
    "Drawing",
    "FigureEntry",
    "LearningCurve",
    "NoiseCurve",
    "Request",
    "choose_figures",
    "read_learning",
    "read_noise",
    "read_picture",
]
