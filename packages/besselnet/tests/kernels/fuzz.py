"""Random layers: the native kernel against the direct algorithm in float64, forward and all gradients.

As a program, ``fuzz.py LIBRARY FIRST COUNT`` does it with another build of the library.
"""

import random
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from besselnet.functional import BasisSpec, bessel_conv2d, direct_cost
from besselnet.kernels import _load, available
from tolerances import TOLERANCES, assert_same

# Multiply-adds of the reference, so that a case takes a fraction of a second.
MOST_OPERATIONS = 1e8


class Case(NamedTuple):
    kernel: str
    threads: int
    spec: BasisSpec
    input: Tensor
    weight: Tensor
    bias: Tensor | None
    options: dict

    def __str__(self) -> str:
        sizes = (
            f"input {tuple(self.input.shape)} {self.input.dtype}, weight {tuple(self.weight.shape)}"
        )
        return f"{self.kernel}, {self.threads} threads, {self.spec}, {sizes}, {self.options}"


def kernels() -> list[str]:
    """The instruction sets that this machine has."""
    return _load.load().library.bessel_available().decode().split() if available() else []


def random_case(seed: int) -> Case:
    draw = random.Random(seed)
    while True:
        size = draw.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 11])
        spec = BasisSpec.checked(
            size,
            symmetry=draw.choice(["SO(2)", "O(2)"]),
            cutoff=draw.choice(["soft", "strong", 0.3, 0.8]),
            sampling=draw.choice(["cubic", "bilinear", "point"]),
            scales=draw.choice([None, None, None, (0, 2), (2, -2, 0)]) if size > 3 else None,
        )
        groups = draw.choice([1, 1, 1, 2, 3])
        ins = groups * draw.choice([1, 2, 3, 5, 8, 13, 16, 17, 24, 33])
        outs = groups * draw.choice([1, 2, 3, 7, 8, 16, 20, 31, 40, 50])
        stride, dilation = (
            [draw.choice(values) for _ in "yx"] for values in ([1, 1, 2, 3], [1, 1, 2])
        )
        padding = [draw.randint(0, size) for _ in "yx"]
        # Smaller images might lie between the pixels that the layer reads: no response at all.
        steps = zip(stride, dilation, padding)
        least = [max(s, d, d * (size - 1) + 1 - 2 * p) for s, d, p in steps]
        shape = [max(draw.choice([1, 3, 7, 14, 28, 33]), n) for n in least]
        batch = draw.choice([1, 1, 2, 3, 5])
        operations = direct_cost(spec, ins, outs, groups).operations * len(spec.scales)
        if operations * batch * shape[0] * shape[1] <= MOST_OPERATIONS * stride[0] * stride[1]:
            break
    modes = ["zeros", "zeros", "replicate", "circular", "reflect"]
    options = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "response": draw.choice(["signed", "amplitude", "power"]),
        "scale_pool": draw.choice(["map", "image"]),
        # An image must be larger than a border of its own pixels.
        "padding_mode": draw.choice(modes) if min(shape) > 2 * size else "zeros",
    }
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    layout = draw.choice(["contiguous", "last", "transposed", "sliced"])
    if layout == "transposed":
        input = noise(batch, ins, shape[1], shape[0]).transpose(2, 3)
    elif layout == "sliced":
        input = noise(batch, ins + 2, shape[0], 2 * shape[1])[:, 1:-1, :, ::2]
    else:
        form = torch.channels_last if layout == "last" else torch.contiguous_format
        input = noise(batch, ins, *shape).contiguous(memory_format=form)
    dtype = torch.bfloat16 if draw.random() < 0.2 else torch.float32
    weight = noise(outs, ins // groups, spec.num_weights) / (ins * spec.num_weights) ** 0.5
    bias = noise(outs).to(dtype) if draw.random() < 0.7 else None
    threads = draw.choice([1, 2, 3, 4])
    return Case(
        draw.choice(kernels()), threads, spec, input.to(dtype), weight.to(dtype), bias, options
    )


def results(case: Case, algorithm: str, dtype: torch.dtype) -> list[Tensor]:
    """Response and gradients of input, weight and bias."""
    given = [t if t is None else t.to(dtype) for t in (case.input, case.weight, case.bias)]
    leaves = [t if t is None else t.detach().requires_grad_() for t in given]
    tables = [table.to(case.input.dtype) for table in case.spec.tables(dtype=torch.float32)]
    output = bessel_conv2d(
        *leaves,
        spec=case.spec,
        tables=[table.to(dtype) for table in tables],
        algorithm=algorithm,
        **case.options,
    )
    cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    output.backward(cotangent.to(case.input.dtype).to(dtype))
    return [output, *(leaf.grad for leaf in leaves if leaf is not None)]


def compare(case: Case) -> None:
    """Fail unless the kernel gives what the direct algorithm gives in float64."""
    _load.load().library.bessel_select(case.kernel.encode())
    before = torch.get_num_threads()
    torch.set_num_threads(case.threads)
    try:
        found = results(case, "factored", case.input.dtype)
    finally:
        torch.set_num_threads(before)
        _load.load().library.bessel_select(kernels()[0].encode())
    expected = results(case, "direct", torch.float64)
    for actual, wanted in zip(found, expected):
        assert actual.dtype == case.input.dtype
        assert_same(actual, wanted, TOLERANCES[case.input.dtype].rounding)


if __name__ == "__main__":
    library, first, count = sys.argv[1:]
    _load.FILE = Path(library)
    assert available(), _load.status()
    for seed in range(int(first), int(first) + int(count)):
        compare(random_case(seed))
    print(f"{count} cases with {library}")
