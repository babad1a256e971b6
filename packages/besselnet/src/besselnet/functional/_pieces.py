"""What both layouts of the factored algorithm share: how much goes through at a time, and the way back."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._orders import Geometry

# Bound on what one piece of the batch needs at a time (one image at least), for each thread.
WORKSPACE_BYTES = 4 * 2**20


def workspace() -> int:
    """Bytes that one piece of the batch may need."""
    return WORKSPACE_BYTES * torch.get_num_threads()


def pieces(batch: int, bytes_per_image: int) -> Iterator[slice]:
    """Runs of the batch that keep to the bound, one image at least."""
    size = max(1, workspace() // bytes_per_image)
    for start in range(0, batch, size):
        yield slice(start, min(start + size, batch))


def synthesise(maps: Tensor, taps: Tensor, height: int, width: int, geometry: Geometry) -> Tensor:
    """The transpose of a depthwise convolution of (n, c, height, width) with taps (c, 1, k, k).

    ``maps`` (n, c, H', W') had better lie in channels-last memory: the only depthwise convolution that
    is fast on CPUs.
    """
    g, size = geometry, taps.shape[-1]
    reach = [d * (size - 1) for d in g.dilation]
    if tuple(g.stride) == (1, 1) and all(r >= p for r, p in zip(reach, g.padding)):
        # With stride 1 it is a convolution with the filters turned by half, the faster call.
        margin = [r - p for r, p in zip(reach, g.padding)]
        return F.conv2d(maps, taps.flip(2, 3), None, 1, margin, g.dilation, len(taps))
    sizes = zip((height, width), g.padding, reach, g.stride)
    rest = [(n + 2 * p - r - 1) % s for n, p, r, s in sizes]
    return F.conv_transpose2d(maps, taps, None, g.stride, g.padding, rest, len(taps), g.dilation)
