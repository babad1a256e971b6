"""Networks in ordinary PyTorch: layers of besselnet with fixed weights and without checks.

The weights are multiplied with the basis in float64, once. What remains has no tables, no checks and no
operators of its own, so that ``torch.export``, ONNX and ``torch.fx`` can follow it for every batch and image
size. It calls the functions that the layers call. Two forms of the Bessel convolution (see
:mod:`besselnet.functional`):

    direct     one convolution, square, sum
    factored   for each angular order a depthwise convolution with the basis and a 1 x 1 convolution for each
               map, square, sum
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet.checks import check_choice, check_padding
from besselnet.functional import (
    by_convolution,
    cheaper_algorithm,
    expand_filters,
    mixing_matrix,
    pad_image,
    pool_centred,
    response_of,
    scale_padding,
    strongest,
    upsample_centred,
    upsample_weights,
)
from besselnet.models import FeatureMaps, GatedNetwork
from besselnet.models.pixels import PixelNetwork
from besselnet.models.template import TemplateNetwork
from besselnet.nn import (
    AttentiveNorm2d,
    BesselConv2d,
    BlurPool2d,
    Softsign,
    Upsample2d,
    fold_batch_norm,
)

Form = Literal["cheaper", "direct", "factored"]

# onnxruntime has fast kernels for depthwise convolutions of multiples of 16 channels; others it computes as
# matrix products, several times slower.
BLOCK = 16


def to_ordinary(model: nn.Module, form: Form = "cheaper") -> nn.Module:
    """A copy of the network in float32, eval mode and on the CPU, without layers of besselnet.

    Batch normalisations are folded into the convolutions before them.

    Args:
        model: any module, with layers of besselnet at any depth.
        form: of Bessel convolutions; "cheaper" takes for each the one that
            :func:`besselnet.functional.cheaper_algorithm` finds cheaper.
    """
    check_choice("form", form, ("cheaper", "direct", "factored"))
    refuse_escnn(model)
    folded = fold_batch_norm(model).cpu().float()
    return _replaced(folded, form).eval().requires_grad_(False)


def count_forms(model: nn.Module) -> dict[str, int]:
    """How many Bessel convolutions of :func:`to_ordinary`'s result have which form."""
    return Counter[str](m.form for m in model.modules() if isinstance(m, OrdinaryConv2d))


def refuse_escnn(model: nn.Module) -> None:
    """escnn's layers work on objects of their own, which no exporter follows."""
    for name, module in model.named_modules():
        if type(module).__module__.split(".")[0] == "escnn":
            raise ValueError(
                f"the network has a layer of escnn ({name}: {type(module).__name__}): only layers of "
                "besselnet and torch.nn can be exported"
            )


def _replaced(module: nn.Module, form: Form) -> nn.Module:
    for kind, build in _ORDINARY.items():
        # A subclass with a forward of its own computes something else.
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return build(module, form)
    for name, child in module.named_children():
        setattr(module, name, _replaced(child, form))
    return module


def _conv(
    weight: Tensor, groups: int, *, like: BesselConv2d | None = None, padding: Any = 0
) -> nn.Conv2d:
    """A convolution with the given weight (O, I, k, k), and the steps of ``like``."""
    conv = nn.Conv2d(
        weight.shape[1] * groups,
        weight.shape[0],
        (weight.shape[2], weight.shape[3]),
        stride=1 if like is None else like.stride,
        dilation=1 if like is None else like.dilation,
        padding=padding,
        groups=groups,
        bias=False,
        device="meta",  # no random numbers are drawn
    )
    conv.weight = nn.Parameter(weight.float().contiguous())
    return conv


class DirectResponse(nn.Module):
    """The response as Equations 5.6 and 5.7 have it: one convolution, square, sum."""

    def __init__(self, layer: BesselConv2d, bank: Tensor, padding: tuple[int, int]) -> None:
        super().__init__()
        filters = expand_filters(layer.weight.detach().double(), bank, layer.spec, layer.groups)
        self.conv = _conv(filters.flatten(0, 2), layer.groups, like=layer, padding=padding)
        self.shape = filters.shape[:3]
        self.response = layer.response

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x).unflatten(1, self.shape)
        if self.response == "signed" and self.shape[1] == 1:
            # A kernel of one pixel has order 0 alone, and nothing else to add to it.
            return maps.select(2, 0).flatten(1, 2)
        return response_of(maps, self.response, torch.float32).flatten(1, 2)


