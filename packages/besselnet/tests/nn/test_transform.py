"""Whole images to Fourier-Bessel coefficients and back: slow twins, and what turning does."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from scipy.special import jv
from torch import Tensor

from besselnet.core import disc_radius, interpolation_matrix, polar_rule, sampled_basis
from besselnet.core._transform import transform_rule
from besselnet.nn import FourierBesselTransform
from tolerances import FLOAT64, assert_same, relative_difference

SAMPLINGS = ["cubic", "bilinear"]


def picture(x: Tensor, y: Tensor) -> Tensor:
    """A smooth picture on the plane without symmetry, in units of the disc's radius."""
    spots = torch.exp(-((x - 0.3) ** 2 + (y + 0.2) ** 2) / 0.08)
    spots = spots + 0.7 * torch.exp(-((x + 0.4) ** 2 + (y - 0.3) ** 2) / 0.05)
    return 0.5 + spots + 0.3 * torch.sin(4 * x + 1) * torch.cos(3 * y)


def grid(size: int, sampling: str) -> tuple[Tensor, Tensor]:
    """Coordinates of the pixels: x to the right, y up."""
    axis = (torch.arange(size, dtype=torch.float64) - (size - 1) / 2) / disc_radius(size, sampling)
    return axis.expand(size, size), -axis[:, None].expand(size, size)


def turned_picture(size: int, sampling: str, angle: float = 0.0) -> Tensor:
    """The picture, turned counter-clockwise without interpolation."""
    x, y = grid(size, sampling)
    c, s = math.cos(angle), math.sin(angle)
    return picture(c * x + s * y, c * y - s * x)


def disc(size: int, sampling: str) -> Tensor:
    x, y = grid(size, sampling)
    return x**2 + y**2 <= 1 + 1e-12


def norm_error(actual: Tensor, expected: Tensor) -> float:
    return (torch.linalg.norm(actual - expected) / torch.linalg.norm(expected)).item()


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("size", [3, 8, 15])
def test_forward_is_the_dense_quadrature(size, sampling):
    """The slow twin: one mode after the other, as a sum over all nodes of the rule."""
    transform = FourierBesselTransform(size, sampling=sampling).double()
    rule = transform_rule(size, transform.modes, sampling)
    radius, centre = disc_radius(size, sampling), (size - 1) / 2
    rho, theta = np.meshgrid(rule.radii, rule.angles, indexing="ij")
    columns = centre + radius * rho * np.cos(theta)
    rows = centre - radius * rho * np.sin(theta)
    image = noise(size, size)
    down = interpolation_matrix(rows.ravel(), size, sampling)
    right = interpolation_matrix(columns.ravel(), size, sampling)
    values = np.einsum("ny,yx,nx->n", down, image.numpy(), right).reshape(rho.shape)
    expected = [
        (m.norm * jv(m.order, m.root * rho) * np.exp(-1j * m.order * theta) * values).sum(1)
        @ rule.weights
        for m in transform.modes.modes
    ]
    expected = torch.view_as_real(torch.tensor(np.array(expected)))
    assert_same(torch.view_as_real(transform(image)), expected, FLOAT64.equation)


@pytest.mark.parametrize("size", [8, 15])
def test_inverse_is_the_sum_over_modes(size):
    """The slow twin: each mode evaluated at each pixel, v and -v."""
    transform = FourierBesselTransform(size).double()
    coefficients = transform(noise(size, size))
    x, y = (c.numpy() for c in grid(size, "cubic"))
    rho, theta = np.hypot(x, y), np.arctan2(y, x)
    expected = np.zeros((size, size))
    for m, phi in zip(transform.modes.modes, coefficients.numpy()):
        term = phi * m.norm * jv(m.order, m.root * rho) * np.exp(1j * m.order * theta)
        expected += term.real * (1 if m.order == 0 else 2)
    expected *= disc(size, "cubic").numpy()
    assert_same(transform.inverse(coefficients), torch.from_numpy(expected), FLOAT64.equation)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_forward_agrees_with_the_filters_of_a_layer(sampling):
    """The same integrals by a much finer rule; what is left is the coarser rule's error."""
    transform = FourierBesselTransform(12, sampling=sampling).double()
    taps = torch.from_numpy(sampled_basis(12, transform.modes, sampling).copy())
    image = turned_picture(12, sampling)
    expected = (taps * image).sum((1, 2))
    assert norm_error(transform(image), expected) < 1e-3


