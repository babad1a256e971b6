"""Pictures of masks are drawn for everything that can come in."""

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.drawing import draw_overlays, draw_rotated_masks, draw_values
from besselnet.masks import mask_agreement
from masks.networks import equivariant, plain


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("truth", [True, False])
def test_overlays(tmp_path, channels, truth):
    images = torch.rand(10, channels, 20, 30)
    masks = torch.randint(0, 3, (10, 20, 30), dtype=torch.uint8)
    draw_overlays(tmp_path / "a.png", images, masks.long(), masks if truth else None, "a$_")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size[0] == 1000
        # Tints of the two classes are in it.
        assert len(picture.convert("RGB").getcolors(10**6)) > 10


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_values_against_answers(tmp_path, count):
    values = torch.rand(20, count)
    draw_values(tmp_path / "c.png", values, values + 0.1, [f"_{i}$" for i in range(count)])
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.size[0] == (500 if count == 1 else 1000)
        # Points in their colour, in each of the pictures.
        pixels = np.asarray(picture.convert("RGB")).astype(int)
        blue = pixels[..., 2] - pixels[..., 0] > 80
        rows, columns = -(-min(count, 6) // 3), min(count, 3)
        for number in range(min(count, 6)):
            row, column = divmod(number, 3)
            part = np.array_split(np.array_split(blue, rows)[row], columns, axis=1)[column]
            assert part.any()


def test_curves_against_the_angle(tmp_path):
    images, masks = torch.rand(2, 1, 16, 16), torch.randint(0, 3, (2, 16, 16))
    for batches in (images, [(images, masks)]):
        results = {
            name: mask_agreement(model, batches, 8)
            for name, model in (("equivariant", equivariant()), ("plain", plain()))
        }
        draw_rotated_masks(tmp_path / "b.png", results)
        with Image.open(tmp_path / "b.png") as picture:
            assert picture.size == (1000, 450)