class Analysis(nn.Module):
    """Coefficients of every channel for some filters, mixed to some maps of every output channel."""

    index: Tensor

    def __init__(
        self, layer: BesselConv2d, bank: Tensor, mixing: Tensor, padding: tuple[int, int]
    ) -> None:
        """bank (f, k, k); mixing (groups, maps, O / groups, f c), with c = C / groups."""
        super().__init__()
        groups, per_group = layer.groups, layer.in_channels // layer.groups
        taps = bank.repeat_interleave(per_group, 0).repeat(groups, 1, 1).unsqueeze(1)
        mixing = mixing.flatten(0, 2)
        self.repeat = layer.in_channels > 1
        if self.repeat:
            channels = torch.arange(layer.in_channels).view(groups, 1, per_group)
            # Channels (group, filter, c): those of a group lie together.
            index = channels.expand(groups, len(bank), per_group).flatten()
            if groups == 1:
                missing = -len(index) % BLOCK
                index = F.pad(index, (0, missing))
                taps = F.pad(taps, (0, 0, 0, 0, 0, 0, 0, missing))
                mixing = F.pad(mixing, (0, missing))
            self.register_buffer("index", index)
        depthwise = len(taps) if self.repeat else 1
        self.filter = _conv(taps, depthwise, like=layer, padding=padding)
        self.mix = _conv(mixing[..., None, None], groups)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, groups maps O / groups, H', W')."""
        return self.mix(self.filter(x.index_select(1, self.index) if self.repeat else x))


class FactoredResponse(nn.Module):
    """The response by analysing each channel once and mixing per order."""

    def __init__(self, layer: BesselConv2d, bank: Tensor, padding: tuple[int, int]) -> None:
        super().__init__()
        self.response = layer.response
        plan = layer.spec.plan
        weights = layer.weight.detach().double().chunk(layer.groups)
        matrices = torch.stack([mixing_matrix(weight, plan) for weight in weights])
        first, *others = [
            (run.filters, matrices[:, : run.num_maps, :, run.filters].flatten(3))
            for run in plan.products
        ]
        if layer.in_channels == 1 and others:
            # One ordinary convolution gives all coefficients of one channel.
            every = slice(first[0].stop, len(bank))
            whole = [F.pad(m, (f.start - every.start, every.stop - f.stop)) for f, m in others]
            others = [(every, torch.cat(whole, 1))]
        self.first = Analysis(layer, bank[first[0]], first[1], padding)
        self.others = nn.ModuleList([Analysis(layer, bank[f], m, padding) for f, m in others])
        self.shape = others[0][1].shape[:3] if others else None

    def forward(self, x: Tensor) -> Tensor:
        order0 = self.first(x)
        powers = [order0 * order0] if self.response != "signed" else []
        if self.shape is not None:
            # Products and sums, not powers: onnxruntime does them in the layout of its convolutions.
            squares = [maps * maps for maps in (order(x) for order in self.others)]
            power = squares[0]
            for square in squares[1:]:
                power = power + square
            powers.append(power.unflatten(1, self.shape).sum(2).flatten(1, 2))
        if not powers:
            return order0
        power = powers[0] if len(powers) == 1 else powers[0] + powers[1]
        if self.response == "power":
            return power
        return power.sqrt() if self.response == "amplitude" else order0 + power.sqrt()


class OrdinaryConv2d(nn.Module):
    """``BesselConv2d`` with fixed weights; at several scales, the strongest response."""

    def __init__(self, layer: BesselConv2d, form: Form) -> None:
        super().__init__()
        spec = layer.spec
        shape = (spec, layer.in_channels, layer.out_channels, layer.groups)
        self.form = cheaper_algorithm(*shape) if form == "cheaper" else form
        build = FactoredResponse if self.form == "factored" else DirectResponse
        self.padding_mode, self.scale_pool = layer.padding_mode, layer.scale_pool
        pads = check_padding(layer.padding, spec.kernel_size, layer.stride, layer.dilation)
        self.pads: list[tuple[int, ...] | None] = []
        self.scales = nn.ModuleList()
        for offset, bank in zip(spec.scales, spec.tables(dtype=torch.float64)):
            reach = scale_padding(pads, offset, layer.dilation)
            inside = by_convolution(reach, layer.padding_mode)
            self.pads.append(None if inside else reach)
            self.scales.append(build(layer, bank, (reach[2], reach[0]) if inside else (0, 0)))
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach()[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        responses = [
            scale(x if pads is None else pad_image(x, pads, self.padding_mode))
            for pads, scale in zip(self.pads, self.scales)
        ]
        response = responses[0] if len(responses) == 1 else strongest(responses, self.scale_pool)
        return response if self.bias is None else response + self.bias


class OrdinaryBlurPool2d(nn.Module):
    """``BlurPool2d`` without the check of the size."""

    weights: Tensor

    def __init__(self, layer: BlurPool2d) -> None:
        super().__init__()
        self.settings = (layer.stride, layer.margins, layer.ceil_mode, layer.padding_mode)
        self.register_buffer("weights", layer.weights)

    def forward(self, x: Tensor) -> Tensor:
        return pool_centred(x, self.weights, *self.settings)


class OrdinaryFeatureMaps(nn.Module):
    """``FeatureMaps`` without the check of the size."""

    def __init__(self, network: FeatureMaps, form: Form) -> None:
        super().__init__()
        network.features = nn.Sequential(*[_replaced(layer, form) for layer in network.features])
        self.network = network

    def forward(self, x: Tensor) -> list[Tensor]:
        return self.network.maps(x)


class OrdinaryNorm2d(nn.Module):
    """``AttentiveNorm2d`` without the check of the shape."""

    def __init__(self, layer: AttentiveNorm2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.attend(x)


class OrdinaryUpsample2d(nn.Module):
    """``Upsample2d`` by one graph for all sizes."""

    weights: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", upsample_weights())

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        return upsample_centred(coarse, self.weights, fine.shape[2], fine.shape[3])


class OrdinaryNetwork(nn.Module):
    """``TemplateNetwork`` or ``PixelNetwork`` without the check of the size."""

    def __init__(self, network: TemplateNetwork | PixelNetwork, form: Form) -> None:
        super().__init__()
        network.features = _replaced(network.features, form)
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network.answer(x)


_ORDINARY: dict[type[nn.Module], Callable[[Any, Form], nn.Module]] = {
    BesselConv2d: OrdinaryConv2d,
    BlurPool2d: lambda layer, form: OrdinaryBlurPool2d(layer),
    AttentiveNorm2d: lambda layer, form: OrdinaryNorm2d(layer),
    Softsign: lambda layer, form: nn.Softsign(),
    Upsample2d: lambda layer, form: OrdinaryUpsample2d(),
    TemplateNetwork: OrdinaryNetwork,
    PixelNetwork: OrdinaryNetwork,
    FeatureMaps: OrdinaryFeatureMaps,
    GatedNetwork: lambda network, form: _replaced(network.pruned(), form),
}