@pytest.mark.parametrize("size", [28, 64, 65])
def test_round_trip(size):
    transform = FourierBesselTransform(size).double()
    image = turned_picture(size, "cubic")
    inside = disc(size, "cubic")
    back = transform.inverse(transform(image))
    assert norm_error(back * inside, image * inside) < 0.02
    assert not back[~inside].any()


def test_round_trip_gets_better_with_resolution():
    errors = []
    for size in (16, 32, 64):
        transform = FourierBesselTransform(size).double()
        image, inside = turned_picture(size, "cubic"), disc(size, "cubic")
        errors.append(norm_error(transform.inverse(transform(image)) * inside, image * inside))
    assert errors[2] < errors[1] / 2 < errors[0] / 4


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("size", [9, 16])
def test_quarter_turns_and_mirror_images_exact(size, sampling):
    transform = FourierBesselTransform(size, sampling=sampling).double()
    image = noise(2, 3, size, size)
    coefficients = transform(image)
    back = transform.inverse(coefficients)
    for turns in (1, 2, 3):
        rotated = transform.rotate(coefficients, turns * math.pi / 2)
        assert_same(transform.inverse(rotated), back.rot90(turns, (2, 3)), FLOAT64.rounding)
        forward = transform(image.rot90(turns, (2, 3)))
        assert_same(torch.view_as_real(forward), torch.view_as_real(rotated), FLOAT64.rounding)
    reflected = transform.reflect(coefficients)
    assert_same(transform.inverse(reflected), back.flip(3), FLOAT64.rounding)
    assert_same(
        torch.view_as_real(transform(image.flip(3))),
        torch.view_as_real(reflected),
        FLOAT64.rounding,
    )


@pytest.mark.parametrize("angle", [0.3, 1.0, -2.0])
def test_rotation_by_any_angle(angle):
    """Against the picture itself, turned as a formula. The bound is that of the round trip."""
    transform = FourierBesselTransform(64).double()
    rotated = transform.rotate(transform(turned_picture(64, "cubic")), angle)
    expected = turned_picture(64, "cubic", angle)
    inside = disc(64, "cubic")
    assert norm_error(transform.inverse(rotated) * inside, expected * inside) < 0.02
    # Coefficients do not suffer from the cut-off, only from the interpolation of the pixels.
    assert norm_error(transform(expected), rotated) < 1e-4


def test_rotations_add_up_and_take_one_angle_per_image():
    transform = FourierBesselTransform(12).double()
    coefficients = transform(noise(2, 3, 12, 12))
    angles = torch.tensor([[0.4], [1.9]])
    rotated = transform.rotate(coefficients, angles)
    for i in range(2):
        one = transform.rotate(transform.rotate(coefficients[i], 0.1), angles[i].item() - 0.1)
        assert_same(torch.view_as_real(rotated[i]), torch.view_as_real(one), FLOAT64.rounding)


def test_parseval():
    transform = FourierBesselTransform(64).double()
    spectrum = transform.power_spectrum(transform(turned_picture(64, "cubic")))
    rule = polar_rule(60, 120)
    x, y = (torch.from_numpy(np.outer(rule.radii, f(rule.angles))) for f in (np.cos, np.sin))
    integral = (picture(x, y).square().sum(1) * torch.from_numpy(rule.weights)).sum()
    # What lies above the cut-off is missing: the square of the round trip's error.
    assert abs(spectrum.sum() / integral - 1) < 0.02**2


def test_power_spectrum_ignores_rotation_and_reflection():
    transform = FourierBesselTransform(12).double()
    coefficients = transform(noise(2, 12, 12))
    spectrum = transform.power_spectrum(coefficients)
    assert spectrum.shape == (2, transform.modes.num_orders)
    for other in (transform.rotate(coefficients, 0.7), transform.reflect(coefficients)):
        assert_same(transform.power_spectrum(other), spectrum, FLOAT64.rounding)


def test_order_zero_is_real():
    transform = FourierBesselTransform(12)
    count = transform.modes.radial_counts[0]
    assert not transform(torch.rand(12, 12))[:count].imag.any()


