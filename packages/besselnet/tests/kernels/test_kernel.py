"""The native kernel is the direct algorithm: values, derivatives, layouts, and what it leaves to torch."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from besselnet.functional import BasisSpec, _fused, bessel_conv2d, cheaper_algorithm, factored_cost
from besselnet.kernels import available, status
from besselnet.nn import BesselConv2d
from kernels.fuzz import compare, kernels, random_case
from tolerances import TOLERANCES, assert_same

pytestmark = pytest.mark.skipif(not available(), reason=str(status()))

ROUNDING = TOLERANCES[torch.float32].rounding


def twins(*channels, **options):
    """A layer by the kernel, and the same by the direct algorithm."""
    options = {"kernel_size": 5, "padding": 2, **options}
    torch.manual_seed(0)
    layers = [BesselConv2d(*channels, **options, algorithm=a) for a in ("factored", "direct")]
    torch.nn.init.normal_(layers[0].bias)
    layers[1].load_state_dict(layers[0].state_dict())
    return layers


@pytest.fixture
def calls(monkeypatch):
    """How often the kernel did the forward and the backward pass."""
    counts = {"forward": 0, "backward": 0}

    def counted(name, real):
        def call(*arguments):
            counts[name] += 1
            return real(*arguments)

        return call

    for name in counts:
        monkeypatch.setattr(_fused, name, counted(name, getattr(_fused, name)))
    return counts


@pytest.mark.parametrize("seed", range(40))
def test_random_layers_equal_the_direct_algorithm(seed, calls):
    case = random_case(seed)
    compare(case)
    assert calls == {"forward": len(case.spec.scales), "backward": len(case.spec.scales)}


@pytest.mark.slow
def test_many_random_layers_equal_the_direct_algorithm():
    for seed in range(40, 540):
        case = random_case(seed)
        try:
            compare(case)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {case}") from error


def test_the_random_layers_have_every_option():
    cases = [random_case(seed) for seed in range(40)]
    assert {case.kernel for case in cases} == set(kernels())
    assert {case.input.dtype for case in cases} == {torch.float32, torch.bfloat16}
    for name, values in {
        "response": {"signed", "amplitude", "power"},
        "groups": {1, 2, 3},
        "padding_mode": {"zeros", "replicate", "circular", "reflect"},
    }.items():
        assert {case.options[name] for case in cases} == values
    assert {case.spec.symmetry for case in cases} == {"SO(2)", "O(2)"}
    assert {case.spec.sampling for case in cases} == {"cubic", "bilinear", "point"}
    assert max(len(case.spec.scales) for case in cases) == 3


@pytest.mark.parametrize("name", kernels())
def test_each_instruction_set_gives_the_same(name):
    for seed in range(3):
        compare(random_case(seed)._replace(kernel=name))


def test_layouts_follow_the_input(calls):
    quick, _ = twins(6, 8)
    image = torch.randn(2, 6, 9, 10)
    last = image.contiguous(memory_format=torch.channels_last)
    assert quick(image).is_contiguous()
    assert quick(last).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(quick(image), quick(last))
    last.requires_grad_()
    quick(last).sum().backward()
    assert last.grad.is_contiguous(memory_format=torch.channels_last)
    assert calls == {"forward": 5, "backward": 1}


@pytest.mark.parametrize("shape", [(1, 6, 9, 10), (3, 1, 9, 10), (3, 6, 1, 10)], ids=str)
def test_expanded_images_and_gradients(shape):
    """Strides of 0, as those of the gradient of a sum."""
    results = []
    for layer in twins(6, 8):
        image = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
        output = layer(image.expand(3, 6, 9, 10))
        output.sum().backward()
        results.append([output, image.grad, layer.weight.grad, layer.bias.grad])
    for fast, slow in zip(*results):
        assert_same(fast, slow, ROUNDING)


def test_no_images():
    quick, _ = twins(6, 8)
    image = torch.zeros(0, 6, 9, 10, requires_grad=True)
    output = quick(image)
    assert output.shape == (0, 8, 9, 10)
    output.sum().backward()
    assert image.grad.shape == image.shape
    assert not quick.weight.grad.any()
    assert not quick.bias.grad.any()


def test_one_image_without_a_batch(calls):
    quick, slow = twins(6, 8)
    image = torch.randn(6, 9, 10)
    assert_same(quick(image), slow(image), ROUNDING)
    assert calls["forward"] == 1


@pytest.mark.parametrize("frozen", ["input", "weight", "bias"])
def test_gradients_only_where_wanted(frozen, calls):
    results = []
    for layer in twins(6, 8):
        tensors = {"input": torch.ones(2, 6, 9, 10).cumsum(3), **dict(layer.named_parameters())}
        for name, tensor in tensors.items():
            tensor.requires_grad_(name != frozen)
        layer(tensors["input"]).square().sum().backward()
        results.append([tensor.grad for tensor in tensors.values()])
    for fast, slow in zip(*results):
        assert (fast is None) == (slow is None)
        if slow is not None:
            assert_same(fast, slow, ROUNDING)
    assert calls["backward"] == 1


def test_only_input_and_weight_are_kept_for_the_backward_pass():
    quick, _ = twins(6, 8, response="amplitude")
    image = torch.randn(2, 6, 9, 10, requires_grad=True)
    kept = []

    def keep(tensor):
        kept.append(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        quick(image)
    assert set(kept) == {t.data_ptr() for t in (image, quick.weight, quick.table0)}


@pytest.mark.parametrize("response", ["signed", "amplitude", "power"])
def test_second_derivatives(response):
    results = []
    for layer in twins(3, 4, response=response):
        image = torch.randn(2, 3, 7, 7, generator=torch.Generator().manual_seed(0)).requires_grad_()
        wanted = (image, layer.weight, layer.bias)
        first = torch.autograd.grad(layer(image).square().sum(), wanted, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        results.append([*first, *torch.autograd.grad(penalty, wanted)])
    for fast, slow in zip(*results):
        assert_same(fast, slow, TOLERANCES[torch.float32].equation)


def test_autocast_computes_in_float32(calls):
    quick, slow = twins(6, 8)
    image = torch.randn(2, 6, 9, 10)
    for given in (image, image.bfloat16()):
        with torch.autocast("cpu", torch.bfloat16):
            output = quick(given)
        assert output.dtype == torch.float32
        assert_same(output, slow(given.float()), ROUNDING)
        output.sum().backward()
    assert quick.weight.grad.dtype == torch.float32
    assert calls == {"forward": 2, "backward": 2}


def test_what_it_does_not_take_goes_to_torch(calls, monkeypatch):
    quick, slow = twins(2, 3)
    image = torch.randn(1, 2, 9, 9)
    double = quick.double()(image.double())
    assert_same(double, slow.double()(image.double()), TOLERANCES[torch.float64].equation)
    assert quick.half()(image.half()).dtype == torch.float16
    meta = BesselConv2d(2, 3, 5, device="meta", algorithm="factored")
    assert meta(torch.empty(1, 2, 9, 9, device="meta")).shape == (1, 3, 5, 5)
    monkeypatch.setattr(_fused, "MOST_TAPS", 4)
    large, slow = twins(2, 3)
    assert_same(large(image), slow(image), ROUNDING)
    assert not any(calls.values())


def test_auto_takes_it_for_small_images_too(calls):
    """One call replaces the many steps that make the factored algorithm slow there."""
    image = torch.randn(1, 8, 16, 16)
    BesselConv2d(8, 8, 7, padding=3)(image)
    assert calls["forward"] == 1
    spec = BasisSpec.checked(7)
    assert cheaper_algorithm(spec, 8, 8, 1, pixels=256) == "direct"
    assert cheaper_algorithm(spec, 8, 8, 1, pixels=256, fused=True) == "factored"


def test_lazily_negated_images():
    """torch.imag of a conjugate has the sign as a mark, not in memory."""
    quick, slow = twins(2, 3)
    image = torch.randn(1, 2, 9, 9, dtype=torch.complex64).conj().imag
    assert image.is_neg()
    assert_same(quick(image), slow(image), ROUNDING)


def test_inference_mode_and_checkpoints():
    quick, _ = twins(2, 3)
    image = torch.randn(1, 2, 9, 9)
    expected = quick(image)
    with torch.inference_mode():
        assert torch.equal(quick(image), expected)
    given = image.requires_grad_()
    again = checkpoint(quick, given, use_reentrant=False)
    assert torch.equal(again, expected)
    (gradient,) = torch.autograd.grad(again.sum(), given)
    assert torch.equal(gradient, torch.autograd.grad(quick(given).sum(), given)[0])


def test_tables_without_parities_are_computed_by_torch():
    spec = BasisSpec.checked(5)
    torch.manual_seed(0)
    tables = [torch.randn_like(table) for table in spec.tables()]
    results = []
    for algorithm in ("factored", "direct"):
        tensors = [torch.randn(2, 3, 9, 9), torch.randn(4, 3, spec.num_weights), torch.randn(4)]
        torch.manual_seed(0)
        leaves = [torch.randn_like(tensor).requires_grad_() for tensor in tensors]
        output = bessel_conv2d(*leaves, spec=spec, tables=tables, algorithm=algorithm)
        output.sum().backward()
        results.append([output, *(leaf.grad for leaf in leaves)])
    for fast, slow in zip(*results):
        assert_same(fast, slow, ROUNDING)


def test_a_graph_works_where_the_kernel_is_missing(monkeypatch):
    """Exported here, run elsewhere: the operators compute in torch what the kernel computed."""
    quick, slow = twins(3, 4)
    image = torch.randn(2, 3, 9, 9)
    program = torch.export.export(quick, (image,))
    assert any("fused_response" in str(node.target) for node in program.graph.nodes)
    monkeypatch.setattr(_fused, "available", lambda: False)
    output = program.module()(image)
    assert_same(output, slow(image), ROUNDING)
    for fast, expected in zip(
        torch.autograd.grad(output.sum(), [*program.module().parameters()], allow_unused=True),
        torch.autograd.grad(slow(image).sum(), [*slow.parameters()]),
    ):
        if fast is not None:
            assert_same(fast, expected, ROUNDING)


def test_operators_keep_the_contracts_of_torch():
    spec = BasisSpec.checked(5)
    input = torch.randn(3, 4, 8, 8, requires_grad=True)
    weight = torch.randn(6, 2, spec.num_weights, requires_grad=True)
    bias = torch.randn(6, requires_grad=True)
    arguments = (input, weight, spec.tables()[0], bias, spec.radial_counts, False, "amplitude")
    torch.library.opcheck(_fused.fused_response, (*arguments, (2, 1), (2, 1), (1, 1), 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_compiled_step_equals_eager():
    image = torch.randn(2, 6, 9, 10)
    results = []
    for compiled in (False, True):
        layer, _ = twins(6, 8)
        torch.compiler.reset()
        call = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
        given = image.clone().requires_grad_()
        output = call(given)
        output.square().sum().backward()
        results.append([output, given.grad, *(p.grad for p in layer.parameters())])
    for eager, graph in zip(*results):
        assert torch.equal(eager, graph)


def test_flop_counter_of_torch_sees_the_operators():
    layer = BesselConv2d(8, 6, 5, padding=2, bias=False, algorithm="factored")
    image = torch.randn(2, 8, 10, 10, requires_grad=True)
    cost = factored_cost(layer.spec, 8, 6, 1).operations * 2 * 10 * 10
    with FlopCounterMode(display=False) as forward:
        response = layer(image)
    assert forward.get_total_flops() == 2 * cost
    with FlopCounterMode(display=False) as backward:
        response.sum().backward()
    assert 2 * 2 * cost < backward.get_total_flops() < 3 * 2 * cost


def test_no_memory_is_said_with_the_sizes(monkeypatch):
    quick, _ = twins(3, 4)
    monkeypatch.setattr("besselnet.kernels._call.OK", -1)
    monkeypatch.setattr("besselnet.kernels._call.NO_MEMORY", 0)
    with pytest.raises(MemoryError, match=r"\(2, 3, 9, 9\)"):
        quick(torch.randn(2, 3, 9, 9))
