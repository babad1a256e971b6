"""The inscribed disc of an image, which every rotation keeps in view."""

import torch

from besselnet.checks import check_count, check_number


def soft_disc(
    height: int,
    width: int,
    fade: float = 2.0,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """Return weights (H, W) of the inscribed disc: 1 inside, falling to 0 over `fade` pixels at its rim.

    weight = clamp((radius - r) / fade, 0, 1), where r is the distance in pixels of a pixel from the centre of
    the image, and radius = min(H, W) / 2. `fade=0` gives a hard disc, r <= radius. Quarter turns of a square
    image, half turns and reflections leave the weights bit-identical.
    """
    if not torch.compiler.is_compiling():
        check_count("height", height)
        check_count("width", width)
        check_number("fade", fade, least=0)
    dtype = dtype or torch.get_default_dtype()
    exact = torch.promote_types(dtype, torch.float32)
    return disc_weights(torch.ones(height, width, dtype=exact, device=device), fade).to(dtype)


def disc_weights(ones: torch.Tensor, fade: float) -> torch.Tensor:
    """Return `soft_disc` in the shape of a tensor of ones (..., H, W).

    The result is at least float32: half precision would round the distances of neighbouring pixels to the
    same number. Pixel positions are cumulative sums of ones, not numbers computed from sizes, so tracers and
    exporters can follow them for every size.
    """
    rows, columns = ones.cumsum(-2), ones.cumsum(-1)
    rows = rows - (rows[..., -1:, :] + 1) / 2
    columns = columns - (columns[..., -1:] + 1) / 2
    radius = torch.minimum(rows[..., -1:, -1:], columns[..., -1:, -1:]) + 0.5
    inside = radius - (rows * rows + columns * columns).sqrt()
    return (inside / fade).clamp(0, 1) if fade else (inside >= 0).to(ones)
