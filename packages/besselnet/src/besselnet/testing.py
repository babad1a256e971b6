"""Measure the equivariance of a module: probe images that rotate exactly, error measures, an assertion.

Angles are in degrees, counter-clockwise as seen on the screen, like ``torch.rot90``. A *mirrored* image
is first flipped left to right and then rotated. No gradient is recorded. Modules are measured in eval mode,
and their mode is restored afterwards.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_count, check_number
from besselnet.functional import SYMMETRIES, Symmetry, rotate_images
from besselnet.nn import evaluating

__all__ = [
    "ANGLES",
    "QUARTER_TURNS",
    "EquivarianceCurve",
    "PlaneWaves",
    "Region",
    "assert_equivariant",
    "disc_window",
    "equivariance_error",
    "plane_waves",
    "relative_spread",
    "turn_images",
]

Region = Literal["centre", "disc"]
REGIONS: tuple[str, ...] = get_args(Region)

ANGLES = tuple(15.0 * i for i in range(24))
QUARTER_TURNS = (0.0, 90.0, 180.0, 270.0)

# Beyond this share of the inscribed disc's radius probes fade out and feature maps are not compared:
# there a rotated image reads what lies outside the frame.
INNER_SHARE = 0.75

# Quarter turns permute pixels, so all that remains is rounding, in sums of some thousand terms.
ROUNDING = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 5e-2,
    torch.bfloat16: 5e-2,
}


def disc_window(size: int) -> Tensor:
    """Return a round window (size, size), float64: 1 in the inner three quarters of the radius, 0 at the rim.

    It is the same for an image and its rotated copy, and hides the corners that a rotation moves out of the
    frame. It falls smoothly (as a squared cosine), so it adds no edge.
    """
    check_count("size", size)
    share = _distance_from_centre(size) / (size / 2)
    fall = ((share - INNER_SHARE) / (1 - INNER_SHARE)).clamp(0, 1)
    return torch.cos(fall * (math.pi / 2)).square()


def turn_images(images: Tensor, degrees: float, *, mirror: bool = False) -> Tensor:
    """Rotate square images or feature maps (N, C, S, S); with ``mirror``, mirror them first.

    Quarter turns only move pixels and are exact. The rest of an angle is interpolated by a cubic spline,
    with zeros outside the frame.
    """
    check_square("images", images)
    check_angles("degrees", (degrees,))
    quarters = round(degrees / 90)
    rest = degrees - 90 * quarters
    turned = torch.rot90(images.flip(-1) if mirror else images, quarters % 4, (-2, -1))
    return rotate_images(turned, rest, interpolation="cubic") if rest else turned


@dataclass(frozen=True, eq=False)
class PlaneWaves:
    """Images that are sums of plane waves, which can be rotated without interpolation.

    Create them with :func:`plane_waves`.
    """

    wave_vectors: Tensor
    """(N, C, waves, 2), radians per pixel along x (to the right) and y (up)."""
    phases: Tensor
    """(N, C, waves)."""
    size: int
    windowed: bool

    def turned(self, degrees: float = 0.0, *, mirror: bool = False) -> Tensor:
        """Return the images rotated about their centre, (N, C, S, S) float64; with ``mirror``, mirrored."""
        check_angles("degrees", (degrees,))
        kx, ky = self.wave_vectors.unbind(-1)
        if mirror:
            kx = -kx
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        kx, ky = cos * kx - sin * ky, sin * kx + cos * ky
        axis = torch.arange(self.size, dtype=torch.float64) - (self.size - 1) / 2
        # exp(i (kx x + ky y + phase)) is a product: two small tables and one matrix product.
        along_x = torch.exp(1j * kx[..., None] * axis)
        along_y = torch.exp(1j * (self.phases[..., None] - ky[..., None] * axis))
        waves = (along_y.transpose(-1, -2) @ along_x).real
        images = waves * math.sqrt(2 / self.phases.shape[-1])
        return images * disc_window(self.size) if self.windowed else images


def plane_waves(
    num_images: int = 16,
    channels: int = 1,
    size: int = 33,
    *,
    min_wavelength: float = 4.0,
    num_waves: int = 40,
    window: bool = True,
    seed: int = 0,
) -> PlaneWaves:
    """Return random band-limited probe images of unit variance.

    Args:
        num_images, channels, size: shape (num_images, channels, size, size). An odd size has a central
            pixel; 2^n + 1 keeps it through strides of 2.
        min_wavelength: shortest wavelength in pixels, at least 2 (the limit of the pixel grid). Wave vectors
            are uniform in the corresponding disc.
        num_waves: number of waves per channel.
        window: multiply by :func:`disc_window`, so that the corners have no effect. Without it, only pixels
            whose field of view is inside the frame can be compared.
        seed: random seed.

    >>> probe = plane_waves(2, channels=3, size=9)
    >>> torch.allclose(probe.turned(90), torch.rot90(probe.turned(), 1, (-2, -1)))
    True
    """
    for name, value in (
        ("num_images", num_images),
        ("channels", channels),
        ("size", size),
        ("num_waves", num_waves),
    ):
        check_count(name, value)
    check_number("min_wavelength", min_wavelength, least=2)
    generator = torch.Generator().manual_seed(seed)
    shape = (num_images, channels, num_waves)
    radius, direction, phase = torch.rand((3, *shape), generator=generator, dtype=torch.float64)
    length = radius.sqrt() * (2 * math.pi / min_wavelength)
    direction, phase = direction * (2 * math.pi), phase * (2 * math.pi)
    vectors = torch.stack([length * direction.cos(), length * direction.sin()], -1)
    return PlaneWaves(vectors, phase, size, window)


@dataclass(frozen=True)
class EquivarianceCurve:
    """Relative error at each angle; ``print`` shows a table."""

    angles: tuple[float, ...]
    errors: tuple[float, ...]
    agreement: tuple[float, ...] | None = None
    """For outputs (N, K): fraction of images whose largest output stays the same."""

    def max(self) -> float:
        return torch.tensor(self.errors, dtype=torch.float64).max().item()

    def mean(self) -> float:
        return torch.tensor(self.errors, dtype=torch.float64).mean().item()

    def __str__(self) -> str:
        head = ["angle", "error"]
        rows = [[f"{angle:g}", f"{error:.2e}"] for angle, error in zip(self.angles, self.errors)]
        if self.agreement is not None:
            head.append("agreement")
            rows = [[*row, f"{share:.1%}"] for row, share in zip(rows, self.agreement)]
        lines = ["".join(cell.rjust(11) for cell in row) for row in [head, *rows]]
        return "\n".join([*lines, f"max {self.max():.2e}, mean {self.mean():.2e}"])


@torch.no_grad()
def equivariance_error(
    module: Callable[[Tensor], Tensor],
    probe: PlaneWaves | Tensor,
    angles: Sequence[float] = ANGLES,
    *,
    mirror: bool = False,
    region: Region = "centre",
) -> EquivarianceCurve:
    r"""Return the relative error between f(g x) and g f(x), as a curve over the angles of g.

    Norms are over images, channels and compared pixels. The comparison depends on the output:

    * (N, C, H, W), feature maps: :math:`\|f(g x) - g f(x)\| / \|f(x)\|`. ``region="centre"`` compares
      the central pixel, the centre of rotation. No map is interpolated, so with a :class:`PlaneWaves`
      probe the result is the error of the module itself at any angle. Many probe images stand for the
      other positions. ``region="disc"`` compares the inner disc of whole maps, after rotating f(x). It is
      exact for quarter turns; at other angles, it includes the interpolation error of the maps.
    * (N, K), such as logits: :math:`\|f(g x) - f(x)\| / \|f(x) - \overline{f}\|` with the mean
      :math:`\overline{f}` over the images. Rotating an image should change the output much less than
      another image does. (Relative to the norm alone, even a plain network that averages its maps looks
      invariant, because most of its output is the same for all images.)

    Args:
        module: a module, or a function such as ``model.forward_features``. Images are converted to the
            dtype and device of its parameters.
        probe: plane waves, or images (N, C, S, S), which are multiplied by :func:`disc_window` and rotated
            by :func:`turn_images`. The result for images includes their interpolation error, except at
            quarter turns.
        angles: angles in degrees.
        mirror: compare with mirrored images.
        region: "centre" or "disc", see above.
    """
    check_angles("angles", angles)
    check_choice("region", region, REGIONS)
    with _measured(module, probe) as respond:
        upright = respond(0.0, False)
        norm = _response_norm(upright, region)
        if norm == 0:
            raise ValueError(
                "module: output is zero, or the same for every image; must differ between at least two "
                "images"
            )
        errors, agreement = [], []
        for angle in angles:
            response = respond(angle, mirror)
            if response.dim() == 4 and region == "disc":
                expected = turn_images(upright, angle, mirror=mirror)
            else:
                expected = upright
            difference = _compared(response, region) - _compared(expected, region)
            errors.append((difference.norm() / norm).item())
            if response.dim() == 2:
                same = response.argmax(1) == upright.argmax(1)
                agreement.append(same.double().mean().item())
    return EquivarianceCurve(
        tuple(map(float, angles)), tuple(errors), tuple(agreement) if agreement else None
    )


@torch.no_grad()
def relative_spread(
    module: Callable[[Tensor], Tensor],
    probe: PlaneWaves | Tensor,
    angles: Sequence[float] = ANGLES,
) -> float:
    """Return the standard deviation over the angles divided by the mean, averaged over images and channels.

    For feature maps, it uses the central pixel. All responses have the same weight, however weak, so this
    measure is stricter than a ratio of norms. It is intended for non-negative responses.
    """
    check_angles("angles", angles)
    with _measured(module, probe) as respond:
        responses = torch.stack([_compared(respond(a, False), "centre") for a in angles])
    mean = responses.mean(0).abs().clamp_min(torch.finfo(torch.float64).tiny)
    return (responses.std(0, correction=0) / mean).mean().item()


def assert_equivariant(
    module: Callable[[Tensor], Tensor],
    probe: PlaneWaves | Tensor,
    angles: Sequence[float] = QUARTER_TURNS,
    *,
    symmetry: Symmetry = "SO(2)",
    region: Region = "disc",
    tolerance: float | None = None,
) -> None:
    """Raise ``AssertionError`` with the error curve unless every error is within ``tolerance``.

    The default tolerance allows for rounding in the dtype of the module, which only quarter turns satisfy.
    For other angles, set a tolerance. ``symmetry="O(2)"`` also checks mirrored images.
    """
    check_choice("symmetry", symmetry, SYMMETRIES)
    check_angles("angles", angles)
    if tolerance is None:
        if any(angle % 90 for angle in angles):
            raise ValueError(
                f"tolerance=None with angles={tuple(angles)}: angles must be multiples of 90, which are "
                "exact on pixels; set a tolerance such as 0.05"
            )
        tolerance = ROUNDING[_dtype_and_device(module)[0]]
    for mirror in (False, True) if symmetry == "O(2)" else (False,):
        curve = equivariance_error(module, probe, angles, mirror=mirror, region=region)
        # Written so that NaN fails.
        if not curve.max() <= tolerance:
            kind = "mirrored and rotated" if mirror else "rotated"
            raise AssertionError(
                f"not equivariant: {kind} images differ by more than {tolerance:g}\n{curve}"
            )


@contextmanager
def _measured(
    module: Callable[[Tensor], Tensor], probe: PlaneWaves | Tensor
) -> Iterator[Callable[[float, bool], Tensor]]:
    """A function (degrees, mirror) -> response in float64, with the module in evaluation mode."""
    if isinstance(probe, Tensor):
        check_square("probe", probe)
        probe = probe * disc_window(probe.shape[-1]).to(probe)
    elif not isinstance(probe, PlaneWaves):
        raise TypeError(f"probe={probe!r}: must be PlaneWaves or a tensor (N, C, S, S)")
    dtype, device = _dtype_and_device(module)

    def respond(degrees: float, mirror: bool) -> Tensor:
        if isinstance(probe, PlaneWaves):
            images = probe.turned(degrees, mirror=mirror)
        else:
            images = turn_images(probe, degrees, mirror=mirror)
        return module(images.to(device, dtype)).to("cpu", torch.float64)

    owner = _owner(module)
    with torch.no_grad() if owner is None else evaluating(owner):
        yield respond


def _owner(module: Callable[[Tensor], Tensor]) -> nn.Module | None:
    """The module itself, or the one whose method was given."""
    owner = getattr(module, "__self__", module)
    return owner if isinstance(owner, nn.Module) else None


def _dtype_and_device(module: Callable[[Tensor], Tensor]) -> tuple[torch.dtype, torch.device]:
    owner = _owner(module)
    for parameter in owner.parameters() if owner else ():
        if parameter.is_floating_point():
            return parameter.dtype, parameter.device
    return torch.get_default_dtype(), torch.device("cpu")


def _compared(response: Tensor, region: Region) -> Tensor:
    """The part of an output that is compared."""
    if response.dim() == 2:
        return response
    check_square("output of module", response)
    size = response.shape[-1]
    if region == "disc":
        return response[..., _distance_from_centre(size) <= INNER_SHARE * size / 2]
    if size % 2 == 0:
        raise ValueError(
            f"region='centre' with feature maps of {size} x {size} pixels: the size must be odd, "
            "so that there is a central pixel; change the size of the probe or use region='disc'"
        )
    return response[..., size // 2, size // 2]


def _response_norm(response: Tensor, region: Region) -> Tensor:
    """What errors are measured against."""
    compared = _compared(response, region)
    return (compared - compared.mean(0) if response.dim() == 2 else compared).norm()


def _distance_from_centre(size: int) -> Tensor:
    axis = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    return torch.hypot(axis[:, None], axis[None, :])


def check_square(name: str, tensor: Tensor) -> None:
    """Refuse tensors that are not (N, C, S, S) in floating point."""
    if not tensor.is_floating_point():
        raise TypeError(f"{name} has dtype {tensor.dtype}: must be a real floating-point type")
    if tensor.dim() != 4 or tensor.shape[-1] != tensor.shape[-2] or 0 in tensor.shape:
        shapes = "(N, C, S, S)" if name != "output of module" else "(N, K) or (N, C, S, S)"
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: must be {shapes}")


def check_angles(name: str, angles: Sequence[float]) -> None:
    """Refuse angles that are not finite numbers, or none at all."""
    if not angles or not all(math.isfinite(angle) for angle in angles):
        raise ValueError(f"{name}={angles!r}: must be finite, in degrees")
