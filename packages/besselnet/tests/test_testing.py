"""The equivariance tools, tried on modules whose equivariance is known, and on liars."""

import doctest
import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from besselnet.nn import BesselConv2d
from besselnet.testing import (
    ANGLES,
    EquivarianceCurve,
    assert_equivariant,
    disc_window,
    equivariance_error,
    plane_waves,
    relative_spread,
    turn_images,
)
from besselnet.train import EquivarianceError
from places import DOCS
from tolerances import FLOAT64, TOLERANCES, assert_same

FLOAT32 = TOLERANCES[torch.float32]


def quarter(images, turns=1):
    return torch.rot90(images, turns, (-2, -1))


def wave_at(probe, image, channel, x, y):
    """A probe's value at a point, term by term."""
    terms = zip(probe.wave_vectors[image, channel], probe.phases[image, channel])
    total = sum(math.cos(kx * x + ky * y + phase) for (kx, ky), phase in terms)
    return total * math.sqrt(2 / probe.phases.shape[-1])


class TestPlaneWaves:
    @pytest.mark.parametrize("mirror", [False, True])
    @pytest.mark.parametrize("degrees", [0.0, 90.0, 17.0, -200.0])
    def test_turned_image_is_the_function_at_turned_points(self, degrees, mirror):
        probe = plane_waves(2, channels=2, size=5, num_waves=3, window=False)
        pixels = probe.turned(degrees, mirror=mirror)
        alpha = math.radians(degrees)
        for row in range(5):
            for column in range(5):
                x, y = column - 2, 2 - row
                # The point that the turn carries here, before mirroring left to right.
                source_x = math.cos(alpha) * x + math.sin(alpha) * y
                source_y = -math.sin(alpha) * x + math.cos(alpha) * y
                expected = wave_at(probe, 1, 0, -source_x if mirror else source_x, source_y)
                assert abs(pixels[1, 0, row, column].item() - expected) <= FLOAT64.equation

    @pytest.mark.parametrize("window", [False, True])
    @pytest.mark.parametrize("size", [1, 8, 9])
    def test_quarter_turns_and_mirroring_move_pixels(self, size, window):
        probe = plane_waves(2, size=size, window=window)
        for turns in (1, 2, 3):
            assert_same(probe.turned(90 * turns), quarter(probe.turned(), turns), FLOAT64.rounding)
        assert_same(probe.turned(mirror=True), probe.turned().flip(-1), FLOAT64.rounding)

    def test_band_limited(self):
        probe = plane_waves(4, min_wavelength=5.0)
        assert probe.wave_vectors.norm(dim=-1).max() <= 2 * math.pi / 5
        assert probe.wave_vectors.norm(dim=-1).max() > 0.9 * 2 * math.pi / 5

    def test_unit_variance(self):
        """400 independent images at one pixel: the variance has a standard error of 7%."""
        values = plane_waves(400, size=1, window=False).turned()
        assert abs(values.var().item() - 1) < 0.3

    def test_seed_decides(self):
        one, same, other = (plane_waves(2, seed=s).turned() for s in (3, 3, 4))
        assert torch.equal(one, same)
        assert not torch.equal(one, other)

    @pytest.mark.parametrize(
        "bad",
        [
            {"num_images": 0},
            {"channels": 1.5},
            {"size": -1},
            {"num_waves": True},
            {"min_wavelength": 1.9},
            {"min_wavelength": float("nan")},
            {"min_wavelength": float("inf")},
        ],
        ids=str,
    )
    def test_bad_argument(self, bad):
        ((name, value),) = bad.items()
        with pytest.raises(ValueError, match="must") as raised:
            plane_waves(**bad)
        assert f"{name}={value!r}" in str(raised.value)


class TestTurnImages:
    @pytest.mark.parametrize("size", [8, 9])
    @pytest.mark.parametrize("turns", [-5, -1, 0, 1, 2, 7])
    def test_quarter_turns_exact(self, size, turns):
        images = torch.rand(2, 3, size, size)
        assert torch.equal(turn_images(images, 90 * turns), quarter(images, turns))
        assert torch.equal(
            turn_images(images, 90 * turns, mirror=True), quarter(images.flip(-1), turns)
        )

    @pytest.mark.parametrize("mirror", [False, True])
    @pytest.mark.parametrize("degrees", [10.0, 45.0, 130.0, -77.0])
    def test_agrees_with_waves_that_turn_exactly(self, degrees, mirror):
        """A cubic spline follows waves of 8 pixels to better than 1%."""
        probe = plane_waves(4, size=41, min_wavelength=8.0)
        turned = turn_images(probe.turned(), degrees, mirror=mirror)
        assert_same(turned, probe.turned(degrees, mirror=mirror), 0.01)

    @pytest.mark.parametrize("shape", [(3, 8, 8), (1, 3, 8, 9), (0, 1, 4, 4)], ids=str)
    def test_bad_shape(self, shape):
        with pytest.raises(ValueError, match=r"images has shape .*: must be \(N, C, S, S\)"):
            turn_images(torch.rand(shape), 90)

    def test_integer_images(self):
        with pytest.raises(TypeError, match=r"images has dtype torch.uint8: must"):
            turn_images(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), 90)

    def test_bad_angle(self):
        with pytest.raises(ValueError, match=r"degrees=\(nan,\): must be finite"):
            turn_images(torch.rand(1, 1, 4, 4), float("nan"))


