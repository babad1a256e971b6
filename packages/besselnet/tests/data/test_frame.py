"""Full frames and objects on a ground are told apart, whatever the light."""

import pytest
import torch

from besselnet.data import frames_are_full, ground_colour, load_data

Y, X = torch.meshgrid(*(torch.arange(33.0) - 16,) * 2, indexing="ij")


def discs(ground: float, inside: float, count: int = 20) -> torch.Tensor:
    """A disc of random place and size in each image."""
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(count, 3, 1, 1, generator=generator)
    x, y, radius = (places * torch.tensor([8.0, 8.0, 5.0])[:, None, None]).unbind(1)
    covered = (X - x + 4).square() + (Y - y + 4).square() < (radius + 5).square()
    return torch.where(covered, inside, ground)[:, None].expand(-1, 3, -1, -1).contiguous()


def noise(count: int = 20) -> torch.Tensor:
    return torch.rand(count, 3, 33, 33, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("ground", "inside"), [(0.0, 1.0), (1.0, 0.2), (0.5, 0.55)])
def test_a_disc_on_any_ground_is_an_object_on_it(ground, inside):
    images = discs(ground, inside)
    assert not frames_are_full(images)
    torch.testing.assert_close(ground_colour(images), torch.full((3,), ground))


def test_a_texture_fills_the_frame():
    assert frames_are_full(noise())
    assert ground_colour(noise()) is None


def test_digits_lie_on_black():
    digits = load_data("mnist-mini").train.images
    assert ground_colour(digits).tolist() == [0.0]


def test_grounds_of_many_colours_are_no_common_ground():
    shades = torch.linspace(0, 0.8, 20)[:, None, None, None]
    assert frames_are_full(discs(0.0, 0.2) + shades)


@pytest.mark.parametrize("images", [discs(0.0, 1.0), noise()], ids=["discs", "noise"])
def test_contrast_turns_and_bytes_change_nothing(images):
    answer = frames_are_full(images)
    assert frames_are_full(0.4 + 0.01 * images) == answer
    assert frames_are_full(images.rot90(1, (2, 3))) == answer
    assert frames_are_full((255 * images).byte()) == answer


def test_most_images_decide():
    full, flat = noise(20), discs(0.0, 1.0, 20)
    assert not frames_are_full(torch.cat([full[:6], flat]))
    assert frames_are_full(torch.cat([full, flat[:6]]))


def test_large_and_tiny_images_are_looked_at():
    assert frames_are_full(torch.rand(600, 1, 200, 200))
    assert frames_are_full(torch.rand(3, 1, 1, 1))
    assert not frames_are_full(torch.zeros(3, 1, 8, 8))


def test_objects_as_large_as_the_frame_leave_ground_in_the_very_corners():
    large = torch.where(X.square() + Y.square() < (1.15 * 16) ** 2, 0.3, 0.0)
    images = large.expand(20, 3, -1, -1) + 0.1 * noise() * (large > 0)
    assert ground_colour(images) is None
    assert ground_colour(images, reach=1.2).tolist() == [0.0] * 3
    assert ground_colour(noise(), reach=1.2) is None
