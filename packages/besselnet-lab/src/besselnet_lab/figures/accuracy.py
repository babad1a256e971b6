"""Accuracy of trained networks against the angle by which the test images are rotated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from besselnet.drawing import line_style, new_figure, plain_text

__all__ = ["AngleCurve", "draw_accuracy"]


@dataclass(frozen=True)
class AngleCurve:
    """Accuracy at each angle (in degrees, the first is 0), and the number of images."""

    angles: Sequence[float]
    accuracy: Sequence[float]
    images: int

    def closed(self) -> tuple[list[float], list[float]]:
        """Return the curve in per cent, with its first point repeated at 360 degrees."""
        percent = [100 * share for share in self.accuracy]
        return [*self.angles, 360.0], [*percent, percent[0]]


def draw_accuracy(curves: Mapping[str, AngleCurve], about: str = "") -> Figure:
    """Draw one line per network, with its mean over the angles in the legend."""
    figure = new_figure(4.2)
    axes = figure.subplots()
    for number, (name, curve) in enumerate(curves.items()):
        mean = 100 * sum(curve.accuracy) / len(curve.accuracy)
        label = f"{plain_text(name)}: {mean:.0f} % on average"
        axes.plot(*curve.closed(), label=label, markersize=5, **line_style(number)._asdict())
    images = {curve.images for curve in curves.values()}
    tested = f"{images.pop()} test images" if len(images) == 1 else "test images"
    axes.set(
        xlim=(0, 360),
        ylim=(0, 101),
        xticks=range(0, 361, 45),
        xlabel="angle by which the test images are rotated, degrees",
        ylabel="right answers, %",
        title=f"{plain_text(about, 80)}, {tested}" if about else tested,
    )
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    return figure
