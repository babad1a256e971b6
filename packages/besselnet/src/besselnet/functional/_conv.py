"""``bessel_conv2d``: the rotation-equivariant convolution as a function."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from besselnet.checks import check_choice, check_count, check_images, check_padding, check_pair
from besselnet.functional._basis import BasisSpec
from besselnet.functional._cost import cheaper_algorithm
from besselnet.functional._direct import direct
from besselnet.functional._factored import factored
from besselnet.functional._fused import fused, kernel_takes
from besselnet.functional._padding import PADDING_MODES, by_convolution, pad_image
from besselnet.functional._plan import Window
from besselnet.functional._transforms import transformed

Response = Literal["amplitude", "power", "signed"]
ScalePool = Literal["map", "pixel", "image"]
Algorithm = Literal["auto", "factored", "direct"]
RESPONSES: tuple[str, ...] = get_args(Response)
SCALE_POOLS: tuple[str, ...] = get_args(ScalePool)
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)


def autocast_enabled(device: torch.device) -> bool:
    """Whether autocast is on; tensors without numbers do not know of it."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def strongest(responses: list[Tensor], pool: ScalePool) -> Tensor:
    """Return the strongest of the responses at several scales, (N, C, H, W) each.

    ``pixel`` keeps the largest value at each pixel. ``map`` keeps the feature map with the largest sum (the
    paper's figure on scales). ``image`` keeps the scale with the largest sum over all feature maps.
    """
    stacked = torch.stack(responses)
    if pool == "pixel":
        return stacked.amax(0)
    summed = stacked.detach().sum((-2, -1), keepdim=True)
    if pool == "image":
        summed = summed.sum(2, keepdim=True)
    winner = summed.argmax(0, keepdim=True).expand_as(stacked.narrow(0, 0, 1))
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
    response: Response = "signed",
    scale_pool: ScalePool = "map",
    algorithm: Algorithm = "auto",
) -> Tensor:
    r"""Rotation-equivariant 2D convolution.

    Let :math:`\varphi_{\nu,j}(x,y)` be the Fourier-Bessel coefficients of the disc around a pixel and
    :math:`\kappa_{\nu,j}` the learned ones. Summed over input channels c and radial indices j,

    .. math::
        a = \sum_\nu \Bigl|\sum_{c,j} \kappa^*_{\nu,j} \varphi_{\nu,j}\Bigr|^2
        \qquad \text{SO(2), Equation 5.6}

    .. math::
        a = \sum_\nu \Bigl|\sum_{c,j} \Re(\kappa_{\nu,j}) \varphi_{\nu,j}\Bigr|^2
        + \Bigl|\sum_{c,j} \Im(\kappa_{\nu,j}) \varphi_{\nu,j}\Bigr|^2
        \qquad \text{O(2), Equation 5.7}

    is the output for ``response="power"``, and :math:`\sqrt a` for ``"amplitude"``. ``"signed"`` is the
    amplitude of the orders above 0 plus the term of order 0, which need not be squared: it is real and
    invariant to rotations and reflections. Rotating the input multiplies each :math:`\varphi_{\nu,j}` by
    :math:`e^{-i\nu\alpha}`, which does not change the modulus.

    Args:
        input: (N, C, H, W) or (C, H, W), floating point.
        weight: (O, C / groups, spec.num_weights): for each order, Re(kappa) of its modes, then (v > 0)
            Im(kappa).
        bias: (O,), added to the response.
        stride, padding, dilation, groups, padding_mode: as in ``nn.Conv2d``.
        spec: kernel size, symmetry, cut-off, sampling and scales.
        tables: ``spec.tables(...)`` with the dtype and device of the weights. Default: built here.
        response: "amplitude" or "signed" (degree one in the input), or "power" (the paper).
        scale_pool: how the strongest scale is chosen, see :func:`strongest`.
        algorithm: "direct" (the paper's), "factored" (no forward-mode derivatives, no ``torch.func``) or
            "auto" (the faster one that supports the call).

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
    if weight.dim() != 3 or weight.shape[2] != spec.num_weights:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}: must be (out_channels, in_channels / groups, "
            f"{spec.num_weights}) for {spec}"
        )
    if 0 in weight.shape or weight.shape[0] % check_count("groups", groups):
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} with groups={groups}: must have input channels, and a "
            "multiple of groups as output channels"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}: must be ({weight.shape[0]},)")
    if tables is None:
        tables = spec.tables(dtype=weight.dtype, device=weight.device)
    wanted = [(spec.num_weights, *[spec.kernel_size + offset] * 2) for offset in spec.scales]
    shapes = [tuple(table.shape) for table in tables]
    if shapes != wanted:
        raise ValueError(f"tables have shapes {shapes}: must be {wanted} for {spec}")
    return bessel_response(
        input,
        weight,
        bias,
        steps,
        pads,
        dilations,
        groups,
        spec=spec,
        tables=tables,
        padding_mode=padding_mode,
        response=response,
        scale_pool=scale_pool,
        algorithm=algorithm,
    )


def bessel_response(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
    *,
    spec: BasisSpec,
    tables: Sequence[Tensor],
    padding_mode: str,
    response: Response,
    scale_pool: ScalePool,
    algorithm: Algorithm,
    expansion: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute :func:`bessel_conv2d` and check only the image, not the settings.

    ``pads`` are (left, right, top, bottom); ``expansion`` is ``spec.expansion(...)``.
    """
    check_images("input", input)
    autocast = autocast_enabled(input.device)
    if input.dtype != weight.dtype and not autocast:
        raise TypeError(f"input has dtype {input.dtype}: must be {weight.dtype}, like the weights")
    channels = weight.shape[1] * groups
    if input.shape[-3] != channels:
        raise ValueError(
            f"input has shape {tuple(input.shape)} with {input.shape[-3]} channels: must have {channels}"
        )
    autocast = autocast_enabled(input.device)
    native = algorithm != "direct" and kernel_takes(input, weight, spec, autocast)
    if transformed(input, weight, bias):
        if algorithm == "factored":
            raise ValueError(
                'algorithm="factored" with forward-mode derivatives or a transform of torch.func: must '
                'be "auto" or algorithm="direct"'
            )
        algorithm = "direct"
    elif algorithm == "auto":
        algorithm = cheaper_algorithm(
            spec,
            channels,
            weight.shape[0],
            groups,
            input.dtype,
            input.device.type,
            _pixels(input, stride),
            native,
        )
    batched = input if input.dim() == 4 else input.unsqueeze(0)
    if not torch.compiler.is_compiling() and not len(batched):
        # Of no images, a plain convolution knows what the response and its gradients are.
        algorithm = "direct"
    native = native and algorithm == "factored"
    # The native kernel adds the bias itself, unless one of several scales must win first.
    added, bias = (bias, None) if native and len(spec.scales) == 1 else (None, bias)
    responses = []
    for offset, bank in zip(spec.scales, tables):
        reach = scale_padding(pads, offset, dilation)
        check_extent(input, reach, dilation, bank.shape[-1], padding_mode)
        inside = by_convolution(reach, padding_mode)
        padded = batched if inside else pad_image(batched, reach, padding_mode)
        window = Window(stride, (reach[2], reach[0]) if inside else (0, 0), dilation)
        if algorithm == "direct":
            responses.append(
                direct(padded, weight, bank, spec, response, window, groups, expansion)
            )
            continue
        tensors = (padded, weight, bank)
        if native:
            responses.append(fused(*tensors, added, spec, response, window, groups))
            continue
        if autocast:
            # What autocast does before a plain convolution.
            lower = torch.get_autocast_dtype(input.device.type)
            tensors = (padded.to(lower), weight.to(lower), bank.to(lower))
        responses.append(factored(*tensors, spec, response, window, groups))
    output = responses[0] if len(responses) == 1 else strongest(responses, scale_pool)
    if not autocast and output.dtype != input.dtype:
        output = output.to(input.dtype)
    if bias is not None:
        output = output + bias.to(output.dtype).view(-1, 1, 1)
    return output if input.dim() == 4 else output.squeeze(0)


