"""One value of a feature map, step by step (Equation 5.6 of the paper)."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import NDArray
from torch import Tensor

from besselnet.core import Sampling, disc_radius
from besselnet.drawing import GREY, LINES, SEQUENTIAL, SMALL, new_figure, show
from besselnet.nn import BesselConv2d

__all__ = ["ResponseSteps", "draw_response", "response_steps"]

SAMPLING: Sampling = "bilinear"


@dataclass(frozen=True)
class ResponseSteps:
    """Steps from an image to the response at one pixel. Tables are (orders, radial indices)."""

    picture: Tensor
    pixel: tuple[int, int]
    """Row and column."""
    radius: float
    """Radius of the disc in pixels."""
    patch: Tensor
    coefficients: NDArray[np.complex128]
    weights: NDArray[np.complex128]
    sizes: NDArray[np.float64]
    """For each order |sum_j conj(weight) coefficient|."""
    turned_sizes: NDArray[np.float64]
    """The same for the patch rotated by 90 degrees."""
    feature_map: Tensor

    @property
    def response(self) -> float:
        """Root of the summed squares: the value of the feature map at the pixel."""
        return float(np.linalg.norm(self.sizes))


def busiest_pixel(picture: Tensor, kernel_size: int) -> tuple[int, int]:
    """Row and column where the picture varies most within a kernel that lies inside it."""
    patches = picture.unfold(0, kernel_size, 1).unfold(1, kernel_size, 1)
    place = int(patches.flatten(2).std(2).argmax())
    reach, width = kernel_size // 2, patches.shape[1]
    return place // width + reach, place % width + reach


@torch.no_grad()
def response_steps(picture: Tensor, kernel_size: int = 9, seed: int = 0) -> ResponseSteps:
    """Compute the output of an untrained layer at the pixel around which the image varies most."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = BesselConv2d(
            1,
            1,
            kernel_size,
            padding=kernel_size // 2,
            bias=False,
            dtype=torch.float64,
            response="amplitude",
            sampling=SAMPLING,
        )
    pixel = busiest_pixel(picture, kernel_size)
    row, column, reach = *pixel, kernel_size // 2
    patch = picture.double()[row - reach : row + reach + 1, column - reach : column + reach + 1]
    weights = _complex_table(layer, layer.weight[0, 0])
    upright, turned = (_coefficients(layer, p) for p in (patch, torch.rot90(patch)))
    return ResponseSteps(
        picture=picture,
        pixel=pixel,
        radius=disc_radius(kernel_size, SAMPLING),
        patch=patch,
        coefficients=upright,
        weights=weights,
        sizes=_sizes(weights, upright),
        turned_sizes=_sizes(weights, turned),
        feature_map=layer(picture.double()[None, None])[0, 0],
    )


def _coefficients(layer: BesselConv2d, patch: Tensor) -> NDArray[np.complex128]:
    return _complex_table(layer, torch.einsum("nyx,yx->n", layer.tables[0], patch))


def _sizes(
    weights: NDArray[np.complex128], coefficients: NDArray[np.complex128]
) -> NDArray[np.float64]:
    return np.asarray(np.abs(np.nansum(weights.conj() * coefficients, axis=1)))


def _complex_table(layer: BesselConv2d, numbers: Tensor) -> NDArray[np.complex128]:
    """Cosines and sines of every order as complex numbers; not-a-number where there is no mode."""
    counts = layer.spec.radial_counts
    table = np.full((len(counts), max(counts)), complex(np.nan, np.nan))
    for v, (cosines, sines) in enumerate(layer.spec.order_slices):
        table[v, : counts[v]] = numbers[cosines].numpy()
        if v:
            table[v, : counts[v]] += 1j * numbers[sines].numpy()
    return table


def draw_response(steps: ResponseSteps) -> Figure:
    """Draw six panels, from left to right and top to bottom."""
    figure = new_figure(5.8)
    figure.suptitle("One number of a feature map, step by step")
    (image, patch, coefficients), (weights, bars, result) = figure.subplots(2, 3)
    row, column = steps.pixel
    show(image, steps.picture)
    image.set_title("1. a disc around a pixel")
    show(patch, steps.patch, cmap=GREY, low=steps.patch.min().item(), high=steps.patch.max().item())
    patch.set_title("2. what the kernel sees")
    middle = (len(steps.patch) - 1) / 2
    for axes, centre in ((image, (column, row)), (patch, (middle, middle))):
        axes.add_patch(
            Circle(centre, steps.radius, fill=False, edgecolor=LINES[2].color, linewidth=2)
        )
    for axes, table, title in (
        (coefficients, steps.coefficients, "3. its coefficients (sizes)"),
        (weights, steps.weights, "4. the weights (sizes)"),
    ):
        sizes = np.abs(table)
        show(axes, sizes, cmap=SEQUENTIAL, high=float(np.nanmax(sizes)))
        axes.set_xticks(range(table.shape[1]))
        axes.set_yticks(range(table.shape[0]))
        axes.set(xlabel="radial index j", ylabel="order v", title=title)
    places = np.arange(len(steps.sizes))
    for shift, values, label, colour in (
        (-0.2, steps.sizes, "image upright", LINES[1].color),
        (0.2, steps.turned_sizes, "rotated by 90°", LINES[2].color),
    ):
        bars.bar(places + shift, values, width=0.4, label=label, color=colour)
    bars.set(xticks=places, xlabel="order v", title="5. multiply, add over j (sizes)")
    bars.set_ylim(0, 1.35 * max(steps.sizes.max(), steps.turned_sizes.max()))
    bars.legend(fontsize=SMALL, loc="upper right")
    show(result, steps.feature_map, cmap=SEQUENTIAL, high=steps.feature_map.max().item())
    result.plot(column, row, "o", markersize=9, color=LINES[4].color, fillstyle="none", mew=2)
    result.set_title("6. root of summed squares")
    for axes in (image, patch, coefficients, weights, bars, result):
        axes.title.set_fontsize("medium")
    return figure
