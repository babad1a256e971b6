"""``blur_pool2d``: anti-aliased pooling on a grid that is centred on the image.

Pooling by s keeps one sample every s pixels. Equivariance to quarter turns and reflections needs a grid
of samples that those map onto itself, so on n pixels the m samples lie at

    p_i = (n - 1) / 2 + s (i - (m - 1) / 2),        i = 0 .. m - 1

which, depending on n, is on pixels or half-way between two. One definition serves both: blur with a
sampled Gaussian, then average over a window of w pixels' length around p_i; a pixel that the window
covers by half counts by half. For s = w = 2 that is the mean of 2 pixels where n is even and the weights
(1, 2, 1) / 4 where n is odd.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._basis import check_choice
from besselnet.functional._conv import PADDING_MODES

# Per pixel of stride: stride 2 then has the 0.66 that the authors of the paper use.
SIGMA_PER_STRIDE = 0.33


def check_blur(
    stride: object, sigma: object, kernel_size: object, window: object
) -> tuple[int, float, int, int]:
    """The settings of :func:`blur_pool2d` with the defaults filled in, or a ``ValueError``."""

    def integer(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: allowed is an integer >= 1")
        return value

    steps = integer("stride", stride)
    width = SIGMA_PER_STRIDE * steps if sigma is None else sigma
    good = isinstance(width, (int, float)) and not isinstance(width, bool)
    if not good or not 0 <= width < math.inf:  # type: ignore[operator]
        raise ValueError(f"sigma={sigma!r}: allowed is a finite number >= 0 (0: no blur) or None")
    spread = float(width)  # type: ignore[arg-type]
    taps = 2 * math.ceil(3 * spread) + 1 if kernel_size is None else kernel_size
    if integer("kernel_size", taps) % 2 == 0:
        raise ValueError(f"kernel_size={kernel_size!r}: allowed is an odd integer >= 1 or None")
    return steps, spread, taps, steps if window is None else integer("window", window)  # type: ignore[return-value]


def reach_before(stride: int, kernel_size: int, window: int, ceil_mode: bool) -> int:
    """How many pixels before the image the first sample may reach, over all sizes."""
    return max(0, (kernel_size + window - 1 - (0 if ceil_mode else stride - 1)) // 2)


def blur_pool_weights(
    stride: int,
    sigma: float,
    kernel_size: int,
    window: int,
    ceil_mode: bool,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Weights of the first sample along one axis, (stride, taps).

    Row r is for sizes n with n % stride == r (``ceil_mode``: (n - 1) % stride == r). The taps count from
    ``reach_before(...)`` pixels before the image. Each row adds up to 1 and is symmetric around the
    first sample; the further samples have the same weights, moved by the stride.
    """
    distance = torch.arange(kernel_size, dtype=torch.float64) - kernel_size // 2
    blur = torch.exp(-((distance / sigma) ** 2) / 2) if sigma else (distance == 0).double()
    first = (torch.arange(stride) + (0 if ceil_mode else stride - 1)) / 2  # positions, one per row
    reach = (kernel_size + window) / 2
    pixels = torch.arange(
        -reach_before(stride, kernel_size, window, ceil_mode), math.ceil(first[-1] + reach)
    )
    # Of a pixel at distance d from its middle, a window covers the share (w + 1) / 2 - d within 0 .. 1.
    apart = (pixels[:, None] - distance - first[:, None, None]).abs()
    covered = ((window + 1) / 2 - apart).clamp(0, 1) / window
    weights = covered @ (blur / blur.sum())
    return weights.to(dtype=dtype or torch.get_default_dtype(), device=device)


def blur_pool2d(
    input: Tensor,
    stride: int = 2,
    sigma: float | None = None,
    kernel_size: int | None = None,
    window: int | None = None,
    *,
    ceil_mode: bool = False,
    padding_mode: str = "replicate",
    weights: Tensor | None = None,
) -> Tensor:
    r"""Gaussian blur, then average over windows centred on a grid that is centred on the image.

    Properties (each has a test of its name):
        *quarter turns exact* and *reflections exact*: on every size, odd or even, to rounding;
        *constants kept*: a constant stays what it is, in every ``padding_mode`` but "zeros";
        *average pooling*: on sizes that the stride divides, with ``sigma=0`` it is ``F.avg_pool2d``
        of that stride.

    The paper's experiments (5 x 5 blur with sigma 0.66, zeros outside, then 2 x 2 average) are
    ``padding_mode="zeros"``, the rest left as it is, on even sizes.

    Args:
        input: (N, C, H, W) or (C, H, W), floating point.
        stride: s, pixels from sample to sample.
        sigma: of the Gaussian, in pixels; 0 for no blur; by default 0.33 s.
        kernel_size: taps of the Gaussian, odd; by default it reaches 3 sigma.
        window: length w of the averaged square in pixels; by default s. ``window=1`` takes samples of
            the blurred image (where samples fall between two pixels, their mean).
        ceil_mode: whether the output has ceil(H / s) rows, or floor(H / s).
        padding_mode: what lies outside: "replicate", "reflect", "zeros" or "circular".
        weights: ``blur_pool_weights(...)`` of these settings; built if not given.

    Returns:
        (N, C, H', W') or (C, H', W').
    """
    stride, sigma, kernel_size, window = check_blur(stride, sigma, kernel_size, window)
    check_choice("padding_mode", padding_mode, PADDING_MODES)
    if not input.is_floating_point():
        raise TypeError(f"input has dtype {input.dtype}: allowed are real floating-point types")
    if input.dim() not in (3, 4):
        raise ValueError(
            f"input has shape {tuple(input.shape)}: allowed is (N, C, H, W) or (C, H, W)"
        )
    before = reach_before(stride, kernel_size, window, ceil_mode)
    if weights is None:
        weights = blur_pool_weights(
            stride,
            sigma,
            kernel_size,
            window,
            ceil_mode,
            dtype=input.dtype,
            device=input.device,
        )
    # The padding is the same for all sizes and only the row of weights depends on the size: one graph
    # can be exported for all of them.
    after = weights.shape[1] - before - (1 if ceil_mode else stride)
    filled_from_inside = {"circular": after, "reflect": after + 1}.get(padding_mode, 1)
    smallest = max(1 if ceil_mode else stride, filled_from_inside)
    if min(input.shape[-2:]) < smallest:
        raise ValueError(
            f"input has shape {tuple(input.shape)}: allowed are at least {smallest} rows and columns "
            f"for stride={stride}, kernel_size={kernel_size}, window={window} and "
            f"padding_mode={padding_mode!r}"
        )
    pads = [before, after, before, after]
    padded = F.pad(input, pads) if padding_mode == "zeros" else F.pad(input, pads, padding_mode)
    rows, columns = (
        weights.to(input.dtype).select(0, (n - 1 if ceil_mode else n) % stride)
        for n in input.shape[-2:]
    )
    channels = input.shape[-3]
    kernel = torch.outer(rows, columns).expand(channels, 1, -1, -1).contiguous()
    return F.conv2d(padded, kernel, stride=stride, groups=channels)
