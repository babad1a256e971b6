"""Turning images: against torch.rot90, scipy, and the identities of a linear map."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from besselnet.functional import rotate_alike, rotate_images
from besselnet.testing import plane_waves

INTERPOLATIONS = ("nearest", "bilinear", "cubic")
ORDER = {"nearest": 0, "bilinear": 1, "cubic": 3}
# How scipy and numpy call the same continuation.
MODES = {"zeros": "grid-constant", "reflect": "reflect"}
PADDING = {"zeros": "constant", "reflect": "symmetric"}
BORDERS = pytest.mark.parametrize("border", MODES)


def noise(*shape, dtype=torch.float32):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@BORDERS
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", [1, 2, 28, 29])
@pytest.mark.parametrize("quarters", [-3, -1, 0, 1, 2, 5])
def test_quarter_turns_are_rot90(interpolation, size, quarters, border):
    images = noise(3, 2, size, size, dtype=torch.float64)
    turned = rotate_images(images, 90.0 * quarters, interpolation, border)
    # float64, but the spline's coefficients are cut off where they are 1e-7 of the pixels.
    torch.testing.assert_close(turned, torch.rot90(images, quarters, (2, 3)), atol=1e-6, rtol=0)
    # In float32 a place among the (size + 24) padded pixels is rounded to about 6e-8 of that range.
    turned = rotate_images(images.float(), 90.0 * quarters, interpolation, border)
    torch.testing.assert_close(
        turned, torch.rot90(images.float(), quarters, (2, 3)), atol=3e-5, rtol=0
    )


@BORDERS
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", [28, 29])
def test_quarter_turns_of_bytes_are_exact(interpolation, size, border):
    images = (noise(4, 3, size, size) * 255).to(torch.uint8)
    angles = torch.tensor([0.0, 90.0, 180.0, -90.0])
    expected = torch.stack([torch.rot90(i, k, (1, 2)) for i, k in zip(images, (0, 1, 2, 3))])
    assert torch.equal(rotate_images(images, angles, interpolation, border), expected)


@BORDERS
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("angle", [30.0, -77.3, 160.0, 359.0])
@pytest.mark.parametrize("shape", [(28, 28), (40, 33), (3, 50), (1, 9)])
def test_any_angle_is_scipys_rotation(interpolation, angle, shape, border):
    image = noise(1, 1, *shape, dtype=torch.float64)
    # With a wide border of its own: scipy's spline filter is not exact for mirrored images of few pixels.
    wide = np.pad(image[0, 0].numpy(), 60, mode=PADDING[border])
    order = ORDER[interpolation]
    expected = ndimage.rotate(wide, angle, reshape=False, order=order, mode=MODES[border])
    expected = expected[60:-60, 60:-60]
    turned = rotate_images(image, angle, interpolation, border)[0, 0].numpy()
    # The spline's coefficients outside of an image with zeros around it are cut off at 0.27^12 = 1.4e-7.
    np.testing.assert_allclose(turned, expected, atol=1e-6)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_mirrors_show_no_colour_that_is_not_in_the_image(interpolation):
    """A rotated grey image stays grey, into its corners."""
    grey = torch.full((1, 2, 12, 17), 0.7)
    turned = rotate_images(grey, 33.0, interpolation, border="reflect")
    torch.testing.assert_close(turned, grey, atol=1e-6, rtol=0)
    assert rotate_images(grey, 33.0, interpolation).min() < 0.1


def test_cubic_loses_less_than_bilinear():
    """Twelve turns of 30 degrees come home; the blur that each leaves adds up."""
    y, x = torch.meshgrid(torch.arange(33.0) - 16, torch.arange(33.0) - 16, indexing="ij")
    disc = torch.exp(-((x**2 + y**2) / 60))
    image = (disc * torch.cos(x) * torch.cos(0.7 * y))[None, None]
    loss = {}
    for interpolation in ("bilinear", "cubic"):
        turned = image
        for _ in range(12):
            turned = rotate_images(turned, 30.0, interpolation)
        loss[interpolation] = float((turned - image).norm() / image.norm())
    assert loss["cubic"] < 0.1 < 0.5 < loss["bilinear"]


def test_each_image_has_its_angle():
    images = noise(3, 1, 9, 9)
    angles = torch.tensor([10.0, 200.0, -45.0])
    together = rotate_images(images, angles)
    alone = torch.cat([rotate_images(i[None], float(a)) for i, a in zip(images, angles)])
    torch.testing.assert_close(together, alone)


@BORDERS
def test_rotation_is_linear_and_differentiable(border):
    images = noise(2, 1, 7, 7, dtype=torch.float64).requires_grad_()
    angles = torch.tensor([33.0, 111.0])
    assert torch.autograd.gradcheck(lambda x: rotate_images(x, angles, border=border), (images,))


def test_bytes_stay_bytes_without_wrapping_around():
    image = torch.zeros(1, 1, 20, 20, dtype=torch.uint8)
    image[..., 5:15, 5:15] = 255
    turned = rotate_images(image, 20.0)
    floats = rotate_images(image.float(), 20.0)
    assert floats.max() > 255, "the spline overshoots here, so cutting is needed"
    assert torch.equal(turned, floats.round().clamp(0, 255).to(torch.uint8))


def test_no_images_are_turned_to_no_images():
    assert rotate_images(torch.zeros(0, 1, 5, 5), torch.zeros(0)).shape == (0, 1, 5, 5)


@pytest.mark.parametrize(
    ("images", "angles", "interpolation", "message"),
    [
        (torch.zeros(2, 4, 4), 0.0, "cubic", "N, C, H, W"),
        (torch.zeros(2, 1, 4, 4), torch.zeros(3), "cubic", "one per image"),
        (torch.zeros(2, 1, 4, 4), 0.0, "lanczos", "interpolation='lanczos': must be one of"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.int64), 0.0, "cubic", "floating point or uint8"),
    ],
)
def test_wrong_arguments_are_named(images, angles, interpolation, message):
    with pytest.raises(ValueError, match=message):
        rotate_images(images, angles, interpolation)


def test_an_unknown_border_is_named():
    with pytest.raises(ValueError, match="border='black': must be one of 'zeros', 'reflect'"):
        rotate_images(torch.zeros(1, 1, 4, 4), 0.0, border="black")


@pytest.mark.parametrize("quarters", [-1, 0, 1, 2])
def test_alike_quarter_turns_are_rot90(quarters):
    images = noise(2, 3, 13, 13, dtype=torch.float64)
    turned = rotate_alike(images, 90.0 * quarters)
    torch.testing.assert_close(turned, torch.rot90(images, quarters, (2, 3)), atol=1e-12, rtol=0)


@pytest.mark.parametrize("shape", [(31, 31), (24, 37)])
@pytest.mark.parametrize("angle", [45.0, -20.0, 110.0])
def test_alike_smooth_images_turn_as_by_the_spline(angle, shape):
    """Both interpolations agree on structures of twelve pixels; the borders are the same."""
    waves = plane_waves(2, channels=3, size=41, min_wavelength=12.0).turned(0)
    images = waves[:, :, : shape[0], : shape[1]].double()
    expected = rotate_images(images, angle, border="reflect")
    error = (rotate_alike(images, angle) - expected).norm() / expected.norm()
    assert error < 0.02
    assert (expected - images).norm() / images.norm() > 0.5
