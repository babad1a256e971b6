"""``blur_pool2d``: anti-aliased pooling on a grid centred on the image.

Pooling with stride s keeps one sample every s pixels. For equivariance to quarter turns and reflections,
these must map the grid of samples onto itself. So on n pixels the m samples lie at

    p_i = (n - 1) / 2 + s (i - (m - 1) / 2),        i = 0 .. m - 1

Depending on n, these are pixels or midpoints of two pixels. One definition covers both: blur with a sampled
Gaussian, then average over a window of w pixels around p_i. A pixel that is half covered by the window
counts half. For s = w = 2, this is the mean of 2 pixels if n is even, and the weights (1, 2, 1) / 4 if n
is odd.
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
    """Return the settings of :func:`blur_pool2d` with defaults; raise ``ValueError`` for invalid ones."""

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
    """Return how many pixels before and after the image the samples can reach, over all sizes."""
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
    """Return the weights of the first sample along one axis, (stride, taps).

    Row r is for sizes n with n % stride == r (``ceil_mode``: (n - 1) % stride == r). The taps start
    ``pool_margins(...)[0]`` pixels before the image. Each row sums to 1 and is symmetric around the first
    sample. The other samples have the same weights, shifted by the stride.
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
    r"""Anti-aliased pooling: Gaussian blur, then average over windows on a grid centred on the image.

    Properties (each has a test of the same name):
        *quarter turns exact* and *reflections exact*: for every size, odd or even, up to rounding;
        *constants kept*: a constant image is unchanged, in every ``padding_mode`` except "zeros";
        *average pooling*: for sizes divisible by the stride, ``sigma=0`` is ``F.avg_pool2d`` with that
        stride.

    The paper's experiments (5 x 5 blur with sigma 0.66, zero padding, then 2 x 2 average) are
    ``padding_mode="zeros"`` with the other defaults, on even sizes.

    Args:
        input: (N, C, H, W) or (C, H, W), floating point.
        stride: distance s between samples in pixels.
        sigma: standard deviation of the Gaussian in pixels; 0 for no blur. Default: 0.33 s.
        kernel_size: taps of the Gaussian, odd. Default: up to 3 sigma.
        window: side w of the averaged square in pixels. Default: s. ``window=1`` samples the blurred image
            (the mean of two pixels for samples between them).
        ceil_mode: the output has ceil(H / s) rows instead of floor(H / s).
        padding_mode: "replicate", "reflect", "zeros" or "circular".
        weights: ``blur_pool_weights(...)`` of these settings. Default: built here.

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
    """Compute :func:`blur_pool2d` and check only the image, not the settings.

    ``margins`` are ``pool_margins(...)``. ``average`` means no blur and a window equal to the stride; sizes
    divisible by the stride then use a faster function.
    """
    check_images("input", input)
    after = margins[1]
    filled_from_inside = {"circular": after, "reflect": after + 1}.get(padding_mode, 1)
    smallest = max(1 if ceil_mode else stride, filled_from_inside)
    if min(input.shape[-2:]) < smallest or not input.shape[-3]:
        raise ValueError(
            f"input has shape {tuple(input.shape)}: must have channels, and at least {smallest} rows and "
            f"columns for stride={stride}, a padding of {after} pixels and padding_mode={padding_mode!r}"
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
    """Compute :func:`pool_image` without checks.

    The padding is the same for all sizes and only the row of weights depends on the size, so one graph can
    be exported for all sizes.
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
