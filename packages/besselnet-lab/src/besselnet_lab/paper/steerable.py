"""Steerable networks on escnn, in the paper's template: the methods it compares with.

This file imports escnn; `besselnet_lab.paper.peers` names and registers its networks without it.

A network is made of *fields*: groups of channels that turn together. Two families:

* regular: each field has one channel per turn of a finite group of N turns;
* irreps: each field has an angular frequency m; m = 0 are invariant scalars, m > 0 pairs of
  channels that turn m times as fast as the image. With mirror images (O(2)) there are further
  scalars that change sign in the mirror.

A kernel from frequency m to n may contain the angular frequencies n - m and n + m. The full
steerable kernel space has both; Harmonic Networks have the difference alone.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import escnn.group._numerical as escnn_numerical
import torch
from escnn import gspaces
from escnn import nn as enn
from torch import Tensor, nn

from besselnet.models.template import (
    TemplateNetwork,
    Width,
    average_pool,
    choose_padding,
    scaled_channels,
    smallest_side,
    stack_template,
)

__all__ = [
    "FieldPool2d",
    "SteerableConv",
    "SteerableFeatures",
    "irreps_network",
    "quiet_escnn",
    "regular_network",
]

Filter = Callable[[dict[str, Any]], bool]

# The square of the norm that escnn takes for zero.
_LEAST_POWER = 1e-20


def regular_network(
    turns: int,
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: Width,
    padding_scheme: str | None,
    pooling: str,
) -> TemplateNetwork:
    """E(2)-CNN with regular fields of the group of `turns` turns, BatchNorm and ReLU.

    The image is masked by the inscribed disc, and the last fields are reduced to their maximum
    over the group. `pooling="authors"` blurs (sigma 0.66) and takes every second pixel,
    `"template"` averages 2 x 2 pixels.
    """
    padding = choose_padding(image_size, padding_scheme)
    with quiet_escnn():
        space = gspaces.rot2dOnR2(turns)
        image = enn.FieldType(space, in_channels * [space.trivial_repr])
        fields = [enn.FieldType(space, n * [space.regular_repr]) for n in scaled_channels(width)]

        def block(in_type: Any, out_type: Any, kernel_size: int, pad: int) -> nn.Module:
            return nn.Sequential(
                SteerableConv(in_type, out_type, kernel_size, padding=pad, bias=False),
                enn.InnerBatchNorm(out_type),
                enn.ReLU(out_type),
            )

        def pool(fields: Any) -> nn.Module:
            if pooling == "template":
                return FieldPool2d(average_pool())
            return enn.PointwiseAvgPoolAntialiased2D(fields, sigma=0.66, stride=2)

        mask = enn.MaskModule(image, image_size, margin=1)
        layers = stack_template(image, fields, padding, block, pool)
        projection = enn.GroupPooling(fields[-1])
        features = SteerableFeatures(image, nn.Sequential(mask, *layers, projection))
    channels = projection.out_type.size
    return TemplateNetwork(features, channels, num_classes, smallest_side(padding))


def irreps_network(
    max_frequency: int,
    mirror: bool,
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: Width,
    padding_scheme: str | None,
    pooling: str,
    nonlinearity: str,
    kernels: str,
) -> TemplateNetwork:
    """Network of the irreducible fields up to `max_frequency`, of SO(2) or (`mirror`) of O(2).

    The width counts the fields of each kind. The last convolution maps to fields of frequency 0
    only; of the sign-changing ones among them the magnitude is taken.

    Args:
        max_frequency: the largest angular frequency of a field.
        mirror: whether mirror images belong to the group.
        in_channels: channels of the images.
        num_classes: length of the logits.
        image_size: side of the images in pixels.
        width: factor on the number of fields of each kind, or the six numbers.
        padding_scheme: as in `choose_padding`.
        pooling: "authors" is the maximum of 2 x 2 pixels (by norm where a field is no scalar) and
            of the last maps; "template" are the averages.
        nonlinearity: on fields that are no scalars: "norm" shrinks each by a learned threshold on
            its norm, "gated" multiplies each by the sigmoid of a scalar field of its own. Scalars
            pass through ELU.
        kernels: "full", or only the angular frequencies "difference" |n - m| (Harmonic Networks)
            or "sum" n + m.
    """
    padding = choose_padding(image_size, padding_scheme)
    basis_filter = _KERNEL_FILTERS[kernels]
    with quiet_escnn():
        if mirror:
            space = gspaces.flipRot2dOnR2(-1, maximum_frequency=max_frequency)
            scalar, signed = space.irrep(0, 0), [space.irrep(1, 0)]
            turning = [space.irrep(1, m) for m in range(1, max_frequency + 1)]
        else:
            space = gspaces.rot2dOnR2(-1, maximum_frequency=max_frequency)
            scalar, signed = space.irrep(0), []
            turning = [space.irrep(m) for m in range(1, max_frequency + 1)]
        image = enn.FieldType(space, in_channels * [scalar])
        *hidden_counts, last_count = scaled_channels(width)
        fields = [_repeat(space, [scalar, *signed, *turning], n) for n in hidden_counts]
        last = _repeat(space, [scalar, *signed], last_count)

        def block(in_type: Any, out_type: Any, kernel_size: int, pad: int) -> nn.Module:
            scalars, others = _split(out_type)
            gated = nonlinearity == "gated" and out_type is not last
            gates = len(others) * [scalar] if gated else []
            conv_type = enn.FieldType(space, [*scalars, *gates, *others])
            conv = SteerableConv(
                in_type,
                conv_type,
                kernel_size,
                padding=pad,
                bias=False,
                basis_filter=basis_filter,
            )
            norm = _on_parts(conv_type, enn.InnerBatchNorm, enn.NormBatchNorm)
            if out_type is last:
                activation = _on_parts(last, enn.ELU, enn.NormPool)
            elif gated:
                activation = GatedActivation(out_type)
            else:
                activation = _on_parts(out_type, enn.ELU, NormActivation)
            return nn.Sequential(conv, norm, activation)

        def pool(fields: Any) -> nn.Module:
            if pooling == "template":
                return FieldPool2d(average_pool())
            return _on_parts(
                fields, lambda t: enn.PointwiseMaxPool(t, 2), lambda t: enn.NormMaxPool(t, 2)
            )

        layers = stack_template(image, [*fields, last], padding, block, pool)
        features = SteerableFeatures(image, layers)
    return TemplateNetwork(
        features,
        last.size,
        num_classes,
        smallest_side(padding),
        global_pool="mean" if pooling == "template" else "max",
    )


def _angular_frequencies(element: dict[str, Any]) -> tuple[int, int, int]:
    """Frequencies of the input field, the output field and the kernel of a basis element."""
    # An irrep of SO(2) is named (m,), one of O(2) (parity, m).
    return element["in_irrep"][-1], element["out_irrep"][-1], element["irrep:frequency"]


def _difference_only(element: dict[str, Any]) -> bool:
    m, n, kernel = _angular_frequencies(element)
    return kernel == abs(n - m)


def _sum_only(element: dict[str, Any]) -> bool:
    m, n, kernel = _angular_frequencies(element)
    return kernel == n + m


_KERNEL_FILTERS: dict[str, Filter | None] = {
    "full": None,
    "difference": _difference_only,
    "sum": _sum_only,
}


def _repeat(space: Any, representations: list[Any], count: int) -> Any:
    """`count` fields of each representation, equal ones side by side."""
    return enn.FieldType(space, [r for r in representations for _ in range(count)])


def _split(fields: Any) -> tuple[list[Any], list[Any]]:
    """The representations of the invariant scalars and those of the other fields."""
    scalars = [field for field in fields if field.is_trivial()]
    return scalars, [field for field in fields if not field.is_trivial()]


def _on_parts(
    fields: Any, on_scalars: Callable[[Any], nn.Module], on_others: Callable[[Any], nn.Module]
) -> nn.Module:
    """One module for the invariant scalars, which come first, another for all other fields."""
    scalars, others = _split(fields)
    scalar_type = enn.FieldType(fields.gspace, scalars)
    if not others:
        return on_scalars(scalar_type)
    other_type = enn.FieldType(fields.gspace, others)
    labels = len(scalars) * ["scalars"] + len(others) * ["others"]
    parts = [(on_scalars(scalar_type), "scalars"), (on_others(other_type), "others")]
    return enn.MultipleModule(fields, labels, parts)


class SteerableConv(enn.R2Conv):
    """`escnn.nn.R2Conv` whose checkpoint holds its weights alone, in either mode.

    escnn stores the expanded filter in evaluation mode and drops it in training mode, so that the
    keys of `state_dict` depend on the mode and loading in evaluation mode would leave the old
    filter in use. Here the filter is no part of the checkpoint and follows what is loaded.
    """

    def __init__(self, in_type: Any, out_type: Any, kernel_size: int, **options: Any) -> None:
        # With recompute=False layers and models share the tables of sampled kernels, and moving
        # one model to another device or dtype would move the tables of all.
        super().__init__(in_type, out_type, kernel_size, recompute=True, **options)
        self.train()
        self.register_load_state_dict_post_hook(_refresh_filter)

    def train(self, mode: bool = True) -> "SteerableConv":
        """Switch to training or evaluation mode."""
        # The stored filter is a copy for inference: without this it would keep a graph alive.
        with torch.no_grad():
            super().train(mode)
        _make_transient(self)
        return self


def _refresh_filter(conv: SteerableConv, _: Any) -> None:
    if not conv.training:
        conv.train()
        conv.eval()


def _make_transient(module: nn.Module) -> None:
    """Keep buffers that are fixed or follow from the weights out of the checkpoint."""
    for name, buffer in list(module.named_buffers(recurse=False)):
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            module.register_buffer(name, buffer, persistent=False)


class SteerableFeatures(nn.Module):
    """Layers of escnn as a module from images to feature maps.

    Args:
        image: the field type of the images.
        layers: modules that pass on escnn's geometric tensors.
    """

    def __init__(self, image: Any, layers: nn.Sequential) -> None:
        super().__init__()
        self.image = image
        self.layers = layers
        for module in layers.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                if not parameter.requires_grad:
                    # Constants that escnn registers as parameters: none to count or to train.
                    delattr(module, name)
                    module.register_buffer(name, parameter.detach())
            _make_transient(module)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) to (N, channels, h, w)."""
        maps: Tensor = self.layers(enn.GeometricTensor(x, self.image)).tensor
        return maps