def test_disc_window_is_one_inside_and_zero_at_the_rim():
    window = disc_window(32)
    axis = torch.arange(32) - 15.5
    distance = torch.hypot(axis[:, None], axis[None, :])
    assert window[distance <= 12].eq(1).all()
    assert window[distance >= 16].abs().max() < 1e-15
    assert ((window >= 0) & (window <= 1)).all()
    assert torch.equal(window, quarter(window))


class Pixelwise(nn.Module):
    """Equivariant by construction: every pixel by itself."""

    def forward(self, x):
        return x.square() + 1


class Drift(nn.Module):
    """A known error: outputs grow by a tenth when the image is turned by 180 degrees or mirrored."""

    def __init__(self, reference, bias=0.0):
        super().__init__()
        self.reference = reference
        self.bias = bias

    def forward(self, x):
        changed = not torch.allclose(x, self.reference.to(x))
        return self.bias + torch.tensor([[3.0, -4.0], [-3.0, 4.0]]) * (1.1 if changed else 1.0)


class TestEquivarianceError:
    def test_pixelwise_function_is_exact_at_the_centre(self):
        curve = equivariance_error(Pixelwise(), plane_waves())
        assert curve.angles == ANGLES
        assert len(curve.errors) == 24
        assert curve.max() <= FLOAT32.rounding
        assert curve.agreement is None

    @pytest.mark.parametrize("bias", [0.0, 10.0])
    def test_known_error_of_outputs(self, bias):
        """What all images have in common counts for nothing."""
        probe = plane_waves(2, size=9)
        curve = equivariance_error(Drift(probe.turned(), bias), probe, (0, 180))
        assert curve.errors == pytest.approx((0.0, 0.1), abs=FLOAT32.rounding)
        assert curve.agreement == (1.0, 1.0)
        assert curve.max() == pytest.approx(0.1, abs=FLOAT32.rounding)
        assert curve.mean() == pytest.approx(0.05, abs=FLOAT32.rounding)
        mirrored = equivariance_error(Drift(probe.turned()), probe, (0,), mirror=True)
        assert mirrored.errors == pytest.approx((0.1,), abs=FLOAT32.rounding)

    def test_agreement_counts_changed_decisions(self):
        def left_or_right(x):
            halves = x.double().abs().sum((1, 2))
            return torch.stack([halves[:, :5].sum(1), halves[:, -5:].sum(1)], 1)

        probe = plane_waves(16, size=10)
        curve = equivariance_error(left_or_right, probe, (0, 180))
        assert curve.agreement == (1.0, 0.0)

    @pytest.mark.parametrize("region", ["centre", "disc"])
    @pytest.mark.parametrize("mirror", [False, True])
    def test_o2_layer_at_quarter_turns(self, region, mirror):
        torch.manual_seed(0)
        layer = BesselConv2d(2, 4, 5, padding=2, symmetry="O(2)", dtype=torch.float64)
        probe = plane_waves(4, channels=2, size=17)
        angles = (0, 90, 180, 270)
        curve = equivariance_error(layer, probe, angles, mirror=mirror, region=region)
        assert curve.max() <= FLOAT64.rounding

    def test_disc_catches_what_happens_off_the_centre(self):
        """Zeroing one side leaves the central pixel alone."""

        def one_sided(x):
            return x * (torch.arange(x.shape[-1]) >= x.shape[-1] // 2)

        probe = plane_waves(4, size=17)
        assert equivariance_error(one_sided, probe, (90,)).max() <= FLOAT32.rounding
        assert equivariance_error(one_sided, probe, (90,), region="disc").max() > 0.5

    def test_disc_at_any_angle_includes_interpolation_only(self):
        probe = plane_waves(4, size=41, min_wavelength=8.0)
        curve = equivariance_error(Pixelwise(), probe, region="disc")
        assert 1e-5 < curve.max() < 0.02

    def test_real_images(self):
        """Images are seen through the disc, so what lies in the corners does not matter."""
        torch.manual_seed(0)
        layer = BesselConv2d(1, 4, 7, padding=3)
        images = plane_waves(4, size=33, min_wavelength=8.0, window=False).turned()
        error = equivariance_error(layer, images).max()
        assert error < 0.02
        images[..., :4, :4] = 100.0
        assert equivariance_error(layer, images).max() == pytest.approx(error, rel=1e-3)

    def test_the_module_is_measured_in_eval_and_left_as_found(self):
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.5))
        model[2].eval()
        before = {k: v.clone() for k, v in model.state_dict().items()}
        for callable_ in (model, model.forward):
            assert equivariance_error(callable_, plane_waves(2, size=9), (0,)).max() == 0
        assert [m.training for m in model] == [True, True, False]
        assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
        assert model[0].weight.grad is None

    def test_training_mode_comes_back_after_an_error(self):
        model = nn.Conv2d(3, 1, 3)
        with pytest.raises(RuntimeError):
            equivariance_error(model, plane_waves(1, channels=2, size=9))
        assert model.training

    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            ({"angles": ()}, ValueError, r"angles=\(\): must be finite"),
            ({"angles": (0, math.inf)}, ValueError, r"angles=\(0, inf\): must be finite"),
            ({"region": "map"}, ValueError, r"region='map': must be one of 'centre', 'disc'"),
            ({"probe": "x"}, TypeError, r"probe='x': must be PlaneWaves or a tensor"),
            ({"probe": torch.rand(1, 8, 8)}, ValueError, r"probe has shape \(1, 8, 8\): must"),
            ({"module": nn.Flatten(2)}, ValueError, r"output of module has shape .*\(N, K\)"),
            ({"module": nn.AvgPool2d(2)}, ValueError, r"16 x 16 pixels: the size must be odd"),
            ({"module": lambda x: 0 * x}, ValueError, r"output is zero, or the same"),
            ({"module": lambda x: x.sum((2, 3))}, ValueError, r"at least two images"),
        ],
        ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
    )
    def test_bad_call(self, call, error, message):
        with pytest.raises(error, match=message):
            equivariance_error(**({"module": nn.Identity(), "probe": plane_waves(1)} | call))

    def test_prints_a_table(self):
        curve = EquivarianceCurve((0.0, 22.5), (0.0, 0.0125), (1.0, 0.75))
        lines = str(curve).splitlines()
        assert [line.split() for line in lines[:3]] == [
            ["angle", "error", "agreement"],
            ["0", "0.00e+00", "100.0%"],
            ["22.5", "1.25e-02", "75.0%"],
        ]
        assert lines[3] == "max 1.25e-02, mean 6.25e-03"

    def test_nan_shows(self):
        assert math.isnan(EquivarianceCurve((0.0, 1.0), (0.5, math.nan)).max())


