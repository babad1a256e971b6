"""``softsign`` is torch's, with its derivatives of both orders."""

import pytest
import torch
from torch.nn import functional as F

from besselnet.functional import softsign
from tolerances import FLOAT64, TOLERANCES, assert_same

# Of torch.func itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


def values(dtype=torch.float64):
    x = torch.randn(3, 4, 5, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x[0, 0] = 0
    return x.mul_(3).requires_grad_()


def test_it_is_torch_s():
    for dtype in (torch.float64, torch.float32):
        x = values(dtype)
        assert_same(softsign(x), F.softsign(x), TOLERANCES[dtype].rounding)


def test_first_and_second_derivatives():
    # The second derivative jumps at 0: points away from it.
    x = (values().detach() + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(softsign, x[:1, 1:2])
    assert torch.autograd.gradgradcheck(softsign, x[:1, 1:2])


def test_the_fast_backward_is_the_slow_one():
    x, gradient = values(), torch.randn(3, 4, 5, 5, dtype=torch.float64)
    (fast,) = torch.autograd.grad(softsign(x), x, gradient)
    (slow,) = torch.autograd.grad(F.softsign(x), x, gradient)
    assert_same(fast, slow, FLOAT64.rounding)


def test_forward_derivatives_and_maps():
    x = values().detach()
    tangent = torch.ones_like(x)
    _, found = torch.func.jvp(softsign, (x,), (tangent,))
    _, expected = torch.func.jvp(F.softsign, (x,), (tangent,))
    assert_same(found, expected, FLOAT64.rounding)
    per_image = torch.func.vmap(torch.func.grad(lambda image: softsign(image).sum()))(x)
    y = values()
    (whole,) = torch.autograd.grad(softsign(y).sum(), y)
    assert_same(per_image, whole, FLOAT64.rounding)