def test_the_constant_has_one_coefficient():
    """The mean over the disc is the coefficient of the constant 1 / sqrt(pi)."""
    transform = FourierBesselTransform(20).double()
    coefficients = transform(torch.ones(20, 20, dtype=torch.float64))
    assert abs(coefficients[0].real.item() - math.sqrt(math.pi)) < FLOAT64.equation
    assert coefficients[1:].abs().max() < FLOAT64.equation
    back = transform.inverse(coefficients)
    assert_same(back, disc(20, "cubic").double(), FLOAT64.equation)


def test_gradients():
    transform = FourierBesselTransform(6).double()
    image = noise(2, 6, 6).requires_grad_()
    assert torch.autograd.gradcheck(transform, image)
    coefficients = transform(image).detach().requires_grad_()
    assert torch.autograd.gradcheck(transform.inverse, coefficients)
    angle = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(transform.rotate, (coefficients, angle))


def test_rotation_can_be_mapped():
    transform = FourierBesselTransform(8)
    coefficients, angles = transform(torch.rand(3, 8, 8)), torch.tensor([0.1, 2.0, -3.0])
    mapped = torch.vmap(transform.rotate)(coefficients, angles)
    assert torch.equal(mapped, transform.rotate(coefficients, angles))


def test_parts_of_a_batch_give_the_same(monkeypatch):
    transform = FourierBesselTransform(12).double()
    coefficients = transform(noise(5, 2, 12, 12))
    whole = transform.inverse(coefficients)
    monkeypatch.setattr("besselnet.nn._transform.MAX_EXPANDED", 1)
    assert_same(transform.inverse(coefficients), whole, FLOAT64.rounding)


def test_cutoff():
    soft, strong = (FourierBesselTransform(16, cutoff) for cutoff in ("soft", "strong"))
    assert len(strong.modes) < len(soft.modes)
    # More modes than pixels can tell apart are allowed; each is still the integral it should be.
    assert FourierBesselTransform(8, 2.0)(torch.rand(8, 8)).isfinite().all()


def test_dtypes():
    image = noise(2, 16, 16)
    exact = FourierBesselTransform(16).double()
    single = FourierBesselTransform(16)
    coefficients = single(image.float())
    assert coefficients.dtype == torch.complex64
    assert relative_difference(single.inverse(coefficients), exact.inverse(exact(image))) < 1e-5
    for half in (single, FourierBesselTransform(16).half()):
        assert torch.equal(half(image.half()), single(image.half().float()))
    for name, table in FourierBesselTransform(16).half().double().named_buffers():
        assert torch.equal(table, getattr(exact, name)), name


def test_copies_and_state():
    transform = FourierBesselTransform(10)
    image = torch.rand(1, 10, 10)
    assert not transform.state_dict()
    for twin in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert torch.equal(twin(image), transform(image))
    assert "modes=" in repr(transform)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"image_size": 2}, "image_size=2"),
        ({"image_size": 8.0}, "image_size=8.0"),
        ({"image_size": (8, 9)}, "image_size="),
        ({"image_size": 8, "cutoff": 0}, "cutoff=0"),
        ({"image_size": 8, "cutoff": float("nan")}, "cutoff=nan"),
        ({"image_size": 8, "sampling": "point"}, "sampling='point'"),
    ],
)
def test_bad_settings(arguments, named):
    with pytest.raises(ValueError, match=named):
        FourierBesselTransform(**arguments)


def test_bad_input():
    transform = FourierBesselTransform(8)
    coefficients = transform(torch.rand(8, 8))
    for wrong in (torch.rand(8, 9), torch.rand(8), torch.rand(1, 10, 10)):
        with pytest.raises(ValueError, match=r"\(\.\.\., 8, 8\)"):
            transform(wrong)
    for method in (transform.inverse, transform.reflect, transform.power_spectrum):
        with pytest.raises(ValueError, match=str(len(transform.modes))):
            method(coefficients[:-1])
        with pytest.raises(TypeError, match="float32"):
            method(coefficients.real)
    for angle in (math.nan, torch.tensor(math.nan), torch.tensor([0.1, math.inf])):
        with pytest.raises(ValueError, match="angle"):
            transform.rotate(coefficients.expand(2, -1), angle)
    with pytest.raises(TypeError, match="int64"):
        transform(torch.ones(8, 8, dtype=torch.int64))
    with pytest.raises(TypeError, match="double"):
        transform(torch.rand(8, 8, dtype=torch.float64))
