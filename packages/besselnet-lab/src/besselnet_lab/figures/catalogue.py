"""All figures by name: summary, requirements and function."""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor

from besselnet.drawing import gif_bytes, png_bytes, svg_bytes
from besselnet.testing import disc_window
from besselnet_lab.figures.accuracy import AngleCurve, draw_accuracy
from besselnet_lab.figures.basis import basis_pictures, draw_basis
from besselnet_lab.figures.bessel import bessel_curves, draw_bessel
from besselnet_lab.figures.breaking import breaking_rows, breaking_table, draw_breaking
from besselnet_lab.figures.cost import cost_curves, draw_cost
from besselnet_lab.figures.cutoff import cutoff_counts, draw_cutoff
from besselnet_lab.figures.datasets import draw_datasets, find_examples
from besselnet_lab.figures.decomposition import decompose, draw_decomposition
from besselnet_lab.figures.equivariance import (
    ESCNN,
    ESCNN_MISSING,
    draw_error_curves,
    error_curves,
    spread_rows,
    spread_table,
)
from besselnet_lab.figures.learning import LearningCurve, draw_learning
from besselnet_lab.figures.noise import NoiseCurve, draw_noise
from besselnet_lab.figures.orientations import draw_orientations, orientations
from besselnet_lab.figures.pictures import digit, photograph, spiral, squared
from besselnet_lab.figures.response import draw_response, response_steps
from besselnet_lab.figures.scales import draw_scales, scaled_filters
from besselnet_lab.figures.translation import draw_translation, move_objects
from besselnet_lab.figures.turning import (
    PAPER_SIZE,
    draw_following_frame,
    draw_turned_maps,
    follow_turns,
    turned_maps,
)

__all__ = ["FIGURES", "Drawing", "FigureEntry", "Request", "choose_figures"]


@dataclass(frozen=True)
class Request:
    """Input of figures.

    Attributes:
        seed: random seed for weights and examples.
        picture: grey image (H, W) in [0, 1], used instead of images from packages.
        learning: learning curves, for the figure "learning".
        accuracy: accuracy against angle of each network, for the figure "accuracy".
        noise: noise after each layer of each network, for the figure "noise".
        about: one line about the training of these networks.
    """

    seed: int = 0
    picture: Tensor | None = None
    learning: Sequence[LearningCurve] = ()
    accuracy: Mapping[str, AngleCurve] = field(default_factory=dict)
    noise: Mapping[str, NoiseCurve] = field(default_factory=dict)
    about: str = ""

    def square(self, size: int, default: Callable[[int], Tensor]) -> Tensor:
        """Return the image of the user, or the default, as (size, size)."""
        return default(size) if self.picture is None else squared(self.picture, size)


@dataclass(frozen=True)
class Drawing:
    """A finished figure with its data.

    Attributes:
        figure: the figure, for PNG and SVG.
        frames: frames of a GIF, if any.
        numbers: JSON values of the figure, if useful on their own.
        table: these numbers as a Markdown table.
        notes: what was skipped, and why.
    """

    figure: Figure
    frames: Sequence[Figure] = ()
    numbers: Any = None
    table: str = ""
    notes: Sequence[str] = ()

    def files(self, name: str) -> dict[str, bytes]:
        """Return file contents by name."""
        files = {f"{name}.png": png_bytes(self.figure), f"{name}.svg": svg_bytes(self.figure)}
        if self.frames:
            files[f"{name}.gif"] = gif_bytes(self.frames, milliseconds=140)
        if self.numbers is not None:
            files[f"{name}.json"] = (
                json.dumps(self.numbers, indent=2, allow_nan=False) + "\n"
            ).encode()
        if self.table:
            files[f"{name}.md"] = self.table.encode()
        return files


@dataclass(frozen=True)
class FigureEntry:
    """An entry of the list of figures; ``needs`` is the required attribute of `Request`."""

    summary: str
    make: Callable[[Request], Drawing]
    needs: Literal["learning", "accuracy", "noise"] | None = None


def choose_figures(names: Sequence[str]) -> list[str]:
    """Return the given names, each once, or all for "all"; raise ``ValueError`` for unknown names."""
    for name in names:
        if name not in FIGURES and name != "all":
            near = difflib.get_close_matches(name, FIGURES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"no figure is called {name!r}{hint} (all, {', '.join(FIGURES)})")
    return list(FIGURES) if "all" in names else list(dict.fromkeys(names))


