"""``BlurPool2d``: anti-aliased pooling, equivariant to quarter turns and reflections for every size."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice
from besselnet.functional import (
    PADDING_MODES,
    blur_pool_weights,
    check_blur,
    pool_image,
    pool_margins,
)


class BlurPool2d(nn.Module):
    """Anti-aliased pooling: blur, then average over windows on a grid centred on the image.

    ``nn.AvgPool2d(2)`` and ``nn.MaxPool2d(2)`` drop the last row of an image of odd size, so they sample
    the rotated image at other positions, and their output is aliased. This layer computes
    :func:`besselnet.functional.blur_pool2d`: quarter turns and reflections of the input do the same to the
    output, up to rounding, for every size. It has no parameters and accepts any number of channels.

    Args:
        stride: distance between samples in pixels.
        sigma: standard deviation of the Gaussian in pixels; 0 for no blur. Default: 0.33 * stride.
        kernel_size: taps of the Gaussian, odd. Default: up to 3 sigma.
        window: side of the averaged square in pixels; 1 takes samples. Default: stride.
        ceil_mode: round output sizes up; otherwise down, as in ``nn.AvgPool2d``.
        padding_mode: "replicate" (keeps constants), "reflect", "zeros" or "circular".

    Shape:
        (N, C, H, W) -> (N, C, floor(H / stride), floor(W / stride)), or ceil; also without N.

    Example:
        >>> BlurPool2d()(torch.rand(2, 3, 29, 32)).shape
        torch.Size([2, 3, 14, 16])
    """

    weights: Tensor

    def __init__(
        self,
        stride: int = 2,
        sigma: float | None = None,
        kernel_size: int | None = None,
        window: int | None = None,
        *,
        ceil_mode: bool = False,
        padding_mode: str = "replicate",
    ) -> None:
        super().__init__()
        check_choice("padding_mode", padding_mode, PADDING_MODES)
        self.stride, self.sigma, self.kernel_size, self.window = check_blur(
            stride, sigma, kernel_size, window
        )
        self.ceil_mode = ceil_mode
        self.padding_mode = padding_mode
        self.margins = pool_margins(self.stride, self.kernel_size, self.window, ceil_mode)
        self.register_buffer("weights", self._build_weights(), persistent=False)

    def _build_weights(
        self, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> Tensor:
        settings = (self.stride, self.sigma, self.kernel_size, self.window, self.ceil_mode)
        return blur_pool_weights(*settings, dtype=dtype, device=device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "BlurPool2d":
        # A change of dtype must not carry the rounding of the old one: build the weights anew.
        super()._apply(fn, recurse)
        self.weights = self._build_weights(self.weights.dtype, self.weights.device)
        return self

    def forward(self, input: Tensor) -> Tensor:
        # A layer without parameters takes any dtype; float32 weights are too coarse for float64 only.
        weights = self.weights
        if input.dtype.itemsize > weights.dtype.itemsize:
            weights = self._build_weights(input.dtype, input.device)
        settings = (self.stride, self.margins, self.ceil_mode, self.padding_mode)
        average = self.sigma == 0 and self.window == self.stride
        return pool_image(input, weights, *settings, average)

    def extra_repr(self) -> str:
        parts = [
            f"stride={self.stride}, sigma={self.sigma:g}, kernel_size={self.kernel_size}",
            *([] if self.window == self.stride else [f"window={self.window}"]),
            *(["ceil_mode=True"] if self.ceil_mode else []),
            f"padding_mode={self.padding_mode!r}",
        ]
        return ", ".join(parts)
