"""Affine sampling: against scipy, and the identities of maps that follow one another."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from besselnet.functional import rotate_images, rotation_matrices, warp_images

ORDER = {"bilinear": 1, "cubic": 3}
# What scipy calls the function that is zero outside, and the one mirrored at the edge of the frame.
MODE = {"zeros": "grid-constant", "reflect": "reflect"}


def noise(*shape, dtype=torch.float64):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def square(matrices):
    """(N, 2, 3) -> (N, 3, 3)."""
    last = matrices.new_tensor([[[0, 0, 1]]]).expand(len(matrices), 1, 3)
    return torch.cat([matrices, last], dim=1)


def maps(count=3):
    """Rotation, then scale and mirror, then shift, composed."""
    angles = torch.linspace(-100, 170, count, dtype=torch.float64)
    scale = torch.diag(torch.tensor([-1 / 1.3, 1 / 1.3, 1], dtype=torch.float64))
    shift = torch.eye(3, dtype=torch.float64)
    shift[:2, 2] = torch.tensor([-2.3, 1.6])
    return (square(rotation_matrices(angles)) @ scale @ shift)[:, :2]


@pytest.mark.parametrize("border", MODE)
@pytest.mark.parametrize("interpolation", ORDER)
@pytest.mark.parametrize("shape", [(28, 28), (21, 30), (13, 12)])
def test_composed_maps_are_scipys_affine_transform(interpolation, border, shape):
    images, matrices = noise(3, 2, *shape), maps()
    found = warp_images(images, matrices, interpolation, border)
    centre = (np.array(shape) - 1) / 2
    for number, matrix in enumerate(matrices.numpy()):
        # Rows come first in scipy.
        linear, offset = matrix[::-1, 1::-1], matrix[::-1, 2]
        expected = [
            ndimage.affine_transform(
                *(channel, linear, centre + offset - linear @ centre),
                order=ORDER[interpolation],
                mode=MODE[border],
            )
            for channel in images[number].numpy()
        ]
        # The margin of 12 pixels cuts the spline's coefficients off at 1e-7.
        np.testing.assert_allclose(found[number], np.stack(expected), atol=1e-6)


@pytest.mark.parametrize("border", MODE)
@pytest.mark.parametrize("interpolation", ["nearest", *ORDER])
@pytest.mark.parametrize("size", [1, 2, 12, 13])
def test_quarter_turns_are_exact(interpolation, border, size):
    images = noise(4, 2, size, size)
    matrices = rotation_matrices(torch.tensor([0.0, 90.0, 180.0, -90.0]))
    expected = torch.stack([torch.rot90(i, k, (1, 2)) for i, k in zip(images, (0, 1, 2, 3))])
    found = warp_images(images, matrices, interpolation, border)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    eight_bits = (images * 255).to(torch.uint8)
    turned = torch.stack([torch.rot90(i, k, (1, 2)) for i, k in zip(eight_bits, (0, 1, 2, 3))])
    assert torch.equal(warp_images(eight_bits, matrices, interpolation, border), turned)


@pytest.mark.parametrize("interpolation", ["nearest", *ORDER])
def test_rotations_are_those_of_rotate_images(interpolation):
    images, angles = noise(3, 2, 20, 17), torch.tensor([10.0, 77.0, -160.0])
    found = warp_images(images, rotation_matrices(angles), interpolation)
    assert torch.equal(found, rotate_images(images, angles, interpolation))


@pytest.mark.parametrize("interpolation", ["nearest", *ORDER])
def test_a_uniform_image_stays_uniform_with_reflected_borders(interpolation):
    found = warp_images(torch.full((3, 1, 9, 9), 0.7), maps(), interpolation, "reflect")
    torch.testing.assert_close(found, torch.full_like(found, 0.7))


@pytest.mark.parametrize("border", MODE)
def test_gradients_flow_to_the_pixels(border):
    images = noise(1, 1, 4, 4).requires_grad_()
    matrices = maps(1)
    assert torch.autograd.gradcheck(lambda x: warp_images(x, matrices, "cubic", border), images)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": torch.zeros(2, 8, 8)}, "images have shape"),
        ({"images": torch.zeros(2, 1, 8, 8, dtype=torch.int64)}, "images have dtype"),
        ({"matrices": torch.zeros(1, 2, 3)}, r"must be \(2, 2, 3\)"),
        ({"interpolation": "lanczos"}, "interpolation='lanczos'"),
        ({"border": "wrap"}, "border='wrap'"),
    ],
)
def test_wrong_arguments_are_named(changes, message):
    given = {"images": torch.zeros(2, 1, 8, 8), "matrices": torch.zeros(2, 2, 3)}
    with pytest.raises(ValueError, match=message):
        warp_images(**{**given, **changes})


@pytest.mark.parametrize("border", MODE)
@pytest.mark.parametrize("interpolation", ["nearest", *ORDER])
def test_displacements_are_added_to_the_places_that_are_read(interpolation, border):
    images, matrices = noise(3, 2, 12, 15), maps()
    moved = torch.tensor([1.25, -2.5], dtype=torch.float64)
    shifted = matrices.clone()
    shifted[:, :, 2] += moved
    everywhere = moved[:, None, None].expand(3, 2, 12, 15)
    torch.testing.assert_close(
        warp_images(images, matrices, interpolation, border, everywhere),
        warp_images(images, shifted, interpolation, border),
    )
    with pytest.raises(ValueError, match="displacements"):
        warp_images(images, matrices, displacements=everywhere[:, :1])
