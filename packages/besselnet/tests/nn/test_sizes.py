"""What the size checker says, against what turning an image really does."""

import copy

import pytest
import torch
from torch import Tensor, nn

from besselnet.nn import BesselConv2d, BlurPool2d, check_size, exact_sizes, suggest_size
from tolerances import FLOAT64, relative_difference


class Residual(nn.Module):
    """A branch and a shortcut: not a chain of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = BesselConv2d(4, 4, 3, stride=2, padding=1)
        self.shortcut = BesselConv2d(4, 4, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + self.shortcut(x)


STACKS = {
    "no stride": lambda: nn.Sequential(BesselConv2d(2, 4, 5), BesselConv2d(4, 4, 4, padding=1)),
    "strided": lambda: nn.Sequential(
        BesselConv2d(2, 4, 5, stride=2, padding=2), BesselConv2d(4, 4, 4, stride=3)
    ),
    "dilated": lambda: nn.Sequential(BesselConv2d(2, 4, 4, stride=2, dilation=2, padding=1)),
    "average": lambda: nn.Sequential(
        BesselConv2d(2, 4, 5, padding=2), nn.AvgPool2d(2), nn.AvgPool2d(3, 2, padding=1)
    ),
    "maximum": lambda: nn.Sequential(
        nn.MaxPool2d(2, ceil_mode=True), BesselConv2d(2, 4, 3), nn.MaxPool2d(3, 2, dilation=2)
    ),
    "norm": lambda: nn.Sequential(nn.LPPool2d(2, 3), BesselConv2d(2, 4, 3)),
    "blur": lambda: nn.Sequential(
        BesselConv2d(2, 4, 5, padding=2), BlurPool2d(), BesselConv2d(4, 4, 3), BlurPool2d(3)
    ),
    "blur, then stride": lambda: nn.Sequential(BlurPool2d(3), BesselConv2d(2, 4, 3, stride=2)),
    "same, odd kernel": lambda: nn.Sequential(BesselConv2d(2, 4, 5, padding="same")),
    "same, even kernel": lambda: nn.Sequential(BesselConv2d(2, 4, 4, padding="same")),
    "adaptive": lambda: nn.Sequential(BesselConv2d(2, 4, 3), nn.AdaptiveAvgPool2d(5)),
    "shortcut": lambda: nn.Sequential(BesselConv2d(2, 4, 3), Residual(), Residual()),
}


def turning_error(module: nn.Module, size: int) -> float:
    """How far the maps of a turned or mirrored image lie from the turned or mirrored maps."""
    x = torch.rand(
        1, 2, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        y = module(x)
        errors = [
            relative_difference(module(x.rot90(k, (2, 3))), y.rot90(k, (2, 3))) for k in (1, 2)
        ]
    return max(errors)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS.keys())
def test_the_report_says_what_turning_shows(stack):
    torch.manual_seed(0)
    module = stack().double()
    for size in range(20, 30):
        report = check_size(module, size, in_channels=2)
        error = turning_error(module, size)
        # Samples of noise one pixel apart differ by much: nothing lies between the two bounds.
        assert error < FLOAT64.rounding if report.exact else error > 1e-3, (report, error)


def test_both_answers_occur():
    """The comparison above would be empty if the checker always said the same."""
    module = STACKS["strided"]()
    assert exact_sizes(module, range(20, 33)) == [25, 31]
    assert exact_sizes(STACKS["blur"](), range(20, 33)) == list(range(20, 33))
    assert exact_sizes(STACKS["same, even kernel"](), range(20, 33)) == []


def test_the_first_faulty_layer_is_named():
    fault = check_size(STACKS["shortcut"](), 25).first_fault
    assert fault is not None
    assert (fault.name, fault.kind, fault.input_size) == ("2.branch", "BesselConv2d", (12, 12))
    assert "1 of 12 + 2 rows left over by stride 2" in str(check_size(STACKS["shortcut"](), 25))


def test_suggest_size_is_the_nearest():
    module = STACKS["average"]()
    near = exact_sizes(module, range(20, 40))
    for size in range(26, 32):
        distance = min(abs(n - size) for n in near)
        assert suggest_size(module, size) == max(n for n in near if abs(n - size) == distance)


def test_suggest_size_when_there_is_none():
    with pytest.raises(ValueError, match="padding='same' adds 1 and 2"):
        suggest_size(STACKS["same, even kernel"](), 28)


def test_rows_and_columns_must_be_treated_alike():
    report = check_size(nn.AvgPool2d((2, 3), (2, 3)), 24, in_channels=1)
    assert report.first_fault is not None
    assert "alike" in str(report)


@pytest.mark.parametrize(("output_padding", "exact"), [(0, True), (1, False)])
def test_transposed_convolution(output_padding, exact):
    layer = nn.ConvTranspose2d(2, 1, 3, stride=2, output_padding=output_padding).double()
    weight = layer.weight.detach()
    layer.weight.data = sum(weight.rot90(k, (2, 3)) for k in range(4))
    assert check_size(layer, 9).exact == exact
    assert (turning_error(layer, 9) < FLOAT64.rounding) == exact


def test_nothing_in_the_module_changes():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.MaxPool2d(2), nn.Dropout())
    module[3].eval()
    before = copy.deepcopy(module.state_dict())
    check_size(module, 9)
    assert [m.training for m in module] == [True, True, True, False]
    assert all(torch.equal(a, before[name]) for name, a in module.state_dict().items())
    assert not any(m._forward_hooks for m in module)


class AtLeast20(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] < 20:
            raise ValueError(f"{x.shape[-1]} pixels: must have at least 20")
        return x


def test_sizes_the_module_refuses(capfd):
    module = nn.Sequential(AtLeast20(), BesselConv2d(1, 2, 9), nn.MaxPool2d(8))
    assert exact_sizes(module, [16, 24, 25]) == [24]
    assert suggest_size(module, 21) == 24
    with pytest.raises(ValueError, match="at least 20"):
        exact_sizes(module, [8, 16])
    with pytest.raises(RuntimeError, match="too small"):
        check_size(nn.MaxPool2d(8), 4, in_channels=1)
    assert capfd.readouterr().err == ""


def test_bad_arguments():
    with pytest.raises(ValueError, match="size=0"):
        check_size(nn.Conv2d(1, 1, 3), 0)
    with pytest.raises(ValueError, match="in_channels=None"):
        check_size(nn.MaxPool2d(2), 8)
    with pytest.raises(ValueError, match="in_channels='3'"):
        check_size(nn.MaxPool2d(2), 8, in_channels="3")


class ReadsNumbers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.max().item() > 0 else -x


def test_a_module_that_needs_numbers_is_refused():
    with pytest.raises(TypeError, match=r"ReadsNumbers.*reads values"):
        exact_sizes(ReadsNumbers(), [8], in_channels=1)


def test_a_module_without_windows_says_so():
    assert "no convolution or pooling" in str(check_size(nn.Identity(), 8, in_channels=1))
