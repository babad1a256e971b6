"""Translation equivariance of convolutions: objects move, and their responses move with them."""

from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from besselnet.drawing import LINES, SEQUENTIAL, new_figure, show, strongest_maps
from besselnet_lab.figures.turning import networks

__all__ = ["MovedObjects", "draw_translation", "move_objects"]

SCENE = 72
# Row and column of the upper left corner of each object, before and after.
PLACES = (((2, 4), (40, 6)), ((6, 44), (22, 44)), ((46, 26), (2, 10)))


@dataclass(frozen=True)
class MovedObjects:
    """A scene before and after its objects were moved, and a feature map of each network."""

    side: int
    scenes: Tensor
    """(2, S, S)."""
    maps: dict[str, Tensor]
    """For each network (2, S, S)."""

    def patches(self, network: str) -> tuple[Tensor, Tensor]:
        """Return the map around each object, before and after: (objects, side, side) each."""
        before, after = (
            torch.stack(
                [
                    self.maps[network][when, y : y + self.side, x : x + self.side]
                    for y, x in (place[when] for place in PLACES)
                ]
            )
            for when in (0, 1)
        )
        return before, after


def move_objects(objects: Tensor, seed: int = 0) -> MovedObjects:
    """Place three small images (3, 24, 24), with dark rims, at two sets of positions in a scene."""
    side = objects.shape[-1]
    if objects.shape != (len(PLACES), 24, 24):
        raise ValueError(f"objects has shape {tuple(objects.shape)}: must be (3, 24, 24)")
    scenes = torch.zeros(2, SCENE, SCENE)
    for picture, places in zip(objects, PLACES):
        for scene, (y, x) in zip(scenes, places):
            scene[y : y + side, x : x + side] = picture
    models = networks((7,), padded=True, seed=seed)
    maps = {name: strongest_maps(model, scenes[:, None])[0] for name, model in models.items()}
    return MovedObjects(side, scenes, maps)


def draw_translation(moved: MovedObjects) -> Figure:
    """Draw the scene before (top) and after (bottom); boxes mark the same object."""
    figure = new_figure(5.4)
    figure.suptitle("Move the objects, and their responses move along: any convolution does this")
    grid = figure.subplots(2, 1 + len(moved.maps))
    for when, (axes, label) in enumerate(zip(grid, ("before", "objects moved"))):
        show(axes[0], moved.scenes[when])
        axes[0].set_ylabel(label)
        for panel, maps in zip(axes[1:], moved.maps.values()):
            show(panel, maps[when], cmap=SEQUENTIAL, high=maps.max().item())
        for panel in axes:
            _mark(panel, moved.side, when)
    for panel, title in zip(grid[0], ("image", *(f"feature map, {n}" for n in moved.maps))):
        panel.set_title(title)
    return figure


def _mark(axes: Axes, side: int, when: int) -> None:
    for line, place in zip(LINES[2:], PLACES):
        y, x = place[when]
        box = Rectangle(
            (x - 0.5, y - 0.5),
            side,
            side,
            fill=False,
            edgecolor=line.color,
            linestyle=line.linestyle,
            linewidth=1.8,
        )
        axes.add_patch(box)
