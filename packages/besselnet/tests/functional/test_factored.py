"""The factored algorithm against its slow twin, the direct one: values, gradients, every option."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from besselnet.functional import (
    BasisSpec,
    bessel_conv2d,
    cheaper_algorithm,
    direct_cost,
    factored_cost,
)
from besselnet.functional import (
    _factored as factored,
)
from besselnet.functional import (
    _layouts as layouts,
)
from besselnet.functional._plan import Run, Window, make_plan
from besselnet.nn import BesselConv2d
from tolerances import TOLERANCES, assert_same

# The bounds that the factored algorithm promises for values and gradients.
BOUNDS = {torch.float64: 1e-11, torch.float32: 1e-5}

CASES = [
    {},
    {"channels": (1, 3)},
    {"channels": (2, 3), "stride": 2},
    {"channels": (70, 3), "size": (7, 8)},
    {"channels": (50, 2), "size": (7, 8), "stride": 2, "symmetry": "O(2)", "padding": 1},
    {"channels": (20, 2), "size": (7, 8), "cutoff": "soft", "kernel_size": 7},
    {"channels": (130, 2), "size": (6, 6)},
    {"cutoff": "soft", "kernel_size": 7, "symmetry": "O(2)", "stride": 2, "padding": 3},
    {"cutoff": "soft", "kernel_size": 7, "dilation": 2, "size": (15, 14), "response": "signed"},
    {"channels": (96, 2), "groups": 2, "size": (7, 7), "response": "signed"},
    {"symmetry": "O(2)", "channels": (3, 4)},
    {"symmetry": "O(2)", "channels": (33, 2), "cutoff": "soft", "size": (7, 7)},
    {"cutoff": "soft", "response": "power"},
    {"cutoff": 0.77, "kernel_size": 4},
    {"kernel_size": 1},
    {"kernel_size": 2, "padding": "same"},
    {"sampling": "cubic"},
    {"sampling": "point", "response": "power", "cutoff": "soft"},
    {"stride": (2, 3), "padding": (1, 2)},
    {"padding": 6, "kernel_size": 5},
    {"dilation": (1, 2), "padding": 2},
    {"stride": 3, "dilation": 2, "padding": (1, 4), "symmetry": "O(2)"},
    {"groups": 2, "channels": (6, 4)},
    {"groups": 3, "channels": (3, 6), "symmetry": "O(2)", "response": "power"},
    {"padding": 3, "padding_mode": "reflect"},
    {"padding": 3, "padding_mode": "circular", "stride": 2},
    {"padding": "same", "padding_mode": "replicate", "kernel_size": 4},
    {"scales": (-2, 0, 2), "padding": 2},
    {"scales": (-2, 0, 2), "scale_pool": "pixel", "symmetry": "O(2)"},
    {"scales": (0, 2), "scale_pool": "image", "stride": 2, "padding": (0, 3)},
    {"bias": False},
    {"response": "signed"},
    {"response": "signed", "symmetry": "O(2)", "stride": 2, "padding": 2},
    {"response": "signed", "channels": (50, 3), "cutoff": "soft", "size": (7, 7)},
    {"response": "signed", "scales": (-2, 0, 2), "groups": 2, "channels": (4, 4)},
]


@pytest.fixture(autouse=True)
def _in_torch_operations(monkeypatch):
    """The native kernel has tests of its own."""
    monkeypatch.setattr("besselnet.functional._conv.kernel_takes", lambda *_: False)


def twins(case, dtype):
    """The same layer with both algorithms, and an input."""
    options = {"kernel_size": 5, "channels": (5, 4), "size": (9, 10), **case}
    channels, size = options.pop("channels"), options.pop("size")
    torch.manual_seed(0)
    direct = BesselConv2d(*channels, **options, dtype=dtype, algorithm="direct")
    if direct.bias is not None:
        torch.nn.init.normal_(direct.bias)
    quick = BesselConv2d(*channels, **options, dtype=dtype, algorithm="factored")
    quick.load_state_dict(direct.state_dict())
    return direct, quick, torch.randn(5, channels[0], *size, dtype=dtype)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_factored_equals_direct_in_values_and_gradients(case, dtype, monkeypatch):
    # Room for one image: the batch must be cut into several pieces and give the same.
    monkeypatch.setattr(layouts, "WORKSPACE_BYTES", 1)
    direct, quick, input = twins(case, dtype)
    results = []
    for layer in (direct, quick):
        image = input.clone().requires_grad_()
        output = layer(image)
        cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        output.backward(cotangent)
        results.append([output, image.grad, *(p.grad for p in layer.parameters())])
    for slow, fast in zip(*results):
        assert_same(fast, slow, BOUNDS[dtype])


def layout_of(channels, symmetry, size=10):
    spec = BasisSpec.checked(7, cutoff="soft", symmetry=symmetry)
    window = Window((1, 1), (3, 3), (1, 1))
    input = torch.zeros(50, channels, size, size)
    weight = torch.zeros(6, channels, spec.num_weights)
    bank = spec.tables()[0]
    ((_, _, layout),) = factored.layouts(input, weight, bank, spec.plan, window, groups=1)
    return spec, layout


def test_few_channels_are_columns_and_many_are_rows():
    assert isinstance(layout_of(factored.WIDE - 1, "SO(2)")[1], layouts.Columns)
    assert isinstance(layout_of(factored.WIDE, "SO(2)")[1], layouts.Rows)


@pytest.mark.parametrize("channels", [8, 64])
@pytest.mark.parametrize("bytes_", [1, 2**18, 2**30])
def test_pieces_cover_the_batch_and_keep_to_the_bound(bytes_, channels, monkeypatch):
    monkeypatch.setattr(layouts, "WORKSPACE_BYTES", bytes_)
    _, layout = layout_of(channels, "SO(2)")
    runs = list(layout.pieces(50))
    assert [n for run in runs for n in range(run.start, run.stop)] == list(range(50))
    fitting = bytes_ * torch.get_num_threads() // layout.bytes_per_image
    assert max(run.stop - run.start for run in runs) == min(max(fitting, 1), 50)


@pytest.mark.parametrize("symmetry", ["SO(2)", "O(2)"])
@pytest.mark.parametrize("bytes_", [1, 2**18, 2**30])
def test_shares_cover_all_filters_and_are_several_only_where_one_is_too_large(
    bytes_, symmetry, monkeypatch
):
    monkeypatch.setattr(layouts, "WORKSPACE_BYTES", bytes_)
    spec, layout = layout_of(8, symmetry)
    runs = [run for share in layout.shares for run in share.runs]
    assert [n for run in runs for n in range(run.filters.start, run.filters.stop)] == list(
        range(spec.num_weights)
    )
    assert sum(share.num_maps for share in layout.shares) == spec.num_maps
    # phi twice, the maps and the response: float32 numbers of one image
    analysed = max(share.filters.stop - share.filters.start for share in layout.shares)
    mixed = max(share.num_maps for share in layout.shares)
    assert layout.bytes_per_image == 4 * (2 * analysed * 8 + (mixed + 1) * 6) * 10 * 10
    whole = 2 * 4 * spec.num_weights * 8 * 10 * 10
    assert (len(layout.shares) == 1) == (whole <= bytes_ * torch.get_num_threads())


def test_orders_of_the_same_shape_are_mixed_together():
    assert make_plan((2, 2, 1, 1, 1), False).runs == (
        Run(slice(0, 2), 1, 1),
        Run(slice(2, 6), 1, 2),
        Run(slice(6, 12), 3, 2),
    )


def test_slabs_cover_the_channels():
    for channels in (1, 127, 128, 129, 256, 1000):
        runs = layouts.slabs(channels)
        assert [c for run in runs for c in range(run.start, run.stop)] == list(range(channels))
        assert max(run.stop - run.start for run in runs) <= layouts.SLAB_CHANNELS


def test_gradients_only_where_wanted():
    _, quick, input = twins({}, torch.float64)
    quick.weight.requires_grad_(False)
    image = input.requires_grad_()
    quick(image).sum().backward()
    assert image.grad is not None
    assert quick.weight.grad is None


def test_operators_keep_the_contracts_of_torch():
    """Schema, shapes of the fake tensors, autograd registration, under torch's own checker."""
    spec = BasisSpec.checked(5)
    input = torch.randn(3, 4, 8, 8, requires_grad=True)
    weight = torch.randn(6, 2, spec.num_weights, requires_grad=True)
    arguments = (input, weight, spec.tables()[0], spec.radial_counts, False, "amplitude")
    settings = ((2, 1), (2, 1), (1, 1), 2)
    torch.library.opcheck(factored.factored_response, (*arguments, *settings))


