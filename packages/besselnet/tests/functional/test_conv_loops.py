"""``bessel_conv2d`` against loops over the equations, for every option."""

import pytest
import torch

from besselnet.functional import BasisSpec, bessel_conv2d
from functional.equation_loops import ALGORITHMS, looped_bessel_conv2d
from tolerances import FLOAT64, assert_same

DEFAULTS = {
    "kernel_size": 3,
    "symmetry": "SO(2)",
    "share": 1.0,
    "sampling": "bilinear",
    "scales": (0,),
    "scale_pool": "map",
    "response": "power",
    "stride": (1, 1),
    "padding": (0, 0),
    "dilation": (1, 1),
    "groups": 1,
    "padding_mode": "zeros",
    "bias": True,
    "size": (6, 7),
    "channels": (2, 2),
}
THREE_SCALES = {"kernel_size": 3, "scales": (-2, 0, 2)}
CASES = [
    {},
    {"symmetry": "O(2)"},
    {"response": "amplitude"},
    {"symmetry": "O(2)", "response": "amplitude", "kernel_size": 4, "size": (5, 6)},
    {"response": "signed"},
    {"response": "signed", "symmetry": "O(2)", "kernel_size": 4, "size": (5, 6)},
    {"response": "signed", "kernel_size": 1, "groups": 2, "channels": (4, 4)},
    {"bias": False},
    {"share": 0.5, "kernel_size": 5},
    {"share": 0.77, "kernel_size": 4},
    {"kernel_size": 1},
    {"kernel_size": 2},
    {"kernel_size": 5, "size": (5, 6)},
    {"sampling": "cubic", "kernel_size": 5, "size": (5, 5)},
    {"sampling": "cubic", "kernel_size": 2},
    {"sampling": "cubic", "kernel_size": 1},
    {"sampling": "point", "kernel_size": 4},
    {"sampling": "point", "kernel_size": 2},
    {"stride": (2, 2)},
    {"stride": (2, 3), "padding": (1, 0)},
    {"padding": (1, 1)},
    {"padding": (0, 2)},
    {"padding": "same"},
    {"padding": "same", "kernel_size": 4, "size": (5, 5)},
    {"padding": "same", "kernel_size": 2, "dilation": (1, 3)},
    {"padding": "valid"},
    {"dilation": (2, 2)},
    {"dilation": (1, 2), "padding": (1, 2), "stride": (1, 2)},
    {"groups": 2, "channels": (4, 4)},
    {"groups": 3, "channels": (3, 6), "symmetry": "O(2)"},
    {"padding": (2, 1), "padding_mode": "reflect"},
    {"padding": (2, 1), "padding_mode": "replicate"},
    {"padding": (2, 1), "padding_mode": "circular"},
    {"padding": "same", "padding_mode": "reflect", "kernel_size": 4, "size": (5, 5)},
    *({**THREE_SCALES, "scale_pool": pool} for pool in ("map", "pixel", "image")),
    {**THREE_SCALES, "response": "amplitude", "scale_pool": "map", "symmetry": "O(2)"},
    {**THREE_SCALES, "padding": "same", "scale_pool": "pixel"},
    {**THREE_SCALES, "stride": (2, 2), "padding": (1, 0), "scale_pool": "pixel"},
    {**THREE_SCALES, "dilation": (2, 1), "padding": (2, 1), "padding_mode": "reflect"},
    {"kernel_size": 4, "scales": (-2, 0), "padding": "same", "scale_pool": "image"},
    {"kernel_size": 3, "scales": (2,)},
    {"kernel_size": 5, "scales": (-4, -2), "padding": (1, 1), "size": (5, 5)},
]


def name_of(case):
    return "-".join(f"{k}={v}" for k, v in case.items()) or "defaults"


def random_case(case):
    """Options, images, weights and bias, float64."""
    options = DEFAULTS | case
    spec = BasisSpec(
        *(options[k] for k in ("kernel_size", "symmetry", "share", "sampling", "scales"))
    )
    generator = torch.Generator().manual_seed(0)
    random = {"generator": generator, "dtype": torch.float64}
    in_channels, out_channels = options["channels"]
    images = torch.randn(2, in_channels, *options["size"], **random)
    weight = torch.randn(out_channels, in_channels // options["groups"], spec.num_weights, **random)
    bias = torch.randn(out_channels, **random) if options["bias"] else None
    return options, spec, images, weight, bias


def convolve(images, weight, bias, options, spec, algorithm):
    names = ("stride", "padding", "dilation", "groups", "padding_mode", "response", "scale_pool")
    arguments = {name: options[name] for name in names}
    return bessel_conv2d(images, weight, bias, spec=spec, algorithm=algorithm, **arguments)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_equals_the_loops(case, algorithm):
    options, spec, images, weight, bias = random_case(case)
    actual = convolve(images, weight, bias, options, spec, algorithm)
    expected = looped_bessel_conv2d(
        images.numpy(),
        weight.numpy(),
        None if bias is None else bias.numpy(),
        **{k: v for k, v in options.items() if k not in ("bias", "size", "channels")},
    )
    assert_same(actual, torch.from_numpy(expected), FLOAT64.equation)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_image_without_batch_dimension(algorithm):
    options, spec, images, weight, bias = random_case({})
    batched = convolve(images, weight, bias, options, spec, algorithm)
    single = convolve(images[1], weight, bias, options, spec, algorithm)
    assert_same(single, batched[1], FLOAT64.rounding)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "case",
    [
        {"stride": (2, 1), "padding": (1, 1)},
        {"symmetry": "O(2)", "response": "amplitude"},
        {"groups": 2, "dilation": (2, 1), "response": "amplitude"},
        {**THREE_SCALES, "scale_pool": "pixel"},
        {**THREE_SCALES, "scale_pool": "map", "padding": "same", "padding_mode": "circular"},
        {"kernel_size": 4, "sampling": "cubic"},
    ],
    ids=name_of,
)
def test_gradcheck(case, algorithm):
    options, spec, images, weight, bias = random_case(case | {"size": (6, 5)})
    inputs = [t.requires_grad_() for t in (images[:1], weight, bias)]
    assert torch.autograd.gradcheck(
        lambda *tensors: convolve(*tensors, options, spec, algorithm), inputs
    )