def _pixels(input: Tensor, stride: tuple[int, int]) -> int | None:
    """About how many pixels come out; None in a graph, which is for every size and has no small steps."""
    if torch.compiler.is_compiling():
        return None
    return input.numel() // (input.shape[-3] * stride[0] * stride[1])


def scale_padding(
    pads: Sequence[int], offset: int, dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Return the padding for a kernel that is larger by ``offset``: half of it more on every side."""
    left, right, top, bottom = pads
    rows, columns = (offset // 2 * d for d in dilation)
    return left + columns, right + columns, top + rows, bottom + rows


def check_extent(
    input: Tensor,
    pads: Sequence[int],
    dilation: Sequence[int],
    kernel_size: int,
    padding_mode: str,
) -> None:
    """Refuse an image that is too small for its padding or, with the padding, for the kernel."""
    left, right, top, bottom = pads
    ends = ((top, bottom), (left, right))
    for size, (before, after), d in zip(input.shape[-2:], ends, dilation):
        filled = max(before, after)
        needed = {"reflect": filled + 1, "circular": filled}.get(padding_mode, 1)
        if size < max(1, needed):
            raise ValueError(
                f"input has shape {tuple(input.shape)}: must have at least {max(1, needed)} rows and "
                f"columns for a padding of {filled} pixels and padding_mode={padding_mode!r}"
            )
        reach = d * (kernel_size - 1) + 1
        if size + before + after < reach:
            raise ValueError(
                f"input has shape {tuple(input.shape)}, {size + before + after} pixels with padding: "
                f"must have at least {reach} for kernel size {kernel_size} and dilation {d}"
            )
