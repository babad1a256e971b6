"""Networks made equivariant layer by layer: ResNet-18, U-Nets, and a user's own."""

import copy
import dataclasses
import doctest
import importlib
import inspect
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import besselnet
from besselnet.conversion import convert, convert_with_report, measure
from besselnet.conversion._layers import Options
from besselnet.models import create_model
from besselnet.nn import BesselConv2d, BlurPool2d
from besselnet.testing import ROUNDING, equivariance_error, plane_waves
from places import DOCS
from unet import UNet

EXACT = ROUNDING[torch.float32]
# The report measures 8 random images; on 8 others, norms over so few may differ by so much.
OTHER_IMAGES = 1.5


def resnet(size):
    torch.manual_seed(0)
    return create_model("resnet18", in_channels=1, num_classes=2, image_size=size)


def unet(**options):
    torch.manual_seed(0)
    return UNet(**options)


def losses(model, images, targets, steps, learning_rate):
    """Training losses on one batch."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def test_it_is_in_the_front_door():
    assert besselnet.convert is convert


def test_convert_returns_a_network_and_asks_for_nothing_else():
    new = convert(unet(), image_size=16)
    assert isinstance(new, UNet)
    with_report, report = convert_with_report(unet(), image_size=16)
    assert [type(m) for m in new.modules()] == [type(m) for m in with_report.modules()]
    assert report.after is not None
    with pytest.raises(TypeError, match="simmetry"):
        convert_with_report(unet(), simmetry="O(2)")


def test_both_have_the_same_defaults_and_those_of_the_layer():
    options = inspect.signature(convert).parameters
    defaults = {field.name: getattr(Options(), field.name) for field in dataclasses.fields(Options)}
    assert {n: p.default for n, p in options.items() if n != "model"} == defaults
    layer = BesselConv2d(1, 1, 5)
    for name in ("symmetry", "cutoff", "response", "sampling"):
        assert getattr(layer, name) == defaults[name]


def test_the_guide_and_the_docstring_tell_the_truth():
    guide = DOCS / "convert.md"
    results = doctest.testfile(str(guide), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0
    example = doctest.testmod(importlib.import_module("besselnet.conversion._network"))
    assert example.attempted > 3
    assert example.failed == 0


CONVOLUTIONS = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3},
    {"kernel_size": 7, "padding": 3, "stride": 2},
    {"kernel_size": 3, "padding": 2, "dilation": 2, "bias": False},
    {"kernel_size": 5, "padding": "same", "groups": 2},
    {"kernel_size": 3, "padding": "same", "dilation": 2},
    {"kernel_size": 3, "padding": "valid"},
    {"kernel_size": 4, "stride": 2, "padding": 1},
    {"kernel_size": 4, "padding": "same"},
    {"kernel_size": 3, "padding": 1, "padding_mode": "reflect", "stride": 3},
    {"kernel_size": 1, "stride": 2},
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("repair", [(), "all"])
@pytest.mark.parametrize("settings", CONVOLUTIONS, ids=str)
def test_maps_keep_their_size(settings, repair):
    conv = nn.Conv2d(4, 6, **settings)
    new = convert(nn.Sequential(conv), repair=repair)
    for size in (12, 13, 14, 15):
        images = torch.rand(2, 4, size, size)
        assert new(images).shape == conv(images).shape


@pytest.mark.parametrize("size", range(12, 18))
@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(3, 3),
        nn.AvgPool2d(4),
        nn.AvgPool2d(3, 2, 1),
    ],
    ids=str,
)
def test_repaired_poolings_keep_the_size_and_become_exact(pool, size):
    model = nn.Sequential(nn.Conv2d(1, 3, 5, padding=2), pool)
    new, report = convert_with_report(model, image_size=size, repair=["pool"])
    images = torch.rand(2, 1, size, size)
    assert new(images).shape == model(images).shape
    assert isinstance(new[1], BlurPool2d)
    assert report.exact
    assert report.after.quarter_turns < EXACT


def test_the_report_tells_what_changed():
    model = unet()
    new, report = convert_with_report(model)
    changed = {change.name for change in report.changes}
    assert changed == {n for n, m in new.named_modules() if isinstance(m, BesselConv2d)}
    assert {kept.name for kept in report.kept} == {"up_second.1", "up_first.1", "head"}
    for change in report.changes:
        old, layer = model.get_submodule(change.name), new.get_submodule(change.name)
        assert change.parameters_before == old.weight.numel()
        assert change.parameters_after == layer.weight.numel()
        assert (layer.in_channels, layer.out_channels) == (old.in_channels, old.out_channels)
    assert report.parameters_before == sum(p.numel() for p in model.parameters())
    assert report.parameters_after == sum(p.numel() for p in new.parameters())

    text = str(report)
    assert "SO(2): 10 layers replaced" in text
    assert "Conv2d 1->6, 3x3 -> BesselConv2d 1->6, 5x5  (54 -> 36)" in text
    assert "head (Conv2d): 1 x 1: already equivariant" in text
    assert "pass image_size=..." in text
    assert report.exact is None
    assert report.after is None


def test_the_model_itself_is_left_alone():
    model = unet().train()
    model.bottom.eval()
    before = copy.deepcopy(model.state_dict())
    new = convert(model, image_size=16, repair="all")
    assert not any(isinstance(m, BesselConv2d) for m in model.modules())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert new.training
    assert new.first[0].training
    assert not new.bottom[0].training
    assert torch.equal(new.head.weight, model.head.weight)
    assert new.head.weight is not model.head.weight
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in new.modules())


def test_the_result_can_be_copied_and_pickled():
    new = convert(unet(), repair="all")
    images = torch.rand(1, 1, 16, 16)
    with torch.no_grad():
        maps = new.eval()(images)
        for again in (copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
            assert torch.equal(again(images), maps)


def test_dtype_and_single_layers():
    new, report = convert_with_report(nn.Conv2d(2, 3, 3, padding=1).double(), image_size=9)
    assert isinstance(new, BesselConv2d)
    assert new.weight.dtype == torch.float64
    assert report.after.quarter_turns < ROUNDING[torch.float64]


def test_a_layer_in_two_places_stays_one():
    conv = nn.Conv2d(4, 4, 3, padding=1)
    new, report = convert_with_report(nn.Sequential(conv, nn.ReLU(), conv))
    assert new[0] is new[2]
    assert isinstance(new[0], BesselConv2d)
    assert len(report.changes) == 1


def test_what_cannot_be_replaced_is_kept_and_said():
    class Own(nn.Conv2d):
        pass

    tied = nn.Conv2d(4, 4, 3, padding=1)
    tied.weight = nn.Parameter(torch.zeros(4, 4, 3, 3))
    twin = nn.Conv2d(4, 4, 3, padding=1)
    twin.weight = tied.weight
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.Conv2d(4, 4, (1, 3), padding=(0, 1)),
        Own(4, 4, 3, padding=1),
        tied,
        twin,
        nn.Conv2d(4, 4, 3, padding=(0, 2)),
    )
    _, report = convert_with_report(model)
    assert [change.name for change in report.changes] == ["0"]
    why = {kept.name: kept.why for kept in report.kept}
    assert "kernel_size=(1, 3)" in why["1"]
    assert "subclass of nn.Conv2d (Own)" in why["2"]
    assert "shares its weights" in why["3"]
    assert "shares its weights" in why["4"]
    assert "padding=(0, 2)" in why["5"]


def test_layers_can_be_kept_by_name_or_pattern():
    _, report = convert_with_report(unet(), keep=["first", "merge_*.0"], image_size=16)
    asked = {kept.name for kept in report.kept if kept.why == "kept on request"}
    assert asked == {"first.0", "first.3", "merge_second.0", "merge_first.0"}
    broken = {fault.name for fault in report.faults if fault.kind == "Conv2d"}
    assert broken == asked
    assert not report.exact
    assert report.after.quarter_turns > 100 * EXACT


@pytest.mark.parametrize(
    ("rule", "sizes"), [({}, [3, 4, 7]), (6, [7, 6, 7]), ({3: 7, 7: 5}, [7, 4, 5])]
)
def test_kernel_size_rule(rule, sizes):
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 4, padding=2), nn.Conv2d(2, 2, 7, padding=3)
    )
    new = convert(model, kernel_size=rule)
    assert [layer.kernel_size[0] for layer in new] == sizes
    images = torch.rand(1, 1, 9, 9)
    assert new(images).shape == model(images).shape


def test_options_reach_the_layers():
    options = {"symmetry": "O(2)", "cutoff": "soft", "response": "power", "sampling": "cubic"}
    new = convert(nn.Conv2d(1, 2, 7), scales=(-2, 0), **options)
    assert {name: getattr(new, name) for name in options} == options
    assert new.spec.scales == (-2, 0)


def test_so2_sees_mirror_images_and_o2_does_not():
    _, report = convert_with_report(unet(), image_size=16, symmetry="O(2)")
    assert report.after.quarter_turns < EXACT
    assert "(mirrored or not)" in str(report)
    new = convert(unet(), image_size=16)
    probe = plane_waves(4, 1, 16)
    assert equivariance_error(new, probe, [0], mirror=True, region="disc").max() > 100 * EXACT


@pytest.mark.parametrize("width", [2, 1.5])
def test_width_multiplies_the_channels_between_the_ends(width):
    new, report = convert_with_report(unet(), image_size=16, width=width)
    assert new.first[0].in_channels == 1
    assert new.head.out_channels == 2
    assert new.first[0].out_channels == 6 * width
    assert new.merge_first[0].in_channels == 12 * width
    assert new(torch.rand(2, 1, 16, 16)).shape == (2, 2, 16, 16)
    assert report.exact
    narrow = convert_with_report(unet())[1].parameters_after
    assert report.parameters_after / narrow == pytest.approx(width**2, rel=0.1)


def check_bound(new, report, size):
    """On other images than the report's, and trained, the model is as equivariant as reported."""
    for seed in (1, 2):
        found = measure(new, size, 1, symmetry=report.symmetry, seed=seed)
        assert found.quarter_turns < EXACT
        assert found.any_angle < OTHER_IMAGES * report.after.any_angle


