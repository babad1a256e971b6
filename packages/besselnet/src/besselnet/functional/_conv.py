"""``bessel_conv2d``: the rotation-equivariant convolution as a function of tensors."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._basis import BasisSpec, check_choice
from besselnet.functional._cost import cheaper_algorithm
from besselnet.functional._direct import direct
from besselnet.functional._factored import factored

Response = Literal["amplitude", "power", "signed"]
ScalePool = Literal["map", "pixel", "image"]
Algorithm = Literal["auto", "factored", "direct"]
RESPONSES: tuple[str, ...] = get_args(Response)
SCALE_POOLS: tuple[str, ...] = get_args(ScalePool)
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def check_pair(name: str, value: object, minimum: int) -> tuple[int, int]:
    """An integer or a pair of integers, as the arguments of ``nn.Conv2d``."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or any(
        isinstance(n, bool) or not isinstance(n, int) or n < minimum for n in pair
    ):
        raise ValueError(f"{name}={value!r}: allowed is an integer >= {minimum} or a pair of them")
    return pair


def check_padding(
    padding: object, kernel_size: int, stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Padding as (left, right, top, bottom), from what ``nn.Conv2d`` takes."""
    if padding == "valid":
        return (0, 0, 0, 0)
    if padding == "same":
        if stride != (1, 1):
            raise ValueError(f"padding='same' with stride={stride}: allowed is stride 1 only")
        vertical, horizontal = (d * (kernel_size - 1) for d in dilation)
        left, top = horizontal // 2, vertical // 2
        return (left, horizontal - left, top, vertical - top)
    if isinstance(padding, str):
        raise ValueError(
            f"padding={padding!r}: allowed are 'same', 'valid', an integer >= 0 or a pair of them"
        )
    rows, columns = check_pair("padding", padding, 0)
    return (columns, columns, rows, rows)


def pad_input(input: Tensor, pads: Sequence[int], mode: str) -> tuple[Tensor, tuple[int, int]]:
    """Pad by (left, right, top, bottom) in the given mode; negative amounts crop.

    Returns the input and the (rows, columns) of zeros that the convolution itself has still to add:
    where it can add them, no padded copy is made.
    """
    left, right, top, bottom = pads
    if mode == "zeros" and left == right >= 0 and top == bottom >= 0:
        return input, (top, left)
    if any(p > 0 for p in pads):
        grow = [max(p, 0) for p in pads]
        input = F.pad(input, grow) if mode == "zeros" else F.pad(input, grow, mode=mode)
    if any(p < 0 for p in pads):
        input = F.pad(input, [min(p, 0) for p in pads])
    return input, (0, 0)


def autocast_enabled(device: torch.device) -> bool:
    """Whether autocast is on; there are devices ("meta") that do not know of it."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def cast_for_autocast(tensor: Tensor) -> Tensor:
    """What autocast does before a plain convolution: the tensor in its lower precision."""
    if not autocast_enabled(tensor.device):
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))


def strongest(responses: list[Tensor], pool: ScalePool) -> Tensor:
    """Of the responses at several scales, (N, C, H, W) each, keep the strongest.

    ``pixel`` keeps the largest value at each pixel; ``map`` the feature map with the largest sum (the
    paper's figure on scales); ``image`` the scale whose maps together have the largest sum.
    """
    stacked = torch.stack(responses)
    if pool == "pixel":
        return stacked.amax(0)
    summed = stacked.detach().sum((-2, -1), keepdim=True)
    if pool == "image":
        summed = summed.sum(2, keepdim=True)
    winner = summed.argmax(0, keepdim=True).expand(1, *stacked.shape[1:])
    return stacked.gather(0, winner).squeeze(0)


