"""Pad images."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def by_convolution(pads: Sequence[int], mode: str) -> bool:
    """Return whether a convolution can pad by (left, right, top, bottom) itself, without a copy."""
    left, right, top, bottom = pads
    return mode == "zeros" and left == right >= 0 and top == bottom >= 0


def pad_image(input: Tensor, pads: Sequence[int], mode: str) -> Tensor:
    """Pad (..., H, W) by (left, right, top, bottom) in the given mode; negative amounts crop."""
    grow = [max(p, 0) for p in pads]
    if any(grow):
        if mode == "circular" or (mode == "replicate" and _compiling()):
            # What F.pad does for these has a graph that takes no single image, and no compiled backward.
            input = _joined(input, grow, mode)
        else:
            input = F.pad(input, grow) if mode == "zeros" else F.pad(input, grow, mode=mode)
    return input if min(pads) >= 0 else F.pad(input, [min(p, 0) for p in pads])


def _compiling() -> bool:
    exporting = getattr(torch.compiler, "is_exporting", lambda: False)
    return torch.compiler.is_compiling() and not exporting()


def _joined(input: Tensor, pads: Sequence[int], mode: str) -> Tensor:
    """Borders and image put together."""
    for dim, (before, after) in ((-1, pads[:2]), (-2, pads[2:])):
        parts = [input]
        if before:
            parts.insert(0, _border(input, dim, before, mode, -before if mode == "circular" else 0))
        if after:
            parts.append(_border(input, dim, after, mode, 0 if mode == "circular" else -1))
        input = torch.cat(parts, dim)
    return input


def _border(input: Tensor, dim: int, count: int, mode: str, start: int) -> Tensor:
    if mode == "circular":
        return input.narrow(dim, start, count)
    return input.narrow(dim, start, 1).repeat_interleave(count, dim)
