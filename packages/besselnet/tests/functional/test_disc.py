"""The disc that every rotated copy of an image shares: its formula and its symmetries."""

import math

import pytest
import torch
from torch import nn

from besselnet.functional import soft_disc


@pytest.mark.parametrize("fade", [0.0, 0.5, 2.0, 30.0])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (9, 9), (28, 28), (12, 31), (31, 12)])
def test_each_weight_is_the_distance_from_the_rim(shape, fade):
    height, width = shape
    disc = soft_disc(height, width, fade, dtype=torch.float64)
    radius = min(shape) / 2
    for y in range(height):
        for x in range(width):
            r = math.hypot(y - (height - 1) / 2, x - (width - 1) / 2)
            weight = min(max((radius - r) / fade, 0), 1) if fade else float(r <= radius)
            assert disc[y, x] == pytest.approx(weight, abs=1e-12)


@pytest.mark.parametrize("fade", [0.0, 2.0, 3.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 2, 27, 28, 64, 225])
def test_quarter_turns_and_mirrors_leave_every_bit(size, dtype, fade):
    disc = soft_disc(size, size, fade, dtype=dtype)
    assert disc.dtype == dtype
    for quarters in range(4):
        turned = torch.rot90(disc, quarters)
        assert torch.equal(turned, disc)
        assert torch.equal(turned.flip(0), disc)
    tall = soft_disc(size + 3, size, fade, dtype=dtype)
    assert torch.equal(tall.flip(0), tall)
    assert torch.equal(tall.flip(1), tall)
    assert torch.equal(tall, soft_disc(size, size + 3, fade, dtype=dtype).T)


class Through(nn.Module):
    """Images seen through the disc."""

    def forward(self, x):
        return x * soft_disc(*x.shape[-2:], dtype=x.dtype, device=x.device)


def test_export_traces_it_for_any_size():
    sizes = {
        2: torch.export.Dim("height", min=4, max=64),
        3: torch.export.Dim("width", min=4, max=64),
    }
    program = torch.export.export(Through(), (torch.rand(1, 1, 9, 12),), dynamic_shapes=(sizes,))
    for shape in ((1, 1, 9, 12), (1, 1, 30, 17)):
        images = torch.rand(shape)
        torch.testing.assert_close(program.module()(images), Through()(images))


def test_compiling_breaks_no_graph():
    compiled = torch.compile(Through(), backend="eager", fullgraph=True, dynamic=True)
    images = torch.rand(2, 3, 20, 20)
    torch.testing.assert_close(compiled(images), Through()(images))


@pytest.mark.parametrize("arguments", [(0, 4), (4, -1), (4, 4, -1.0), (4, 4, math.nan), (4.5, 4)])
def test_wrong_arguments_are_named(arguments):
    with pytest.raises(ValueError, match=r"(height|width|fade)=.*: must be"):
        soft_disc(*arguments)
