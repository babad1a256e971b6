"""``Upsample2d``: upsampling, equivariant to quarter turns and reflections for every size."""

from torch import Tensor, nn

from besselnet.functional import upsample2d


class Upsample2d(nn.Module):
    """Upsample feature maps to the size of finer ones, as the counterpart of ``BlurPool2d(ceil_mode=True)``.

    ``nn.Upsample`` stretches 5 pixels to 9 in the same way as to 10, so maps of odd sizes are misaligned with
    the finer ones. This layer computes :func:`besselnet.functional.upsample2d`: quarter turns and reflections
    of both inputs do the same to the output, up to rounding, for every size. It has no parameters.

    Shape:
        coarse (N, C, h, w), fine (N, C', H, W) with h = ceil(H / 2), w = ceil(W / 2) -> (N, C, H, W)

    Example:
        >>> import torch
        >>> from besselnet.nn import BlurPool2d
        >>> fine = torch.rand(2, 3, 29, 32)
        >>> Upsample2d()(BlurPool2d(ceil_mode=True)(fine), fine).shape
        torch.Size([2, 3, 29, 32])
    """

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        return upsample2d(coarse, fine.shape[-2:])
