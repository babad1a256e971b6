"""What breaks equivariance: a small network with one change in its middle."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from besselnet.drawing import LINES, new_figure
from besselnet.nn import BesselConv2d, BlurPool2d
from besselnet.testing import QUARTER_TURNS, equivariance_error, plane_waves

__all__ = [
    "BROKEN",
    "BreakingRow",
    "Change",
    "breaking_rows",
    "breaking_table",
    "draw_breaking",
]

CHANNELS = 8


def _bessel(in_channels: int = CHANNELS, **options: Any) -> nn.Module:
    return BesselConv2d(in_channels, CHANNELS, **{"kernel_size": 7, "padding": 3, **options})


@dataclass(frozen=True)
class Change:
    """One change: of the middle layer, of the image, or of the layers around it."""

    title: str
    middle: Callable[[], nn.Module] = _bessel
    size: int = 33
    window: bool = True
    outer: Callable[[int], nn.Module] = _bessel
    """The first and the last layer, given the number of input channels."""
    grid: int = 1
    """The head keeps grid x grid means of a map."""

    def network(self) -> tuple[nn.Sequential, nn.Sequential]:
        """Return the layers before the feature maps, and the head."""
        features = nn.Sequential(
            self.outer(1), nn.ReLU(), self.middle(), nn.ReLU(), self.outer(CHANNELS)
        )
        head = nn.Sequential(
            nn.AdaptiveAvgPool2d(self.grid),
            nn.Flatten(),
            nn.Linear(CHANNELS * self.grid**2, 10),
        )
        return features, head


def _plain(in_channels: int = CHANNELS) -> nn.Module:
    return nn.Conv2d(in_channels, CHANNELS, 7, padding=3)


BROKEN = (
    Change("a Bessel layer"),
    Change("the same on a larger image", size=65),
    Change("the same, images not windowed", window=False),
    Change("stride 2 that fits: 33 + 2·3 − 7 is even", lambda: _bessel(stride=2)),
    Change("stride 2 that does not fit", lambda: _bessel(stride=2), size=32),
    Change("`BlurPool2d()`, size even", BlurPool2d, size=32),
    Change("`BlurPool2d()`, size odd", BlurPool2d),
    Change("`nn.AvgPool2d(2)`, size even", lambda: nn.AvgPool2d(2), size=32),
    Change("`nn.AvgPool2d(2)`, size odd: drops a row", lambda: nn.AvgPool2d(2)),
    Change("`nn.MaxPool2d(2)`, size even", lambda: nn.MaxPool2d(2), size=32),
    Change("`nn.MaxPool2d(2)`, size odd: drops a row", lambda: nn.MaxPool2d(2)),
    Change('even kernel, `padding="same"`', lambda: _bessel(kernel_size=6, padding="same")),
    Change("`nn.Conv2d(8, 8, 1)`", lambda: nn.Conv2d(8, 8, 1)),
    Change("`nn.Conv2d(8, 8, 3, padding=1)`", lambda: nn.Conv2d(8, 8, 3, padding=1)),
    Change("head keeps a 4 × 4 grid", grid=4),
    Change("all layers `nn.Conv2d`", _plain, outer=_plain),
)


@dataclass(frozen=True)
class BreakingRow:
    """Error of the last maps at quarter turns, which could be exact, and mean error of the outputs."""

    change: str
    image_size: int
    maps: float
    outputs: float

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self)


def breaking_rows(
    changes: Sequence[Change] = BROKEN, *, images: int = 16, seed: int = 0
) -> list[BreakingRow]:
    """Measure each change on plane waves of 4 pixels and more, with random weights."""
    rows = []
    for change in changes:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            features, head = change.network()
        probe = plane_waves(images, size=change.size, window=change.window, seed=seed)
        maps = equivariance_error(features, probe, QUARTER_TURNS, region="disc")
        outputs = equivariance_error(nn.Sequential(features, head), probe)
        rows.append(BreakingRow(change.title, change.size, maps.max(), outputs.mean()))
    return rows


def breaking_table(rows: Sequence[BreakingRow]) -> str:
    """Format the rows as a Markdown table."""
    lines = [["in the middle", "image", "maps", "outputs"], ["---"] * 4]
    for row in rows:
        maps = f"{row.maps:.0e}" if row.maps < 1e-3 else f"{row.maps:.2f}"
        lines.append([row.change, str(row.image_size), maps, f"{row.outputs:.2f}"])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def draw_breaking(rows: Sequence[BreakingRow]) -> Figure:
    """Draw one row per change: the equivariance errors of maps and outputs."""
    figure = new_figure(1.3 + 0.33 * len(rows))
    axes = figure.subplots()
    places = range(len(rows))
    for line, name, values in (
        (LINES[1], "maps, at quarter turns", [row.maps for row in rows]),
        (LINES[4], "outputs, mean over 24 angles", [row.outputs for row in rows]),
    ):
        axes.plot(values, places, line.marker, color=line.color, label=name)
    titles = [f"{row.change.replace('`', '')} ({row.image_size} px)" for row in rows]
    axes.set_yticks(places, titles)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set(
        xscale="log",
        xlabel="relative error",
    )
    figure.suptitle("What breaks equivariance: one thing changed in a small network")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    return figure
