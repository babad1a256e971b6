"""Answers of a network for rotated images."""

import pytest
import torch
from torch import nn

from besselnet.data import ImageSet
from besselnet_lab.study.rotation import rotation_agreement


class Spot(nn.Module):
    """Class 1 for images that are bright at one pixel."""

    def __init__(self, row: int, column: int) -> None:
        super().__init__()
        self.row, self.column = row, column

    def forward(self, images):
        bright = images[:, 0, self.row, self.column] - 0.5
        return torch.stack([-bright, bright], 1)


def white(count: int, size: int = 17) -> ImageSet:
    images = torch.full((count, 1, size, size), 255, dtype=torch.uint8)
    return ImageSet(images, torch.zeros(count, dtype=torch.int64), ("dark", "bright"))


def test_a_network_that_looks_at_the_centre_agrees_with_itself():
    found = rotation_agreement(Spot(8, 8), white(3))
    assert [found[k] for k in ("black_corners", "reflected_borders", "quarter_turns")] == [1, 1, 1]
    assert found["images"] == 3


def test_a_network_that_looks_at_a_corner_sees_black_ones():
    found = rotation_agreement(Spot(0, 0), white(3))
    # Of eleven angles the three quarter turns leave the corner white.
    assert found["black_corners"] == pytest.approx(3 / 11, abs=1e-4)
    assert found["reflected_borders"] == found["quarter_turns"] == 1


def test_at_most_500_images_are_rotated():
    assert rotation_agreement(Spot(1, 1), white(501, size=4))["images"] == 500
