"""Derivatives of every kind are those of the direct algorithm, or are refused with its name."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap

from besselnet.functional import cheaper_algorithm
from besselnet.nn import BesselConv2d
from tolerances import TOLERANCES, assert_same

# torch loads what forward mode needs with a part of itself that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

ROUNDING = TOLERANCES[torch.float32].equation
RESPONSES = ["signed", "amplitude", "power"]


def make(algorithm, response="signed", **options):
    torch.manual_seed(0)
    return BesselConv2d(8, 8, 7, padding=3, algorithm=algorithm, response=response, **options)


def images(dtype=torch.float32):
    # So many pixels that "auto" takes the factored algorithm for an ordinary call.
    return torch.rand(40, 8, 16, 16, generator=torch.Generator().manual_seed(1), dtype=dtype)


def directions():
    return torch.rand(40, 8, 16, 16, generator=torch.Generator().manual_seed(2))


def forward_derivative(layer):
    with forward_ad.dual_level():
        output = layer(forward_ad.make_dual(images(), directions()))
        return forward_ad.unpack_dual(output).tangent


def frozen_forward_derivative(layer):
    return forward_derivative(layer.requires_grad_(False))


def gradients_of_each_image(layer):
    def loss(parameters, image):
        return functional_call(layer, parameters, (image,)).square().sum()

    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    return vmap(grad(loss), (None, 0))(parameters, images())["weight"]


# Nothing may be drawn at random inside of it.
IMAGES = images()
TRANSFORMS = {
    "jvp": lambda layer: jvp(layer, (images(),), (directions(),))[1],
    "jacfwd": lambda layer: jacfwd(lambda s: layer(s * IMAGES).mean((0, 2, 3)))(torch.ones(())),
    "jacrev": lambda layer: jacrev(lambda x: layer(x).mean((0, 2, 3)))(images()),
    "grad": lambda layer: grad(lambda x: layer(x).square().sum())(images()),
    "vmap": lambda layer: vmap(layer)(images()),
    "gradients of each image": gradients_of_each_image,
    "forward mode": forward_derivative,
    "forward mode, frozen weights": frozen_forward_derivative,
}


@pytest.mark.parametrize("response", RESPONSES)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_right_by_default(name, response):
    found = TRANSFORMS[name](make("auto", response))
    expected = TRANSFORMS[name](make("direct", response))
    assert expected.abs().max() > 0
    assert_same(found, expected, ROUNDING)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_factored_by_name_refuses_them_and_names_the_direct_algorithm(name):
    with pytest.raises(ValueError, match='algorithm="direct"'):
        TRANSFORMS[name](make("factored"))


@pytest.mark.parametrize(
    "options",
    [{}, {"symmetry": "O(2)"}, {"groups": 2, "stride": 2}, {"scales": (-2, 0), "dilation": 2}],
    ids=str,
)
@pytest.mark.parametrize("response", RESPONSES)
def test_second_derivatives(response, options):
    """With respect to image and weights, in float64, where rounding hides nothing."""
    results = []
    for algorithm in ("direct", "factored"):
        layer = make(algorithm, response, dtype=torch.float64, **options)
        image = images(torch.float64)[:3].requires_grad_()
        wanted = (image, layer.weight)
        first = torch.autograd.grad(layer(image).square().sum(), wanted, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        results.append([*first, *torch.autograd.grad(penalty, wanted)])
    for slow, fast in zip(*results):
        assert_same(fast, slow, TOLERANCES[torch.float64].equation)


def test_second_derivatives_of_the_weights_alone():
    layer = make("factored")
    (first,) = torch.autograd.grad(layer(images()).square().sum(), layer.weight, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), layer.weight)
    assert second.abs().max() > 0


def test_auto_takes_the_factored_algorithm_where_no_transform_is_at_work():
    """Otherwise the comparisons above would compare the direct algorithm with itself."""
    spec = make("auto").spec
    assert cheaper_algorithm(spec, 8, 8, 1, pixels=images()[:, 0].numel()) == "factored"