def bessel_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    spec: BasisSpec,
    tables: Sequence[Tensor] | None = None,
    padding_mode: str = "zeros",
    response: Response = "amplitude",
    scale_pool: ScalePool = "map",
    algorithm: Algorithm = "auto",
) -> Tensor:
    r"""Convolution whose response does not depend on the orientation of the image.

    With :math:`\varphi_{\nu,j}(x,y)` the Fourier-Bessel coefficients of the disc around a pixel and
    :math:`\kappa_{\nu,j}` the learned ones, summed over input channels c and radial indices j,

    .. math::
        a &= \sum_\nu \Bigl|\sum_{c,j} \kappa^*_{\nu,j} \varphi_{\nu,j}\Bigr|^2
            && \text{SO(2), Equation 5.6} \\
        a &= \sum_\nu \Bigl|\sum_{c,j} \Re(\kappa_{\nu,j}) \varphi_{\nu,j}\Bigr|^2
            + \Bigl|\sum_{c,j} \Im(\kappa_{\nu,j}) \varphi_{\nu,j}\Bigr|^2
            && \text{O(2), Equation 5.7}

    for ``response="power"``, :math:`\sqrt a` for ``"amplitude"``, and for ``"signed"`` the amplitude of the
    orders above 0 plus the term of order 0 as it is: it is real and the same for a turned or mirrored
    image, so nothing forces it into a square. Rotating the input multiplies each
    :math:`\varphi_{\nu,j}` by :math:`e^{-i\nu\alpha}`, which no modulus sees.

    Args:
        input: (N, C, H, W) or (C, H, W), floating point.
        weight: (O, C / groups, spec.num_weights): Re(kappa) of all modes, then Im(kappa) of those
            with v > 0.
        bias: (O,), added to the response.
        stride, padding, dilation, groups, padding_mode: as in ``nn.Conv2d``.
        spec: kernel size, symmetry, cut-off, sampling and scales.
        tables: ``spec.tables(...)`` in the dtype and on the device of the weights; built if not given.
        response: "amplitude" or "signed" (degree one in the input), or "power" (the paper).
        scale_pool: which scale wins, see :func:`strongest`.
        algorithm: "direct" (the paper's), "factored" (see :mod:`besselnet.functional._factored`; no second
            derivatives) or "auto" (the cheaper, see :mod:`besselnet.functional._cost`).

    Returns:
        (N, O, H', W') or (O, H', W'), H' and W' as for a plain convolution of ``spec.kernel_size``.
    """
    check_choice("response", response, RESPONSES)
    check_choice("scale_pool", scale_pool, SCALE_POOLS)
    check_choice("algorithm", algorithm, ALGORITHMS)
    check_choice("padding_mode", padding_mode, PADDING_MODES)
    steps = check_pair("stride", stride, 1)
    dilations = check_pair("dilation", dilation, 1)
    pads = check_padding(padding, spec.kernel_size, steps, dilations)
    check_tensors(input, weight, groups, spec)
    if tables is None:
        tables = spec.tables(dtype=weight.dtype, device=weight.device)

    if algorithm == "auto":
        channels = weight.shape[1] * groups, weight.shape[0], groups
        algorithm = cheaper_algorithm(spec, *channels, input.dtype, input.device.type)
    batched = input if input.dim() == 4 else input.unsqueeze(0)
    responses = []
    for offset, bank in zip(spec.scales, tables):
        # A kernel that is larger by `offset` reaches further by half of it on every side.
        reach = [p + offset // 2 * dilations[1 - i // 2] for i, p in enumerate(pads)]
        padded, margins = pad_input(batched, reach, padding_mode)
        check_extent(input, padded, margins, bank.shape[-1], dilations)
        settings = (spec, response, steps, margins, dilations, groups)
        if algorithm == "factored":
            image, kernel, table = map(cast_for_autocast, (padded, weight, bank))
            responses.append(factored(image, kernel, table, *settings))
        else:
            responses.append(direct(padded, weight, bank, *settings))
    output = responses[0] if len(responses) == 1 else strongest(responses, scale_pool)
    if not autocast_enabled(input.device):
        output = output.to(input.dtype)
    if bias is not None:
        output = output + bias.to(output.dtype)[:, None, None]
    return output if input.dim() == 4 else output.squeeze(0)


def check_tensors(input: Tensor, weight: Tensor, groups: int, spec: BasisSpec) -> None:
    """Refuse tensors whose type or shape can't be meant."""
    if not input.is_floating_point():
        raise TypeError(f"input has dtype {input.dtype}: allowed are real floating-point types")
    if input.dim() not in (3, 4):
        raise ValueError(
            f"input has shape {tuple(input.shape)}: allowed is (N, C, H, W) or (C, H, W)"
        )
    if weight.dim() != 3 or weight.shape[2] != spec.num_weights:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}: allowed is (out_channels, in_channels / groups, "
            f"{spec.num_weights}) for {spec}"
        )
    channels = weight.shape[1] * groups
    if input.shape[-3] != channels:
        raise ValueError(
            f"input has shape {tuple(input.shape)} with {input.shape[-3]} channels: "
            f"allowed are {channels}"
        )


def check_extent(
    input: Tensor,
    padded: Tensor,
    margins: tuple[int, int],
    kernel_size: int,
    dilation: tuple[int, int],
) -> None:
    """Refuse an image that is smaller, after padding, than the kernel."""
    for size, margin, d in zip(padded.shape[-2:], margins, dilation):
        reach = d * (kernel_size - 1) + 1
        if size + 2 * margin < reach:
            raise ValueError(
                f"input has shape {tuple(input.shape)}, {size + 2 * margin} pixels with padding: "
                f"allowed are at least {reach} for kernel size {kernel_size} and dilation {d}"
            )