def test_resnet18_becomes_equivariant_and_trains():
    size = 32
    model = resnet(size)
    _, report = convert_with_report(model, image_size=size)
    assert {fault.repair for fault in report.faults} == {"stride", "pool"}
    assert report.after.quarter_turns > 10 * EXACT

    new, report = convert_with_report(model, image_size=size, repair="all")
    assert report.faults == ()
    assert report.after.quarter_turns < EXACT
    assert report.after.any_angle < report.before.any_angle / 2

    images = plane_waves(8, 1, size, seed=5).turned().float()
    history = losses(new, images, torch.arange(8) % 2, steps=4, learning_rate=1e-3)
    assert history[-1] < history[0] / 2
    check_bound(new, report, size)


def test_resnet18_is_exact_without_repairs_where_its_strides_fit():
    _, report = convert_with_report(resnet(33), image_size=33)
    assert report.exact
    assert report.after.quarter_turns < EXACT
    assert {fault.repair for fault in report.faults} == {"stride", "pool"}
    assert "aliases at other angles" in str(report)


@pytest.mark.parametrize("transposed", [False, True])
def test_unet_becomes_equivariant_and_trains(transposed):
    size = 24
    new, report = convert_with_report(unet(transposed=transposed), image_size=size, repair="all")
    assert report.exact
    assert report.faults == ()
    assert report.after.quarter_turns < EXACT < report.before.quarter_turns
    assert report.after.any_angle < report.before.any_angle / 2

    images = plane_waves(8, 1, size, seed=5).turned().float()
    targets = (images[:, 0].abs() > 0.5).long()
    history = losses(new, images, targets, steps=15, learning_rate=3e-3)
    assert history[-1] < 0.8 * history[0]
    check_bound(new, report, size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"symmetry": "C4"}, r"symmetry='C4': must be one of 'SO\(2\)'"),
        ({"cutoff": 0}, "cutoff=0: must"),
        ({"response": "energy"}, "response='energy': must"),
        ({"sampling": "nearest"}, "sampling='nearest': must"),
        ({"scales": (1,)}, r"scales=\(1,\): must"),
        ({"kernel_size": {3: 4}}, "half a pixel"),
        ({"kernel_size": 0}, "kernel_size=0: must"),
        ({"kernel_size": {3: "5"}}, r"kernel_size\[3\]='5': must"),
        ({"repair": ["strides"]}, "must be 'all' or a list of 'stride'"),
        ({"repair": "stride"}, "must be 'all' or a list"),
        ({"repair": ["flatten"]}, "image_size=None"),
        ({"keep": ["frist"]}, "no layer is named 'frist'; nearest: first"),
        ({"keep": "first"}, "must be a list"),
        ({"width": 0, "image_size": 16}, "width=0: must"),
        ({"width": 2}, "width=2 with image_size=None"),
        ({"width": 1.1, "image_size": 16}, "would get 6.6"),
        ({"image_size": 0}, "image_size=0: must"),
        ({"image_size": 17}, "does not accept such images"),
        ({"image_size": 16, "in_channels": 3}, "in_channels=3"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        convert(unet(), **options)


def test_models_that_cannot_be_converted_are_named():
    with pytest.raises(TypeError, match=r"must be an nn\.Module"):
        convert("resnet18")
    with pytest.raises(ValueError, match=r"no nn\.Conv2d"):
        convert(nn.Sequential(nn.Linear(3, 3)))
    with pytest.raises(ValueError, match="run it once"):
        convert(nn.LazyConv2d(3, 3))


def test_a_width_that_does_not_fit_is_named():
    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 3, padding=1)
            self.scale = nn.Parameter(torch.ones(1, 4, 1, 1))
            self.head = nn.Conv2d(4, 2, 1)

        def forward(self, x):
            return self.head(self.conv(x) * self.scale)

    with pytest.raises(ValueError, match="do not fit together"):
        convert(Doubled(), image_size=8, width=2)