@pytest.mark.parametrize("symmetry", ["SO(2)", "O(2)"])
def test_compile_and_export_see_one_node(symmetry):
    _, quick, input = twins({"symmetry": symmetry}, torch.float32)
    compiled = torch.compile(quick, fullgraph=True, backend="aot_eager")
    assert_same(compiled(input), quick(input), TOLERANCES[torch.float32].rounding)
    program = torch.export.export(quick, (input,))
    nodes = [str(n.target) for n in program.graph.nodes if "besselnet" in str(n.target)]
    assert len(nodes) == 1
    assert_same(program.module()(input), quick(input), TOLERANCES[torch.float32].rounding)


def test_memory_format_follows_the_input():
    _, quick, input = twins({}, torch.float32)
    assert quick(input).is_contiguous()
    last = quick(input.contiguous(memory_format=torch.channels_last))
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert_same(last, quick(input), TOLERANCES[torch.float32].rounding)


def test_autocast_squares_in_float32():
    _, quick, input = twins({"response": "power", "bias": False}, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        low = quick(input)
    low.sum().backward()
    assert low.dtype == torch.float32
    assert quick.weight.grad.dtype == torch.float32
    assert_same(low, quick(input), TOLERANCES[torch.bfloat16].equation)


def test_cost_of_the_factored_algorithm_is_what_the_design_says():
    """Multiply-adds per pair of channels at k = 7: mixing 68 (soft), 22 (strong); direct 931."""
    soft, strong = (BasisSpec.checked(7, cutoff=c) for c in ("soft", "strong"))
    assert direct_cost(soft, 1, 1, 1).operations == 931
    many = 10**6
    for spec, expected in ((soft, 68), (strong, 22)):
        assert factored_cost(spec, many, many, 1).operations / many**2 == pytest.approx(
            expected, rel=1e-2
        )


def test_auto_takes_the_algorithm_with_the_smaller_cost():
    spec = BasisSpec.checked(7)
    assert cheaper_algorithm(spec, 64, 64, 1) == "factored"
    assert cheaper_algorithm(spec, 64, 64, 64) == "direct"
    assert cheaper_algorithm(spec, 64, 64, 1, torch.float64, "cpu") == "direct"
    # Few pixels do not pay for the many steps of the factored algorithm.
    assert cheaper_algorithm(spec, 8, 8, 1, pixels=256) == "direct"
    assert cheaper_algorithm(spec, 8, 8, 1, pixels=10**5) == "factored"
    layer = BesselConv2d(64, 64, 7, groups=64)
    image = torch.randn(1, 64, 9, 9, requires_grad=True)
    # Only the direct algorithm has second derivatives: auto chose it for separate channels.
    (gradient,) = torch.autograd.grad(layer(image).sum(), image, create_graph=True)
    gradient.sum().backward()


def test_functional_builds_its_own_tables():
    spec = BasisSpec.checked(5)
    weight = torch.randn(2, 3, spec.num_weights)
    image = torch.randn(1, 3, 8, 8)
    given = bessel_conv2d(image, weight, spec=spec, tables=spec.tables(), algorithm="factored")
    assert torch.equal(given, bessel_conv2d(image, weight, spec=spec, algorithm="factored"))


def test_flop_counter_of_torch_sees_the_operators():
    layer = BesselConv2d(8, 6, 5, padding=2, bias=False, algorithm="factored")
    image = torch.randn(2, 8, 10, 10, requires_grad=True)
    cost = factored_cost(layer.spec, 8, 6, 1).operations * 2 * 10 * 10
    with FlopCounterMode(display=False) as forward:
        response = layer(image)
    assert forward.get_total_flops() == 2 * cost
    with FlopCounterMode(display=False) as backward:
        response.sum().backward()
    # Analysis and mixing again, each transposed to the input, the mixing also to the weights.
    assert 2 * 2 * cost < backward.get_total_flops() < 3 * 2 * cost