def _orientations(request: Request) -> Drawing:
    return Drawing(draw_orientations(orientations(request.square(128, spiral))))


def _translation(request: Request) -> Drawing:
    if request.picture is None:
        objects = torch.stack([digit(24, request.seed + i) for i in range(3)])
    else:
        objects = (squared(request.picture, 24) * disc_window(24).float()).expand(3, -1, -1)
    return Drawing(draw_translation(move_objects(objects, request.seed)))


def _feature_maps(request: Request) -> Drawing:
    picture = request.square(PAPER_SIZE, lambda size: digit(size, request.seed))
    return Drawing(draw_turned_maps(turned_maps(picture, seed=request.seed)))


def _response(request: Request) -> Drawing:
    picture = request.square(36, lambda size: digit(size, request.seed))
    return Drawing(draw_response(response_steps(picture, seed=request.seed)))


def _datasets(request: Request) -> Drawing:
    examples, absent = find_examples(seed=request.seed)
    return Drawing(draw_datasets(examples), notes=absent)


def _equivariance(request: Request) -> Drawing:
    curves = error_curves(seed=request.seed)
    rows = spread_rows(seed=request.seed)
    return Drawing(
        draw_error_curves(curves),
        numbers=[row.to_dict() for row in rows],
        table=spread_table(rows),
        notes=() if ESCNN in curves.errors else (ESCNN_MISSING,),
    )


def _breaking(request: Request) -> Drawing:
    rows = breaking_rows(seed=request.seed)
    return Drawing(
        draw_breaking(rows), numbers=[row.to_dict() for row in rows], table=breaking_table(rows)
    )


def _animation(request: Request) -> Drawing:
    following = follow_turns(request.square(49, photograph), seed=request.seed)
    frames = [draw_following_frame(following, i) for i in range(len(following.angles))]
    return Drawing(draw_following_frame(following, len(frames) // 8), frames=frames)


# In the order of the paper, then what goes beyond it.
FIGURES = {
    "orientations": FigureEntry("one object at four angles", _orientations),
    "translation": FigureEntry("objects move, and their feature maps move with them", _translation),
    "bessel": FigureEntry(
        "Bessel functions and their derivatives, with the roots that define the basis",
        lambda request: Drawing(draw_bessel(bessel_curves())),
    ),
    "basis": FigureEntry(
        "the basis functions, real and imaginary parts",
        lambda request: Drawing(draw_basis(basis_pictures())),
    ),
    "decomposition": FigureEntry(
        "an image decomposed, rotated, mirrored and rebuilt by its coefficients",
        lambda request: Drawing(draw_decomposition(decompose(request.square(96, photograph)))),
    ),
    "feature-maps": FigureEntry(
        "feature maps of a rotated image: plain CNN and B-CNN", _feature_maps
    ),
    "response": FigureEntry("how a Bessel layer computes one value of a feature map", _response),
    "cutoff": FigureEntry(
        "number of functions and weights of a kernel of k pixels",
        lambda request: Drawing(draw_cutoff(cutoff_counts())),
    ),
    "scales": FigureEntry(
        "one set of weights as filters of three sizes",
        lambda request: Drawing(draw_scales(scaled_filters(seed=request.seed))),
    ),
    "datasets": FigureEntry("examples of the data sets on this machine", _datasets),
    "learning": FigureEntry(
        "learning curves of runs (--run), or of a short training",
        lambda request: Drawing(draw_learning(request.learning)),
        needs="learning",
    ),
    "accuracy": FigureEntry(
        "accuracy against the rotation angle, of runs (--run) or of a short training",
        lambda request: Drawing(draw_accuracy(request.accuracy, request.about)),
        needs="accuracy",
    ),
    "noise": FigureEntry(
        "noise after each layer, of runs or results (--run) or of a short training",
        lambda request: Drawing(draw_noise(request.noise)),
        needs="noise",
    ),
    "equivariance": FigureEntry(
        "equivariance error of one layer against the angle, for each sampling; with a table",
        _equivariance,
    ),
    "breaking": FigureEntry("what breaks equivariance; with a table", _breaking),
    "cost": FigureEntry(
        "operations against the kernel size: plain, direct, factored",
        lambda request: Drawing(draw_cost(cost_curves())),
    ),
    "animation": FigureEntry("a rotating image and its feature maps (GIF)", _animation),
}
