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

from besselnet.checks import LARGEST_SIGMA, check_choice, check_count, check_images, check_number
from besselnet.functional._padding import PADDING_MODES, by_convolution, pad_image

# Per pixel of stride: stride 2 then has the 0.66 that the authors of the paper use.
SIGMA_PER_STRIDE = 0.33
# The tables grow with the product of the three: stride, taps and window.
LARGEST_STRIDE, LARGEST_TAPS = 256, 2 * math.ceil(3 * LARGEST_SIGMA) + 1


def check_blur(
    stride: object, sigma: object, kernel_size: object, window: object
) -> tuple[int, float, int, int]:
    """The settings of :func:`blur_pool2d` with the defaults filled in, or a ``ValueError``."""

    steps = check_count("stride", stride, most=LARGEST_STRIDE)
    spread = SIGMA_PER_STRIDE * steps
    if sigma is not None:
        spread = check_number("sigma", sigma, least=0, most=LARGEST_SIGMA)
    taps = 2 * math.ceil(3 * spread) + 1 if kernel_size is None else kernel_size
    if check_count("kernel_size", taps, most=LARGEST_TAPS) % 2 == 0:
        raise ValueError(f"kernel_size={kernel_size!r}: must be an odd integer >= 1 or None")
    width = steps if window is None else check_count("window", window, most=LARGEST_STRIDE)
    return steps, spread, check_count("kernel_size", taps), width


def pool_margins(stride: int, kernel_size: int, window: int, ceil_mode: bool) -> tuple[int, int]:
    """How many pixels before and behind the image the samples may reach, over all sizes."""
    late = 0 if ceil_mode else stride - 1
    before = max(0, (kernel_size + window - 1 - late) // 2)
    # Half pixels from the first one to the end of the last reading of the first sample.
    behind = math.ceil((stride - 1 + late + kernel_size + window) / 2)
    return before, behind - (1 if ceil_mode else stride)


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
    ``pool_margins(...)[0]`` pixels before the image. Each row adds up to 1 and is symmetric around the
    first sample; the further samples have the same weights, moved by the stride.
    """
    # On the CPU whatever the default device: the values decide how long the result is.
    cpu = torch.device("cpu")
    distance = torch.arange(kernel_size, dtype=torch.float64, device=cpu) - kernel_size // 2
    blur = torch.exp(-((distance / sigma) ** 2) / 2) if sigma else (distance == 0).double()
    # Positions, one per row.
    first = (torch.arange(stride, device=cpu) + (0 if ceil_mode else stride - 1)) / 2
    before, after = pool_margins(stride, kernel_size, window, ceil_mode)
    pixels = torch.arange(-before, after + (1 if ceil_mode else stride), device=cpu)
    # Of a pixel at distance d from its middle, a window covers the share (w + 1) / 2 - d within 0 .. 1.
    apart = (pixels[:, None] - distance - first[:, None, None]).abs()
    covered = ((window + 1) / 2 - apart).clamp(0, 1) / window
    weights = covered @ (blur / blur.sum())
    return weights.to(torch.empty(0, dtype=dtype, device=device))


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
    margins = pool_margins(stride, kernel_size, window, ceil_mode)
    average = sigma == 0 and window == stride
    return pool_image(input, weights, stride, margins, ceil_mode, padding_mode, average)


def pool_image(
    input: Tensor,
    weights: Tensor,
    stride: int,
    margins: tuple[int, int],
    ceil_mode: bool,
    padding_mode: str,
    average: bool,
) -> Tensor:
    """:func:`blur_pool2d` of settings that were checked before; the image alone is checked.

    ``margins`` are ``pool_margins(...)``; ``average`` says that there is no blur, and windows as long as the
    stride: sizes that it divides have a faster function.
    """
    check_images("input", input)
    after = margins[1]
    filled_from_inside = {"circular": after, "reflect": after + 1}.get(padding_mode, 1)
    smallest = max(1 if ceil_mode else stride, filled_from_inside)
    if min(input.shape[-2:]) < smallest or not input.shape[-3]:
        raise ValueError(
            f"input has shape {tuple(input.shape)}: must have channels, and at least {smallest} rows and "
            f"columns for stride={stride}, a reach of {after} pixels and padding_mode={padding_mode!r}"
        )
    if average and not any(size % stride for size in input.shape[-2:]):
        return F.avg_pool2d(input, stride)
    return pool_centred(input, weights, stride, margins, ceil_mode, padding_mode)


def pool_centred(
    input: Tensor,
    weights: Tensor,
    stride: int,
    margins: tuple[int, int],
    ceil_mode: bool,
    padding_mode: str,
) -> Tensor:
    """:func:`pool_image` without any check.

    The padding is the same for all sizes and only the row of weights depends on the size: one graph can
    be exported for all of them.
    """
    pads = margins + margins
    inside = by_convolution(pads, padding_mode)
    padded = input if inside else pad_image(input, pads, padding_mode)
    sizes = (input.shape[i] - 1 if ceil_mode else input.shape[i] for i in (-2, -1))
    rows, columns = (
        weights.select(0, size % stride if stride > 1 else 0).to(input.dtype) for size in sizes
    )
    channels = input.shape[-3]
    kernel = torch.outer(rows, columns).expand((channels, 1, -1, -1))
    return F.conv2d(padded, kernel, None, stride, margins[0] if inside else 0, groups=channels)
