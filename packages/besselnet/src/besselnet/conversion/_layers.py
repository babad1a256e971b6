"""Replace single layers by equivariant ones, or explain why a layer is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

from torch import nn

from besselnet.checks import check_choice, check_count, check_number, check_pair
from besselnet.conversion._report import LayerChange
from besselnet.functional import RESPONSES, BasisSpec, Response
from besselnet.nn import BesselConv2d, BlurPool2d, window_stride

__all__ = [
    "ENLARGED",
    "REPAIRS",
    "Options",
    "change",
    "count_parameters",
    "pair",
    "repaired_pool",
    "replacement",
]

Repair = Literal["stride", "pool", "padding", "transpose", "flatten"]
REPAIRS: tuple[str, ...] = get_args(Repair)
# A kernel of 3 pixels has 3 weights with the strong cut-off, one of 5 has 6.
ENLARGED: Mapping[int, int] = MappingProxyType({3: 5})
_POOLS = (nn.MaxPool2d, nn.AvgPool2d)


@dataclass(frozen=True)
class Options:
    """The checked options of `convert`."""

    image_size: int | None = None
    in_channels: int | None = None
    symmetry: str = "SO(2)"
    cutoff: str | float = "strong"
    scales: Sequence[int] | None = None
    response: Response = "signed"
    sampling: str = "cubic"
    kernel_size: int | Mapping[int, int] = field(default_factory=lambda: ENLARGED)
    keep: Sequence[str] = ()
    repair: Sequence[str] | str = ()
    width: float = 1.0

    def __post_init__(self) -> None:
        # The largest offset that the smallest kernel allows is found by the layers themselves.
        BasisSpec.checked(
            99,
            symmetry=self.symmetry,
            cutoff=self.cutoff,
            sampling=self.sampling,
            scales=self.scales,
        )
        check_choice("response", self.response, RESPONSES)
        if self.image_size is not None:
            check_count("image_size", self.image_size)
        check_number("width", self.width, above=0)
        if not isinstance(self.repairs, Sequence) or set(self.repairs) - set(REPAIRS):
            allowed = ", ".join(map(repr, REPAIRS))
            raise ValueError(f"repair={self.repair!r}: must be 'all' or a list of {allowed}")
        if not isinstance(self.kernel_size, Mapping):
            check_count("kernel_size", self.kernel_size)
            return
        for size, enlarged in self.kernel_size.items():
            check_count("kernel_size", size)
            check_count(f"kernel_size[{size}]", enlarged)
            if (enlarged - size) % 2:
                raise ValueError(
                    f"kernel_size={dict(self.kernel_size)}: {size} -> {enlarged} would shift the "
                    "centre by half a pixel; sizes must change by an even number"
                )

    @property
    def repairs(self) -> Sequence[str]:
        """`repair` as a list."""
        return REPAIRS if self.repair == "all" else self.repair

    def enlarged(self, size: int) -> int:
        """The kernel size for a convolution of this size, of the same parity."""
        if isinstance(self.kernel_size, int):
            return size + max(0, -((size - self.kernel_size) // 2) * 2)
        return self.kernel_size.get(size, size)

    def conv(self, in_channels: int, out_channels: int, size: int, **settings: Any) -> BesselConv2d:
        return BesselConv2d(
            in_channels,
            out_channels,
            size,
            **settings,
            symmetry=self.symmetry,
            cutoff=self.cutoff,
            scales=self.scales,
            response=self.response,
            sampling=self.sampling,
        )


def replacement(layer: nn.Module, options: Options) -> nn.Module | str | None:
    """Return the replacement of `layer`, or why it is kept, or None for other kinds of layers."""
    if isinstance(layer, nn.ConvTranspose2d):
        return _untransposed(layer, options)
    if isinstance(layer, nn.Conv2d):
        return _bessel(layer, options)
    if isinstance(layer, _POOLS) and "pool" in options.repairs:
        return repaired_pool(layer)
    return None


def _bessel(conv: nn.Conv2d, options: Options) -> nn.Module | str:
    obstacle = _obstacle(conv)
    if obstacle:
        return obstacle
    size, stride, dilation = conv.kernel_size[0], conv.stride[0], conv.dilation[0]
    blur = stride > 1 and "stride" in options.repairs
    settings: dict[str, Any] = {
        "groups": conv.groups,
        "bias": conv.bias is not None,
        "padding_mode": conv.padding_mode,
        "device": conv.weight.device,
        "dtype": conv.weight.dtype,
    }
    if size == 1:
        if stride > 1 and not blur:
            return f"1 x 1 with stride {stride}: only its sampling grid can break the symmetry"
        if not blur:
            return "1 x 1: already equivariant"
        # Sampling first gives the same maps for a fraction of the work.
        padding = _padding(conv)
        point = nn.Conv2d(conv.in_channels, conv.out_channels, 1, padding=padding, **settings)
        point.load_state_dict(conv.state_dict())
        return nn.Sequential(BlurPool2d(stride, ceil_mode=True), point)
    if conv.padding == "same" and (size - 1) * dilation % 2 and "padding" in options.repairs:
        size += 1
    enlarged = options.enlarged(size)
    # The padding grows with the kernel, so that maps keep their size.
    padding = _padding(conv) + (enlarged - size) // 2 * dilation
    if padding < 0:
        return f"its padding cannot be adapted to a kernel of {enlarged} instead of {size} pixels"
    new = options.conv(
        conv.in_channels,
        conv.out_channels,
        enlarged,
        stride=1 if blur else stride,
        padding="same" if conv.padding == "same" else padding,
        dilation=dilation,
        **settings,
    )
    return nn.Sequential(new, BlurPool2d(stride, ceil_mode=True)) if blur else new


def _untransposed(conv: nn.ConvTranspose2d, options: Options) -> nn.Module | str:
    """Bilinear enlargement and a Bessel convolution, where the maps grow by exactly the stride."""
    obstacle = _obstacle(conv)
    if obstacle:
        return obstacle
    if "transpose" not in options.repairs:
        return "a transposed convolution"
    stride, size = conv.stride[0], conv.kernel_size[0]
    reach = conv.dilation[0] * (size - 1) + 1
    growth = reach + pair(conv.output_padding)[0] - 2 * _padding(conv)
    if growth != stride:
        return f"a transposed convolution whose maps do not grow by its stride of {stride}"
    new = options.conv(
        conv.in_channels,
        conv.out_channels,
        options.enlarged(size + 1 - size % 2),
        padding="same",
        groups=conv.groups,
        bias=conv.bias is not None,
        device=conv.weight.device,
        dtype=conv.weight.dtype,
    )
    return nn.Sequential(
        nn.Upsample(scale_factor=stride, mode="bilinear", align_corners=False), new
    )


def _padding(conv: nn.Conv2d | nn.ConvTranspose2d) -> int:
    """Pixels that are added on each side; for "same" they depend on the kernel alone."""
    if conv.padding == "same":
        return conv.dilation[0] * (conv.kernel_size[0] - 1) // 2
    return 0 if isinstance(conv.padding, str) else conv.padding[0]


def _obstacle(conv: nn.Conv2d | nn.ConvTranspose2d) -> str | None:
    """Why a convolution cannot be replaced."""
    if type(conv) not in (nn.Conv2d, nn.ConvTranspose2d):
        return f"a subclass of nn.Conv2d ({type(conv).__name__}), whose arithmetic may differ"
    for setting in ("kernel_size", "stride", "dilation", "padding"):
        value = getattr(conv, setting)
        if not isinstance(value, str) and len(set(pair(value))) > 1:
            return f"{setting}={value}: rows and columns are not treated alike"
    return None


def repaired_pool(pool: nn.Module) -> nn.Module | str | None:
    """Return the `BlurPool2d` that replaces a strided max or average pooling layer, with the same sizes."""
    stride, size = window_stride(pool), pair(pool.kernel_size)
    if stride == (1, 1):
        return None
    if stride[0] != stride[1] or size[0] != size[1]:
        return "a pooling layer that does not treat rows and columns alike"
    if getattr(pool, "return_indices", False):
        return "a max pooling layer that returns indices"
    sizes = range(size[0], size[0] + 4 * stride[0])
    for ceil_mode in (False, True):
        if all(_pooled(pool, n) == (n + ceil_mode * (stride[0] - 1)) // stride[0] for n in sizes):
            return BlurPool2d(stride[0], ceil_mode=ceil_mode)
    return f"a pooling layer that does not shrink maps by its stride of {stride[0]}"


def _pooled(pool: Any, size: int) -> int:
    """Rows that are left of `size`."""
    span = pair(getattr(pool, "dilation", 1))[0] * (pair(pool.kernel_size)[0] - 1)
    padding, stride = pair(pool.padding)[0], window_stride(pool)[0]
    room = size + 2 * padding - span - 1
    if not pool.ceil_mode:
        return room // stride + 1
    rows = -(-room // stride) + 1
    # No window may begin in the padding behind the image.
    return rows - 1 if (rows - 1) * stride >= size + padding else rows


def change(name: str, before: nn.Module, after: nn.Module) -> LayerChange:
    """The entry of the report for a layer that was replaced."""
    counts = (count_parameters(before), count_parameters(after))
    return LayerChange(name, summary(before), summary(after), *counts)


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def pair(value: object) -> tuple[int, int]:
    """A setting for rows and for columns."""
    return check_pair("setting", value, least=0)


def summary(layer: nn.Module) -> str:
    """A layer in a few words."""
    if isinstance(layer, nn.Sequential):
        return " + ".join(map(summary, layer))
    kind = type(layer).__name__
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | BesselConv2d):
        text = f"{kind} {layer.in_channels}->{layer.out_channels}, "
        text += "x".join(map(str, layer.kernel_size))
        return text if layer.stride == (1, 1) else f"{text}, stride {layer.stride[0]}"
    if isinstance(layer, nn.Linear):
        return f"Linear {layer.in_features}->{layer.out_features}"
    if isinstance(layer, BlurPool2d):
        return f"BlurPool2d({layer.stride})"
    if isinstance(layer, _POOLS):
        return f"{kind} {pair(layer.kernel_size)[0]}, stride {window_stride(layer)[0]}"
    if isinstance(layer, nn.Upsample):
        return f"Upsample x{layer.scale_factor:g} {layer.mode}"
    return f"{kind}({layer.extra_repr()})"
