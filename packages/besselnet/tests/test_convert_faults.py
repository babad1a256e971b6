"""What still breaks the symmetry of a converted network: found, named, and repaired."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from besselnet.conversion import Measurement, convert_with_report
from besselnet.nn import BesselConv2d
from besselnet.testing import ROUNDING
from unet import UNet

EXACT = ROUNDING[torch.float32]


class Calls(nn.Module):
    """A convolution, and a function on its maps."""

    def __init__(self, function, parameter=None):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, padding=2)
        self.function = function
        self.values = nn.Parameter(torch.rand(parameter)) if parameter else None

    def forward(self, x):
        maps = self.conv(x)
        return self.function(maps, self.values) if self.values is not None else self.function(maps)


def after_conv(*layers):
    return nn.Sequential(nn.Conv2d(1, 4, 5, padding=2), *layers)


def uneven(layer):
    """As after training: the weights differ from position to position."""
    nn.init.uniform_(layer.weight)
    return layer


# A model, the size of its images, and the fault to be found: where, what, why, the repair.
FAULTY = [
    (after_conv(nn.Conv2d(4, 4, 3, 2, 1)), 12, ("1", "BesselConv2d", "left over by", "stride")),
    (after_conv(nn.Conv2d(4, 4, 1, 2)), 12, ("1", "Conv2d", "left over by", "stride")),
    (
        after_conv(nn.Conv2d(4, 4, 4, padding="same")),
        12,
        ("1", "BesselConv2d", "'same'", "padding"),
    ),
    (after_conv(nn.MaxPool2d(2)), 13, ("1", "MaxPool2d", "1 of 13 rows", "pool")),
    (after_conv(nn.AvgPool2d(2)), 13, ("1", "AvgPool2d", "1 of 13 rows", "pool")),
    (
        after_conv(nn.ConvTranspose2d(4, 4, 2, 2)),
        12,
        ("1", "ConvTranspose2d", "transposed", "transpose"),
    ),
    (
        after_conv(nn.Flatten(), nn.Linear(4 * 36, 3)),
        6,
        ("1", "Flatten", "6 x 6 positions", "flatten"),
    ),
    (
        after_conv(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.ReLU(), nn.Linear(36, 3)),
        12,
        ("2", "Flatten", "3 x 3 positions", "flatten"),
    ),
    (after_conv(uneven(nn.LayerNorm([4, 6, 6]))), 6, ("1", "LayerNorm", "each position", None)),
    (after_conv(nn.ZeroPad2d((1, 0, 1, 0))), 6, ("1", "ZeroPad2d", "does not rotate", None)),
    (after_conv(nn.PixelShuffle(2)), 6, ("1", "PixelShuffle", "does not rotate", None)),
    (Calls(lambda x: F.max_pool2d(x, 2)), 13, ("", "max_pool2d", "nn.MaxPool2d", None)),
    (Calls(lambda x: torch.flatten(x, 1)), 6, ("", "flatten", "x.mean((-2, -1))", None)),
    (Calls(lambda x: x.view(x.shape[0], -1)), 6, ("", "view", "6 x 6 positions", None)),
    (Calls(lambda x: F.pad(x, (1, 0, 1, 0))), 6, ("", "pad", "differently", None)),
    (Calls(lambda x: F.interpolate(x, size=8)), 6, ("", "interpolate", "'bilinear'", None)),
    (Calls(torch.add, (1, 4, 6, 6)), 6, ("", "add", "depend on the position", None)),
    (Calls(lambda x, p: x * p, (6, 6)), 6, ("", "mul", "depend on the position", None)),
    (Calls(lambda x, w: F.conv2d(x, w), (4, 4, 3, 3)), 6, ("", "conv2d", "nn.Conv2d", None)),
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(
    ("model", "size", "expected"), FAULTY, ids=[f"{f[1]}-{e[1]}" for *f, e in FAULTY]
)
def test_faults_are_found_and_repaired(model, size, expected):
    name, kind, why, repair = expected
    _, report = convert_with_report(model, image_size=size)
    (fault,) = (fault for fault in report.faults if fault.error)
    assert (fault.name, fault.kind, fault.repair) == (name, kind, repair)
    assert why in fault.why
    assert fault.why in str(report)
    assert not report.exact
    assert report.after.quarter_turns > 10 * EXACT
    if repair is not None:
        new, report = convert_with_report(model, image_size=size, repair=[repair])
        assert report.exact, str(report)
        assert report.after.quarter_turns < EXACT
        if repair != "flatten":
            images = torch.rand(2, 1, size, size)
            assert new(images).shape == model(images).shape


# Functions and layers that keep quarter turns of maps of 12 or 13 pixels and drop samples; the factor.
ALIASING = [
    (Calls(lambda x: F.max_pool2d(x, 2)), 12, "max_pool2d", 2),
    (Calls(lambda x: F.max_pool2d(x, kernel_size=3, stride=3)), 12, "max_pool2d", 3),
    (Calls(lambda x: torch.max_pool2d(x, 3, 2, 1)), 13, "max_pool2d", 2),
    (Calls(lambda x: F.avg_pool2d(x, 1, 2)), 13, "avg_pool2d", 2),
    (Calls(lambda x: F.conv2d(x, torch.eye(4)[..., None, None], stride=2)), 13, "conv2d", 2),
    (Calls(lambda x: F.interpolate(x, size=4, mode="bilinear")), 12, "interpolate", 3),
    (Calls(lambda x: x[..., ::2, ::2]), 13, "__getitem__", 2),
    (Calls(lambda x: x[:, :, ::3, ::3]), 13, "__getitem__", 3),
    (after_conv(nn.MaxPool2d(2)), 12, "MaxPool2d", 2),
    (after_conv(nn.AvgPool2d(1, 2)), 13, "AvgPool2d", 2),
    (after_conv(nn.Upsample(size=4, mode="bilinear")), 12, "Upsample", 3),
]


@pytest.mark.parametrize(("model", "size", "kind", "factor"), ALIASING)
def test_dropped_samples_are_listed_as_aliasing(model, size, kind, factor):
    _, report = convert_with_report(model, image_size=size)
    (fault,) = report.faults
    assert (fault.kind, fault.error) == (kind, 0)
    assert f"one sample in {factor} without a blur" in fault.why
    assert report.exact
    assert "aliases at other angles" in str(report)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 3, stride=1, padding=1),
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
        lambda x: F.interpolate(x, size=4, mode="bilinear", antialias=True),
        lambda x: F.interpolate(x, size=4, mode="area"),
        lambda x: x[..., 2:-2, 2:-2],
        lambda x: x[:, ::2],
    ],
)
def test_what_blurs_or_drops_nothing_is_not(function):
    _, report = convert_with_report(Calls(function), image_size=12)
    assert report.faults == ()


def test_a_unet_with_pooling_by_a_function_is_told_that_it_aliases():
    torch.manual_seed(0)
    _, report = convert_with_report(UNet(pool_by_function=True), image_size=24)
    (fault,) = report.faults
    assert (fault.name, fault.kind, fault.repair) == ("", "max_pool2d", None)
    assert "it can be repaired if it is an nn.MaxPool2d" in fault.why
    text = str(report)
    assert "aliases at other angles" in text
    assert "worse than before" not in text
    worse = dataclasses.replace(
        report, before=Measurement(1.2, 0.20), after=Measurement(1e-6, 0.32)
    )
    assert worse.worse == ["other angles"]
    assert "worse than before at other angles: fix what is listed above" in str(worse)


@pytest.mark.parametrize("size", [24, 25])
def test_no_layer_is_called_equivariant_and_listed_as_a_fault(size):
    model = after_conv(nn.Conv2d(4, 4, 1, stride=2), nn.Conv2d(4, 4, 1))
    _, report = convert_with_report(model, image_size=size)
    assert [fault.name for fault in report.faults] == ["1"]
    as_it_is = [kept.name for kept in report.kept if "already equivariant" in kept.why]
    assert as_it_is == ["2"]
    assert 'fix it with repair=["stride"]' in str(report)


def test_maps_flattened_by_a_function_are_mended_at_the_pooling_before():
    class Head(nn.Module):
        """As in VGG: pooled to a few positions, then flattened by a function."""

        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 5, padding=2)
            self.pool = nn.AdaptiveAvgPool2d(3)
            self.classify = nn.Sequential(nn.Dropout(), nn.Linear(36, 3))

        def forward(self, x):
            return self.classify(torch.flatten(self.pool(self.conv(x)), 1))

    _, report = convert_with_report(Head(), image_size=12)
    assert [fault.kind for fault in report.faults] == ["flatten"]
    new, report = convert_with_report(Head(), image_size=12, repair=["flatten"])
    assert report.exact
    assert report.after.quarter_turns < EXACT
    assert new.classify[1].in_features == 4


@pytest.mark.parametrize(
    "model",
    [
        after_conv(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.PReLU(4)),
        after_conv(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
        after_conv(nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Dropout2d()),
        Calls(lambda x: torch.cat([x, x * x.mean((2, 3), keepdim=True)], 1).amax((-2, -1))),
        Calls(lambda x: F.relu(x, inplace=True).add_(1)),
        Calls(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)),
        Calls(torch.mul, (1, 4, 1, 1)),
    ],
    ids=range(7),
)
def test_what_keeps_the_symmetry_is_no_fault(model):
    _, report = convert_with_report(model, image_size=10, symmetry="O(2)")
    assert report.faults == ()
    assert report.exact
    assert report.after.quarter_turns < EXACT
    assert report.before.quarter_turns > 10 * EXACT


def test_rearranged_maps_are_not_judged_and_it_is_said():
    model = Calls(lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2))
    _, report = convert_with_report(model, image_size=9)
    assert report.faults == ()
    assert "permute in the model rearranges the maps" in str(report)
    assert report.after.quarter_turns < EXACT


def test_several_outputs_are_measured_by_the_first():
    model = Calls(lambda x: {"out": x.mean((2, 3)), "maps": x})
    _, report = convert_with_report(model, image_size=9)
    assert report.after.quarter_turns < EXACT
    assert "the first of the outputs" in str(report)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x[..., 1:], "output of module has shape"),
        (lambda x: x.mean((2, 3)) * 0, "the same for every image"),
        (lambda x: None, "returns no tensor"),
    ],
)
def test_an_output_that_cannot_be_measured_is_noted(function, why):
    new, report = convert_with_report(Calls(function), image_size=8)
    assert isinstance(new.conv, BesselConv2d)
    assert report.before is report.after is None
    (note,) = report.notes
    assert why in note


def test_a_step_that_refuses_rotated_maps_is_noted():
    # A positive definite matrix is none after a quarter turn.
    model = Calls(lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(8)))
    _, report = convert_with_report(model, image_size=8)
    assert any("cholesky in the model cannot be run again" in note for note in report.notes)
