"""The part of an image that a rotation keeps in view."""

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
    """Weights (H, W) of the inscribed disc: 1 inside, falling to 0 over `fade` pixels at its rim.

    weight = clamp((radius - r) / fade, 0, 1), with r the distance in pixels between the centre of a pixel
    and that of the image, and radius = min(H, W) / 2. `fade=0` gives a hard disc, r <= radius. Quarter turns
    of a square image, half turns and mirror images leave the weights unchanged, bit for bit.
    """
    if not torch.compiler.is_compiling():
        check_count("height", height)
        check_count("width", width)
        check_number("fade", fade, least=0)
    dtype = dtype or torch.get_default_dtype()
    # Half precision would round the distances of neighbouring pixels to the same number.
    exact = torch.promote_types(dtype, torch.float32)
    rows = torch.arange(height, dtype=exact, device=device) - (height - 1) / 2
    columns = torch.arange(width, dtype=exact, device=device) - (width - 1) / 2
    inside = min(height, width) / 2 - (rows.square()[:, None] + columns.square()).sqrt()
    weights = (inside / fade).clamp(0, 1) if fade else inside >= 0
    return weights.to(dtype)