def small_network(convolution):
    torch.manual_seed(0)
    return nn.Sequential(
        convolution(1, 8, 7, padding=3),
        nn.ReLU(),
        convolution(8, 8, 7, padding=3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def test_outputs_tell_a_bessel_network_from_a_plain_one():
    """Both average their maps; only one of them responds to the image rather than to its turn."""
    ours, plain = (
        equivariance_error(small_network(c), plane_waves()) for c in (BesselConv2d, nn.Conv2d)
    )
    assert ours.max() < 0.15
    assert plain.max() > 0.5


class TestRelativeSpread:
    def test_of_a_known_response(self):
        """Responses 1 and 3: mean 2, standard deviation 1."""
        values = iter([1.0, 3.0])
        spread = relative_spread(lambda x: torch.full((2, 5), next(values)), plane_waves(2), (0, 9))
        assert spread == pytest.approx(0.5)

    def test_of_an_invariant_function_is_zero(self):
        assert relative_spread(Pixelwise(), plane_waves()) <= FLOAT32.rounding


class TestAssertEquivariant:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    @pytest.mark.parametrize("size", [16, 17])
    def test_passes_bessel_layers(self, dtype, size):
        torch.manual_seed(0)
        layer = BesselConv2d(1, 8, 7, padding=3, dtype=dtype)
        assert_equivariant(layer, plane_waves(size=size))

    def test_passes_bessel_layers_at_any_angle_within_a_tolerance(self):
        torch.manual_seed(0)
        layer = BesselConv2d(1, 8, 7, padding=3)
        assert_equivariant(layer, plane_waves(), ANGLES, region="centre", tolerance=0.01)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_fails_a_plain_convolution(self, dtype):
        torch.manual_seed(0)
        with pytest.raises(AssertionError, match="not equivariant: rotated images differ"):
            assert_equivariant(nn.Conv2d(1, 8, 7, padding=3, dtype=dtype), plane_waves())

    def test_fails_an_asymmetric_padding(self):
        """An even kernel with "same" padding is centred half a pixel off."""
        torch.manual_seed(0)
        with pytest.raises(AssertionError, match="not equivariant"):
            assert_equivariant(BesselConv2d(1, 8, 6, padding="same"), plane_waves())

    def test_fails_a_stride_that_does_not_fit(self):
        torch.manual_seed(0)
        with pytest.raises(AssertionError, match="not equivariant"):
            assert_equivariant(BesselConv2d(1, 8, 7, stride=2, padding=3), plane_waves(size=32))

    def test_tells_so2_from_o2(self):
        torch.manual_seed(0)
        probe = plane_waves()
        assert_equivariant(BesselConv2d(1, 8, 7, symmetry="O(2)"), probe, symmetry="O(2)")
        with pytest.raises(AssertionError, match="mirrored and rotated images differ"):
            assert_equivariant(BesselConv2d(1, 8, 7, symmetry="SO(2)"), probe, symmetry="O(2)")

    def test_fails_an_error_of_rounding_in_the_wrong_dtype(self):
        """What float32 may do, float64 may not."""
        slip = torch.tensor(1e-6)

        class Slip(BesselConv2d):
            def forward(self, x):
                y = super().forward(x)
                return y + slip * y.mean() * torch.arange(y.shape[-1])

        torch.manual_seed(0)
        assert_equivariant(Slip(1, 4, 5), plane_waves())
        with pytest.raises(AssertionError, match="not equivariant"):
            assert_equivariant(Slip(1, 4, 5, dtype=torch.float64), plane_waves())

    def test_fails_nan(self):
        with pytest.raises(AssertionError, match="not equivariant"):
            assert_equivariant(lambda x: x * math.nan, plane_waves())

    def test_other_angles_need_a_tolerance(self):
        with pytest.raises(
            ValueError, match=r"tolerance=None with angles=\(0, 45\): angles must be"
        ):
            assert_equivariant(Pixelwise(), plane_waves(), (0, 45))

    def test_unknown_symmetry(self):
        with pytest.raises(ValueError, match=r"symmetry='C4': must be one of 'SO\(2\)', 'O\(2\)'"):
            assert_equivariant(Pixelwise(), plane_waves(), symmetry="C4")


class TestMetric:
    def test_accumulates_over_batches(self):
        generator = torch.Generator().manual_seed(0)
        output, turned = 1 + torch.randn(2, 6, 10, generator=generator)
        metric = EquivarianceError()
        metric.update(output[:2], turned[:2])
        metric.update(output[2:], turned[2:])
        expected = (turned - output).norm() / (output - output.mean(0)).norm()
        assert_same(metric.compute(), expected, FLOAT32.rounding)
        metric.reset()
        metric.update(output, output)
        assert metric.compute() == 0

    def test_is_the_error_of_the_curve(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        probe, metric = plane_waves(8), EquivarianceError()
        with torch.no_grad():
            metric.update(net(probe.turned().float()), net(probe.turned(30).float()))
        expected = torch.tensor(equivariance_error(net, probe, (30,)).errors[0])
        assert_same(metric.compute(), expected, FLOAT32.equation)

    def test_adds_up_over_processes(self):
        """As if the other process had seen the second half."""
        output = torch.tensor([[1.0, 2.0], [-1.0, 0.0]])
        turned = torch.tensor([[1.0, 2.5], [-1.0, 0.0]])
        whole, other = EquivarianceError(), EquivarianceError()
        whole.update(output, turned)
        other.update(output[1:], turned[1:])
        states = iter([other.squared_difference, other.squared_norm, other.output_sum, other.count])
        half = EquivarianceError(
            dist_sync_fn=lambda state, group: [state, next(states)],
            distributed_available_fn=lambda: True,
        )
        half.update(output[:1], turned[:1])
        assert_same(half.compute(), whole.compute(), FLOAT32.rounding)

    def test_takes_half_precision_and_keeps_no_graph(self):
        metric = EquivarianceError()
        output = torch.eye(2, dtype=torch.bfloat16, requires_grad=True)
        metric.update(output, output + 0.5)
        assert metric.compute().item() == pytest.approx(1.0)
        assert not metric.compute().requires_grad

    @pytest.mark.parametrize(
        ("shapes", "name"),
        [(((2, 3), (2, 4)), "output_of_rotated"), (((2, 3, 4, 4), (2, 3, 4, 4)), "output")],
    )
    def test_bad_shape(self, shapes, name):
        with pytest.raises(ValueError, match=rf"{name} has shape .*: must be \(N, K\)"):
            EquivarianceError().update(*map(torch.rand, shapes))


def test_importing_the_package_does_not_import_torchmetrics():
    code = "import sys, besselnet; sys.exit('torchmetrics' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_guide_tells_the_truth():
    """docs/equivariance.md is executed."""
    guide = DOCS / "equivariance.md"
    torch.manual_seed(0)
    results = doctest.testfile(str(guide), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert results.attempted > 5
    assert results.failed == 0
