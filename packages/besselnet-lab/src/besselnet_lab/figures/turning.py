"""Feature maps of an image and its rotated copies, for a plain CNN and a B-CNN.

The networks are untrained: whether feature maps rotate with the image is a property of the layers, for any
weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from besselnet.drawing import SEQUENTIAL, SMALL, layer_outputs, new_figure, show, strongest_maps
from besselnet.nn import BesselConv2d
from besselnet.testing import disc_window, turn_images

__all__ = [
    "FollowingMaps",
    "TurnedMaps",
    "draw_following_frame",
    "draw_turned_maps",
    "follow_turns",
    "networks",
    "turned_maps",
]

# The paper's example: four layers without padding take 29 x 29 pixels to 1 x 1.
PAPER_KERNELS = (9, 9, 9, 5)
PAPER_SIZE = 29
CHANNELS = 8


def networks(
    kernel_sizes: Sequence[int], *, padded: bool = False, seed: int = 0
) -> dict[str, nn.Module]:
    """Return a plain CNN and a B-CNN of the same shape: a convolution and a ReLU per kernel size."""
    kinds: Mapping[str, Callable[..., nn.Module]] = {
        "plain CNN": nn.Conv2d,
        # As in the networks that we recommend: order 0 keeps its sign, so ReLU has something to cut.
        "B-CNN": partial(BesselConv2d, response="signed"),
    }
    built: dict[str, nn.Module] = {}
    for name, convolution in kinds.items():
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layers: list[nn.Module] = []
            for i, size in enumerate(kernel_sizes):
                channels = CHANNELS if i else 1
                padding = size // 2 if padded else 0
                # Without bias, which would add the same number everywhere and hide differences.
                options = {"padding": padding, "bias": False}
                layers += [convolution(channels, CHANNELS, size, **options), nn.ReLU()]
            built[name] = nn.Sequential(*layers).eval()
    return built


@dataclass(frozen=True)
class TurnedMaps:
    """The strongest map of each layer, and all values of the last, for every angle."""

    angles: tuple[float, ...]
    pictures: Tensor
    """(angles, S, S)."""
    maps: dict[str, list[Tensor]]
    """For each network and layer (angles, h, w)."""
    outputs: dict[str, Tensor]
    """For each network (angles, channels)."""

    def change(self, network: str) -> list[float]:
        """Return the change of the output at each angle against the first, relative to its norm."""
        outputs = self.outputs[network]
        return ((outputs - outputs[0]).norm(dim=1) / outputs[0].norm()).tolist()


def turned_maps(
    picture: Tensor, angles: Sequence[float] = (0.0, 90.0, 40.0), seed: int = 0
) -> TurnedMaps:
    """Compute the maps of an image of 29 x 29 pixels in the four layers of the paper, at each angle."""
    if picture.shape != (PAPER_SIZE, PAPER_SIZE):
        raise ValueError(
            f"picture has shape {tuple(picture.shape)}: must be ({PAPER_SIZE}, {PAPER_SIZE})"
        )
    pictures = torch.cat([turn_images(picture[None, None], angle) for angle in angles])
    models = networks(PAPER_KERNELS, seed=seed)
    return TurnedMaps(
        angles=tuple(angles),
        pictures=pictures[:, 0],
        maps={name: strongest_maps(model, pictures) for name, model in models.items()},
        outputs={
            name: layer_outputs(model, pictures)[-1].flatten(1) for name, model in models.items()
        },
    )


def draw_turned_maps(turned: TurnedMaps) -> Figure:
    """Draw one block per network and one row per angle."""
    figure = new_figure(3.9 * len(turned.maps))
    blocks = figure.subfigures(len(turned.maps), 1, squeeze=False)[:, 0]
    for block, (name, layers) in zip(blocks, turned.maps.items()):
        block.suptitle(name, fontsize="large", fontweight="bold")
        grid = block.subplots(len(turned.angles), len(layers) + 2)
        output = turned.outputs[name]
        low_output, high_output = _range(output)
        for row, (axes, angle, change) in enumerate(zip(grid, turned.angles, turned.change(name))):
            show(axes[0], turned.pictures[row])
            axes[0].set_ylabel(f"rotated by {angle:g}°" if angle else "upright", fontsize=SMALL)
            for column, maps in enumerate(layers, start=1):
                low, high = _range(maps)
                show(axes[column], maps[row], cmap=SEQUENTIAL, low=low, high=high)
            show(axes[-1], output[row][:, None], cmap=SEQUENTIAL, low=low_output, high=high_output)
            axes[-1].set_aspect("auto")
            axes[-1].set_box_aspect(1)
            text = f"changes by {100 * change:.1f} %" if row else "to compare with"
            axes[-1].set_xlabel(text, fontsize=SMALL)
            if row == 0:
                axes[0].set_title("image", fontsize=SMALL)
                for column, maps in enumerate(layers, start=1):
                    size = maps.shape[-1]
                    axes[column].set_title(f"layer {column}: {size} × {size}", fontsize=SMALL)
                axes[-1].set_title(
                    f"layer {len(layers) + 1}: {len(output[row])} numbers", fontsize=SMALL
                )
    return figure


@dataclass(frozen=True)
class FollowingMaps:
    """A rotating image, its feature maps, and these maps rotated back."""

    angles: tuple[float, ...]
    pictures: Tensor
    maps: dict[str, Tensor]
    turned_back: dict[str, Tensor]

    def change(self, network: str) -> list[float]:
        """Return the relative change of the maps rotated back, against those of the first angle."""
        back = self.turned_back[network]
        return ((back - back[0]).flatten(1).norm(dim=1) / back[0].norm()).tolist()


def follow_turns(picture: Tensor, steps: int = 24, seed: int = 0) -> FollowingMaps:
    """Rotate a square image once around in ``steps`` steps, behind a round window.

    The maps are the strongest of the second of two layers. They are also windowed, because outside the
    window they respond to the frame.
    """
    angles = tuple(360.0 * i / steps for i in range(steps))
    window = disc_window(picture.shape[-1]).to(picture)
    seen = (picture * window)[None, None]
    pictures = torch.cat([turn_images(seen, angle) for angle in angles])
    maps, turned_back = {}, {}
    for name, model in networks((9, 7), padded=True, seed=seed).items():
        maps[name] = strongest_maps(model, pictures)[-1] * window
        back = [turn_images(m[None, None], -a)[0, 0] for m, a in zip(maps[name], angles)]
        turned_back[name] = torch.stack(back)
    return FollowingMaps(angles, pictures[:, 0], maps, turned_back)


def draw_following_frame(following: FollowingMaps, frame: int) -> Figure:
    """Draw one frame: image and maps on top, and the same rotated back below, which should not move.

    Text is large, because the animation is shown small.
    """
    names = list(following.maps)
    figure = new_figure(5.6)
    angle = following.angles[frame]
    figure.suptitle(f"image rotated by {angle:3.0f}°", fontsize="x-large")
    grid = figure.subplots(2, 1 + len(names))
    show(grid[0, 0], following.pictures[frame])
    show(grid[1, 0], following.pictures[0])
    grid[0, 0].set_title("image", fontsize="large")
    grid[0, 0].set_ylabel("rotated", fontsize="large")
    grid[1, 0].set_ylabel("rotated back:\nshould stand still", fontsize="large")
    for column, name in enumerate(names, start=1):
        low, high = _range(following.maps[name])
        for axes, maps in zip(grid[:, column], (following.maps[name], following.turned_back[name])):
            show(axes, maps[frame], cmap=SEQUENTIAL, low=low, high=high)
        grid[0, column].set_title(f"feature map, {name}", fontsize="large")
        change = 100 * following.change(name)[frame]
        grid[1, column].set_xlabel(f"change: {change:.0f} %", fontsize="large")
    return figure


def _range(values: Tensor) -> tuple[float, float]:
    """From the smallest to the largest; never empty, which a picture cannot show."""
    low, high = (bound.item() for bound in torch.aminmax(values))
    return low, max(high, low + 1e-12)
