"""``FourierBesselTransform``: Fourier-Bessel coefficients of whole images, and the inverse."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from besselnet.checks import check_choice, check_count, check_cutoff, check_number
from besselnet.core import Sampling, analysis_tables, kernel_modes, synthesis_tables

# The inverse expands every order on the pixels of a quarter; images go through it in parts that keep
# this below so many complex numbers.
MAX_EXPANDED = 2**24
# The tables of so many pixels take some gigabytes.
LARGEST_IMAGE = 1024


class FourierBesselTransform(nn.Module):
    r"""Fourier-Bessel transform of whole images; rotating an image changes only phases.

    On the unit disc, which stands for the disc inscribed in the image,

    .. math:: \Psi(\rho, \theta) = \sum_{\nu, j} \varphi_{\nu,j} N_{\nu,j} J_\nu(k_{\nu,j} \rho)
              e^{i \nu \theta}

    with the :math:`\varphi_{\nu,j}` of Equation 4.3. Images are real, so only :math:`\nu \ge 0` is stored:
    :math:`\varphi_{-\nu,j} = (-1)^\nu \varphi^*_{\nu,j}`. The coefficients have the order of
    ``modes.modes``: by angular order, then by radial index.

    Properties (each has a test of the same name):
        *round trip*: the inverse recovers a smooth image within 2% inside the disc, and zero outside;
        *rotation*, *reflection*: applied to the coefficients, they act like those of the image: exact for
        quarter turns and reflections, and as accurate as interpolation for other angles;
        *Parseval*: the power spectrum sums to the integral of the squared image over the disc.

    Time for one image of n x n pixels and memory of the tables are O(n^3): 3 MB for 64 pixels, 80 MB for
    256 (float32).

    Args:
        image_size: side n of the square images, at most 1024.
        cutoff: frequency limit: "soft" (the pixel grid), "strong" (half of it) or a fraction of pi n / 2, at
            most 4.
        sampling: interpolation between pixels: "cubic" (on the disc of diameter n - 2) or "bilinear" (on
            the disc of diameter n - 1).

    Shape:
        images (..., n, n), coefficients (..., number of modes), complex. Half precision is computed
        in float32.

    Example:
        >>> transform = FourierBesselTransform(28)
        >>> coefficients = transform(torch.rand(5, 1, 28, 28))
        >>> rotated = transform.inverse(transform.rotate(coefficients, torch.pi / 3))
        >>> coefficients.shape, rotated.shape
        (torch.Size([5, 1, 258]), torch.Size([5, 1, 28, 28]))
    """

    orders: Tensor
    corner: Tensor
    row_weights: Tensor
    column_weights: Tensor
    radii_weights: Tensor
    first_phase: Tensor
    radial: Tensor
    to_pixel_radii: Tensor
    pixel_radius: Tensor
    angular: Tensor
    position: Tensor

    def __init__(
        self, image_size: int, cutoff: str | float = "soft", sampling: Sampling = "cubic"
    ) -> None:
        super().__init__()
        check_count("image_size", image_size, 3, LARGEST_IMAGE)
        check_choice("sampling", sampling, ("cubic", "bilinear"))
        self.image_size = image_size
        self.cutoff = cutoff
        self.sampling = sampling
        self.modes = kernel_modes(image_size, check_cutoff(cutoff))
        self._set_tables(torch.get_default_dtype(), None)

    def _set_tables(self, dtype: torch.dtype, device: torch.device | None) -> None:
        settings = (self.image_size, self.modes, self.sampling)
        analysis, synthesis = analysis_tables(*settings), synthesis_tables(*settings)
        self.margin = analysis.margin
        tables = {name: t for part in (analysis, synthesis) for name, t in vars(part).items()}
        del tables["margin"]
        tables["orders"] = np.array([mode.order for mode in self.modes.modes])
        for name, table in tables.items():
            self.register_buffer(name, as_buffer(table, dtype, device), persistent=False)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "FourierBesselTransform":
        # A change of dtype must not carry the rounding of the old one: build the tables anew.
        before = self.radial.dtype
        super()._apply(fn, recurse)
        if self.radial.dtype != before:
            double = self.radial.dtype == torch.float64
            self._set_tables(torch.float64 if double else torch.float32, self.radial.device)
        return self

    def forward(self, image: Tensor) -> Tensor:
        """Return the coefficients (..., modes) of images (..., n, n)."""
        n = self.image_size
        if not image.is_floating_point():
            raise TypeError(f"image has dtype {image.dtype}: must be a real floating-point type")
        if image.dim() < 2 or image.shape[-2:] != (n, n):
            raise ValueError(f"image has shape {tuple(image.shape)}: must be (..., {n}, {n})")
        check_precision("image", image, self.radial.dtype)
        pixels = image.to(self.radial.dtype).reshape(-1, n, n)
        for dim in (-2, -1) if self.margin else ():
            pixels = extrapolate(pixels, dim)

        width = pixels.shape[-1]
        pixels = pixels.flatten(1)
        nodes = pixels.new_zeros(())
        for i, down in enumerate(self.row_weights):
            for j, right in enumerate(self.column_weights):
                read = pixels.index_select(1, self.corner + (i * width + j))
                nodes = nodes + down * right * read

        rings = nodes.unflatten(1, (len(self.radii_weights), -1)) * self.radii_weights[:, None]
        # No library of Fourier transforms takes a batch of no images, on which any function will do.
        transformed = torch.fft.rfft(rings) if len(rings) else torch.complex(rings, rings)
        orders = transformed[..., : self.modes.num_orders]
        orders = orders * torch.view_as_complex(self.first_phase)
        values = torch.view_as_real(orders).permute(2, 0, 3, 1).contiguous()  # (V, B, 2, R)
        radial = self.radial.split(self.modes.radial_counts)
        parts = torch.cat([value @ basis.T for value, basis in zip(values, radial)], -1)
        return torch.complex(parts[:, 0], parts[:, 1]).reshape(*image.shape[:-2], len(self.modes))

    def inverse(self, coefficients: Tensor) -> Tensor:
        """Return the images (..., n, n) of coefficients (..., modes), zero outside the disc."""
        self._check_coefficients(coefficients)
        flat = coefficients.reshape(-1, len(self.modes))
        at_once = max(1, MAX_EXPANDED // self.angular[..., 0].numel())
        images = torch.cat([self._synthesize(part) for part in flat.split(at_once)])
        return images.reshape(*coefficients.shape[:-1], self.image_size, self.image_size)

    def _synthesize(self, coefficients: Tensor) -> Tensor:
        parts = torch.stack([coefficients.real, coefficients.imag], 1)  # (B, 2, modes)
        counts = self.modes.radial_counts
        pairs = zip(parts.split(counts, -1), self.radial.split(counts))
        at_radii = torch.stack([part @ basis for part, basis in pairs], 1)  # (B, V, 2, R)
        at_pixels = (at_radii @ self.to_pixel_radii.T).index_select(-1, self.pixel_radius)
        terms = torch.complex(at_pixels[:, :, 0], at_pixels[:, :, 1])
        terms = terms * torch.view_as_complex(self.angular)
        # Turned by q right angles, order v is multiplied by i^{qv}: a Fourier transform over v mod 4.
        classes = torch.stack([terms[:, m::4].sum(1) for m in range(4)], 1)
        turned = torch.fft.ifft(classes, dim=1, norm="forward") if len(classes) else classes
        quarters = turned.real.flatten(1)
        outside = quarters.new_zeros(len(quarters), 1)
        return torch.cat([quarters, outside], 1).index_select(1, self.position)

    def rotate(self, coefficients: Tensor, angle: float | Tensor) -> Tensor:
        r"""Return the coefficients of the image rotated counter-clockwise: :math:`\varphi e^{-i \nu \alpha}`.

        ``angle`` is in radians: a number, or a tensor that broadcasts over the leading dimensions, such
        as (N, 1) for coefficients (N, C, modes).
        """
        self._check_coefficients(coefficients)
        if not isinstance(angle, Tensor):
            check_number("angle", angle)
        # In float64: order times angle loses digits that the phase needs.
        turn = torch.as_tensor(angle, dtype=torch.float64, device=coefficients.device)
        # A graph, or a call that is mapped, has no numbers to look at.
        mapped = torch._C._functorch.is_functorch_wrapped_tensor(turn)
        if not (torch.compiler.is_compiling() or mapped or bool(turn.isfinite().all())):
            raise ValueError(f"angle={angle}: must be finite, in radians")
        try:
            torch.broadcast_shapes(turn.shape, coefficients.shape[:-1])
        except RuntimeError:
            raise ValueError(
                f"angle has shape {tuple(turn.shape)}: must be a number, or broadcast over the leading "
                f"dimensions of coefficients {tuple(coefficients.shape)}"
            ) from None
        phase = torch.polar(torch.ones_like(turn)[..., None], -turn[..., None] * self.orders)
        return coefficients * phase.to(coefficients.dtype)

    def reflect(self, coefficients: Tensor) -> Tensor:
        r"""Return the coefficients of the left-right mirror image :math:`\Psi(\rho, \pi - \theta)`.

        :math:`\varphi_\nu \mapsto \varphi_{-\nu} = (-1)^\nu \varphi^*_\nu`.
        """
        self._check_coefficients(coefficients)
        sign = 1 - 2 * (self.orders % 2)
        return coefficients.conj() * sign

    def power_spectrum(self, coefficients: Tensor) -> Tensor:
        r"""Return the power of each angular order, (..., orders): :math:`\sum_j |\varphi_{\nu,j}|^2`.

        Orders v and -v are added. The spectrum is invariant to rotations and reflections, and sums to the
        integral of the squared image over the unit disc.
        """
        self._check_coefficients(coefficients)
        power = coefficients.real.square() + coefficients.imag.square()
        power = power * (1 + (self.orders > 0).to(power.dtype))
        spectrum = power.new_zeros(*power.shape[:-1], self.modes.num_orders)
        return spectrum.index_add(-1, self.orders, power)

    def _check_coefficients(self, coefficients: Tensor) -> None:
        if not coefficients.is_complex():
            raise TypeError(f"coefficients have dtype {coefficients.dtype}: must be a complex type")
        if coefficients.dim() < 1 or coefficients.shape[-1] != len(self.modes):
            raise ValueError(
                f"coefficients have shape {tuple(coefficients.shape)}: must be "
                f"(..., {len(self.modes)})"
            )
        check_precision("coefficients", coefficients, self.radial.dtype)

    def extra_repr(self) -> str:
        return (
            f"{self.image_size}, cutoff={self.cutoff!r}, sampling={self.sampling!r}, "
            f"modes={len(self.modes)}"
        )


def as_buffer(
    table: NDArray[np.generic], dtype: torch.dtype, device: torch.device | None
) -> Tensor:
    """Whole numbers as they are; others in ``dtype``, complex ones as pairs, which ``.to()`` can cast."""
    tensor = torch.from_numpy(np.ascontiguousarray(table))
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)


def check_precision(name: str, given: Tensor, dtype: torch.dtype) -> None:
    """Refuse float64 in a transform of float32, and complex128 likewise: digits would be lost unseen."""
    if given.dtype in (torch.float64, torch.complex128) and dtype != torch.float64:
        raise TypeError(
            f"{name} have dtype {given.dtype}: must be at most {dtype}, or call .double() on the "
            "transform"
        )


def extrapolate(image: Tensor, dim: int) -> Tensor:
    """One more pixel at both ends of an axis, on the parabola through the nearest three."""
    first, second, third = (image.narrow(dim, i, 1) for i in (0, 1, 2))
    length = image.shape[dim]
    last, before, further = (image.narrow(dim, length - i, 1) for i in (1, 2, 3))
    ends = [3 * (a - b) + c for a, b, c in ((first, second, third), (last, before, further))]
    return torch.cat([ends[0], image, ends[1]], dim)