class FieldPool2d(nn.Module):
    """A pooling that treats all channels alike, for fields of any kind."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Any) -> Any:
        """Halve the side of every map."""
        return enn.GeometricTensor(self.pool(x.tensor), x.type)


class NormActivation(enn.NormNonLinearity):
    """`escnn.nn.NormNonLinearity`: each field f becomes max(|f| - b, 0) f / |f|, b > 0 is learned.

    escnn's own takes a fifth of a training step and half of an inference, nearly all in
    `torch.linalg.vector_norm`, which is slow along a dimension of one or two channels; a sum of
    squares is not.

    Args:
        fields: fields without invariant scalars, those of one size side by side, small ones first.
    """

    def forward(self, x: Any) -> Any:
        """Shrink every field."""
        sizes = [size * self._nfields[size] for size in self._order]
        counts = [self._nfields[size] for size in self._order]
        biases = self.log_bias.exp().unsqueeze(2).split(counts, dim=1)
        parts = x.tensor.split(sizes, dim=1)
        shrunk = [
            self._shrink(part.unflatten(1, (-1, size)), bias).flatten(1, 2)
            for part, size, bias in zip(parts, self._order, biases)
        ]
        return enn.GeometricTensor(torch.cat(shrunk, dim=1), self.out_type)

    def _shrink(self, fields: Tensor, bias: Tensor) -> Tensor:
        # No slope at fields that are zero, where that of the norm is infinite.
        norms = fields.square().sum(2, keepdim=True).clamp_min(_LEAST_POWER).sqrt()
        return fields * ((norms - bias).relu() / norms)


class GatedActivation(nn.Module):
    """ELU on scalars; each other field times the sigmoid of a gate of its own.

    Takes scalars, one scalar gate for each other field, and the other fields, in this order;
    gives scalars and other fields.

    Args:
        out_type: the scalars and the other fields, without the gates.
    """

    def __init__(self, out_type: Any) -> None:
        super().__init__()
        self.out_type = out_type
        scalars, others = _split(out_type)
        channels = torch.tensor([field.size for field in others])
        self.sizes = [len(scalars), len(others), int(channels.sum())]
        gate_of_channel = torch.arange(len(others)).repeat_interleave(channels)
        self.register_buffer("gate_of_channel", gate_of_channel, persistent=False)
        self.gate_of_channel: Tensor

    def forward(self, x: Any) -> Any:
        """Apply the gates and drop them."""
        scalars, gates, others = x.tensor.split(self.sizes, dim=1)
        opened = others * gates.sigmoid()[:, self.gate_of_channel]
        activated = torch.cat([nn.functional.elu(scalars), opened], dim=1)
        return enn.GeometricTensor(activated, self.out_type)


@contextlib.contextmanager
def quiet_escnn() -> Iterator[None]:
    """Let escnn build without its prints, and with an exact SVD.

    It prints progress and notes on empty kernel spaces. For O(2) it solves for null spaces, with
    scikit-learn's *randomised* SVD if that is installed: a result that changes from run to run,
    and an error in versions of scikit-learn that refuse `numpy.matrix`. Without scikit-learn it
    takes the exact SVD of scipy.
    """
    randomized_svd = escnn_numerical.randomized_svd
    escnn_numerical.randomized_svd = None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        escnn_numerical.randomized_svd = randomized_svd
