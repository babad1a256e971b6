"""Tiles against the whole image, and what they cost."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet.masks import (
    count_tiles,
    iter_tiles,
    predict_tiles,
    probabilities_of,
    receptive_field,
)
from besselnet.models import create_model
from masks.networks import equivariant

# As documented: tiles and the whole image differ by less.
BOUND = 1e-4


class Padded(nn.Module):
    """A network for sizes that are multiples of four, on any size: as much is added on both sides."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        down, across = -height % 4, -width % 4
        pads = (across // 2, across - across // 2, down // 2, down - down // 2)
        logits: Tensor = self.inner(F.pad(images, pads))
        return logits[..., pads[2] : pads[2] + height, pads[0] : pads[0] + width]


def random_image(height, width, channels=1):
    return np.random.default_rng(0).random((channels, height, width), np.float32)


@pytest.mark.parametrize("size", [(300, 332), (301, 339), (120, 402), (222, 257)])
def test_tiles_give_what_the_whole_image_gives(size):
    forward = probabilities_of(Padded(equivariant()))
    margin = receptive_field(forward, 1, stride=4, most=64)
    image = random_image(*size)
    whole = forward(image)
    how = {"tile": 128, "margin": margin, "stride": 4}
    assert count_tiles(size, **how) > 2
    tiles = predict_tiles(forward, image, **how)
    assert np.abs(tiles - whole).max() < BOUND
    # The probabilities are not so flat that anything would do.
    assert whole.max(0).min() < 0.6
    assert whole.std() > 0.1


def test_tiles_of_a_trained_unet_give_what_the_whole_image_gives():
    torch.manual_seed(0)
    shape = {"in_channels": 1, "num_classes": 2, "image_size": 64}
    model = create_model("besselnet_unet", width=0.25, **shape)
    images = torch.from_numpy(np.stack([random_image(64, 64)] * 4))
    masks = (F.avg_pool2d(images, 7, 1, 3) > 0.5).long()[:, 0]
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(images), masks).backward()
        optimizer.step()
    forward = probabilities_of(model)
    margin = receptive_field(forward, 1, most=192)
    image = random_image(551, 530)
    whole = forward(image)
    tiles = predict_tiles(forward, image, tile=480, margin=margin)
    assert np.abs(tiles - whole).max() < BOUND
    assert whole.std() > 0.1


def test_without_context_they_do_not():
    forward = probabilities_of(equivariant())
    image = random_image(300, 300)
    tiles = predict_tiles(forward, image, tile=128, margin=0, stride=4)
    assert np.abs(tiles - forward(image)).max() > 100 * BOUND


def test_tiles_off_the_grid_of_the_pooling_do_not():
    forward = probabilities_of(Padded(equivariant()))
    image = random_image(302, 302)
    tiles = predict_tiles(forward, image, tile=126, margin=32, stride=1)
    assert np.abs(tiles - forward(image)).max() > 100 * BOUND
    assert receptive_field(forward, 1, stride=2, most=64) is None


def test_the_receptive_field_of_one_convolution_is_its_radius():
    torch.manual_seed(0)
    seen = [
        receptive_field(
            probabilities_of(nn.Conv2d(2, 3, 2 * radius + 1, padding=radius)), 2, stride=1, most=8
        )
        for radius in (0, 1, 3)
    ]
    assert seen == [0, 1, 3]


def test_a_network_that_sees_everything_has_no_receptive_field():
    class Whole(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            mean = images.mean((2, 3), keepdim=True)
            return torch.cat([images - mean, mean - images], 1) * 10

    assert receptive_field(probabilities_of(Whole()), 1) is None


@pytest.mark.parametrize("size", [(40, 50), (64, 200), (311, 97), (500, 500)])
def test_parts_cover_the_image_once(size):
    covered = np.zeros(size, int)
    image = random_image(*size)
    how = {"tile": 64, "margin": 8, "blend": 4, "stride": 8}
    parts = list(iter_tiles(lambda tile: tile, image, **how))
    for rows, columns, part in parts:
        covered[rows, columns] += 1
        # Blending tiles that agree changes nothing.
        np.testing.assert_allclose(part, image[:, rows, columns], atol=1e-6)
    assert (covered == 1).all()
    assert len(parts) == count_tiles(size, **how)


def test_the_seam_rises_smoothly_and_is_symmetric():
    """Tiles that say their number: where two meet, their shares add up to one."""
    numbers = iter(range(9))
    (found,) = predict_tiles(
        lambda tile: np.full_like(tile, next(numbers)), random_image(40, 160), tile=128, margin=16
    )
    seam = found[0]
    assert seam[0] == 0
    assert seam[-1] == 1
    steps = np.diff(seam)
    assert (steps >= 0).all()
    assert 0 < steps.max() < 0.12
    np.testing.assert_allclose(steps, steps[::-1], atol=1e-6)


def peak_of(size):
    """Bytes at the worst moment of a prediction for an image that takes none itself."""
    image = np.broadcast_to(np.float32(0.5), (1, size, size))
    tracemalloc.start()
    for _ in iter_tiles(lambda tile: np.concatenate([tile, 1 - tile]), image, margin=64):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_image():
    """A few tiles and the rows of one seam; the prediction itself would take 128 MB."""
    for size in (2000, 4000):
        assert peak_of(size) < 4 * 2 * 512**2 * 4 + 2 * 16 * size * 4


def test_a_given_array_is_filled(tmp_path):
    image = random_image(100, 100)
    file = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.float32, (1, 100, 100))
    how = {"tile": 64, "margin": 4, "stride": 4}
    assert predict_tiles(lambda tile: tile, image, out=file, **how) is file
    np.testing.assert_allclose(file, image, atol=1e-6)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"tile": 100}, "tile=100 with margin=96"),
        ({"tile": 0}, "tile=0"),
        ({"margin": -1}, "margin=-1"),
        ({"blend": 0}, "blend=0"),
    ],
)
def test_unfit_tiles_are_named(how, message):
    with pytest.raises(ValueError, match=message):
        next(iter_tiles(lambda tile: tile, random_image(600, 600), **how))


def test_a_network_for_labels_is_refused():
    labels = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    with pytest.raises(ValueError, match="must be logits for every pixel"):
        probabilities_of(labels)(random_image(8, 8))
