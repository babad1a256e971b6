"""The one architecture that the paper gives to every method it compares, and the frame of all networks here.

Six convolutions (k = 9, 7, 7, 7, 7, 7) of 8, 16, 24, 24, 32, 40 channels times a width, each
followed by normalisation and activation; 2 x 2 pooling after the second and the fourth; a global
pooling and one dense layer. What differs between images is the padding alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_count, check_images, check_number
from besselnet.models._registry import note_classes
from besselnet.nn import BesselConv2d, BlurPool2d

__all__ = [
    "CHANNELS",
    "KERNEL_SIZES",
    "PADDINGS",
    "SIZES",
    "FeatureMaps",
    "FeatureNetwork",
    "Stage",
    "TemplateNetwork",
    "Width",
    "average_pool",
    "channels_taken",
    "choose_padding",
    "feature_maps",
    "pooled_sides",
    "scaled_channels",
    "smallest_side",
    "stack_template",
    "template_network",
]

KERNEL_SIZES = (9, 7, 7, 7, 7, 7)
CHANNELS = (8, 16, 24, 24, 32, 40)
PADDINGS = {
    "mnist": (4, 3, 3, 3, 3, 0),
    "malaria": (4, 3, 3, 0, 0, 0),
    "galaxy10": (0, 0, 0, 0, 0, 0),
}
# Which images the template takes, for `register_model`.
SIZES = "at least 28 (mnist padding), 64 (malaria) or 90 (galaxy10)"
_POOL_AFTER = (1, 3)
# Hundreds of times what the networks here have.
LARGEST_WIDTH = 1000.0

Width = float | Sequence[int]
Fields = TypeVar("Fields")


class Stage(NamedTuple):
    """Layers of a network that work at one resolution: the last of them, and the maps that it gives."""

    layer: int
    """Its place in the network's `features`."""
    channels: int
    reduction: int
    """Pixels of the image from one pixel of the maps to the next."""


def choose_padding(image_size: int, padding_scheme: str | None = None) -> tuple[int, ...]:
    """Padding of the six convolutions: the named scheme, or the one for images of this size.

    The paper's images have 28 (mnist), 64 (malaria) and 128 (galaxy10) pixels; a size between
    takes the scheme of the next smaller kind. `ValueError` if the scheme leaves nothing of the
    image.
    """
    usual = "mnist" if image_size < 64 else "malaria" if image_size < 128 else "galaxy10"
    scheme = usual if padding_scheme is None else padding_scheme
    check_choice("padding_scheme", scheme, tuple(PADDINGS))
    least = smallest_side(PADDINGS[scheme])
    if image_size < least:
        raise ValueError(
            f"image_size={image_size}: must be at least {least} for padding_scheme={scheme!r}"
        )
    return PADDINGS[scheme]


def pooled_sides(image_size: int, padding: Sequence[int]) -> list[int]:
    """Sides of the maps that enter the two poolings, then the side of the last maps."""
    sides, side = [], image_size
    for layer, (kernel_size, pad) in enumerate(zip(KERNEL_SIZES, padding)):
        side += 2 * pad - kernel_size + 1
        if layer in _POOL_AFTER:
            sides.append(side)
            side //= 2
    return [*sides, side]


def smallest_side(padding: Sequence[int]) -> int:
    """The smallest image side that leaves at least one pixel before the global pooling."""
    return next(side for side in range(1, 1000) if pooled_sides(side, padding)[-1] >= 1)


def scaled_channels(width: Width) -> tuple[int, ...]:
    """Channels (or fields) of the six layers.

    A number multiplies `CHANNELS`, rounded down as in the experiments of the paper; six integers
    are taken as they are.
    """
    if isinstance(width, Sequence) and not isinstance(width, str):
        if len(width) != len(CHANNELS):
            raise ValueError(f"width={width!r}: must be a number > 0 or six integers >= 1")
        return tuple(check_count("width", channels) for channels in width)
    factor = check_number("width", width, above=0, most=LARGEST_WIDTH)
    # 40 * 0.725 is 29 on paper and 28.999... in floating point.
    return tuple(max(1, int(channels * factor + 1e-9)) for channels in CHANNELS)


def stack_template(
    in_fields: Fields,
    fields: Sequence[Fields],
    padding: Sequence[int],
    block: Callable[[Fields, Fields, int, int], nn.Module],
    pool: Callable[[Fields], nn.Module],
) -> nn.Sequential:
    """The six convolutions and two poolings of the template.

    Args:
        in_fields: what the images are made of: a number of channels, or whatever else says it in
            the family of layers that `block` uses.
        fields, padding: output and padding of each of the six blocks.
        block: `block(in_fields, out_fields, kernel_size, padding)` gives convolution,
            normalisation and activation.
        pool: `pool(fields)` halves the side of maps.
    """
    layers = []
    for layer, (out_fields, kernel_size, pad) in enumerate(zip(fields, KERNEL_SIZES, padding)):
        layers.append(block(in_fields, out_fields, kernel_size, pad))
        if layer in _POOL_AFTER:
            layers.append(pool(out_fields))
        in_fields = out_fields
    return nn.Sequential(*layers)


def average_pool() -> nn.Module:
    """2 x 2 averages on a grid centred on the maps; on even sides `nn.AvgPool2d(2)`.

    On an odd side, windows that start at one corner would drop the last row and column, a rotated image
    would be pooled on another grid, and quarter turns would no longer be exact. Of the paper's images that
    concerns those of 128 pixels, whose second pooled maps have 45.
    """
    return BlurPool2d(2, sigma=0)


class FeatureNetwork(nn.Module, ABC):
    """Feature maps and a last layer: what all networks here share.

    A subclass says what the last layer is (`make_head`) and how it is applied (`classify`).

    Args:
        features: maps images (N, in_channels, H, W) to feature maps (N, channels, h, w).
        channels: channels of the feature maps, kept as ``num_features``.
        num_classes: logits; 0 for no last layer.
        smallest_size: smallest side of an image that `features` can take.
        stages: of `encoder`, for `FeatureMaps`.
    """

    def __init__(
        self,
        features: nn.Module,
        channels: int,
        num_classes: int,
        smallest_size: int,
        stages: Sequence[Stage] = (),
    ) -> None:
        super().__init__()
        self.features = features
        self.in_channels = channels_taken(features)
        self.num_features = channels
        self.head = self.make_head(channels, num_classes) if num_classes else nn.Identity()
        self.smallest_size = smallest_size
        self.stages = tuple(stages)

    @staticmethod
    @abstractmethod
    def make_head(channels: int, num_classes: int) -> nn.Module:
        """The last layer."""

    @abstractmethod
    def classify(self, maps: Tensor) -> Tensor:
        """Feature maps (N, num_features, h, w) to what `forward` gives."""

    @property
    def encoder(self) -> nn.Module:
        """The layers that `stages` count, for `FeatureMaps`."""
        return self.features

    def get_classifier(self) -> nn.Module:
        """The last layer; `nn.Identity` where there is none."""
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        """Put a fresh last layer for another number of classes in place of the last one; 0 for none."""
        check_count("num_classes", num_classes, 0)
        like = next(self.features.parameters(), torch.empty(0))
        fresh = self.make_head(self.num_features, num_classes) if num_classes else nn.Identity()
        self.head = fresh.to(like.device, like.dtype)
        note_classes(self, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to feature maps (N, num_features, h, w)."""
        return feature_maps(self.features, x, self.smallest_size, self.in_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to logits, or what the last layer would take."""
        return self.classify(self.forward_features(x))

    def extra_repr(self) -> str:
        return f"smallest_size={self.smallest_size}"


class TemplateNetwork(FeatureNetwork):
    """Feature maps, global pooling, one dense layer: logits (N, num_classes), or features (N, num_features).

    Args:
        features, channels, num_classes, smallest_size, stages: as in `FeatureNetwork`.
        global_pool: mean or maximum over the pixels of the feature maps.
    """

    def __init__(
        self,
        features: nn.Module,
        channels: int,
        num_classes: int,
        smallest_size: int,
        global_pool: Literal["mean", "max"] = "mean",
        stages: Sequence[Stage] = (),
    ) -> None:
        super().__init__(features, channels, num_classes, smallest_size, stages)
        self.global_pool = global_pool

    @staticmethod
    def make_head(channels: int, num_classes: int) -> nn.Module:
        return nn.Linear(channels, num_classes)

    def classify(self, maps: Tensor) -> Tensor:
        pooled = maps.mean((-2, -1)) if self.global_pool == "mean" else maps.amax((-2, -1))
        logits: Tensor = self.head(pooled)
        return logits

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, global_pool={self.global_pool}"


def template_network(
    block: Callable[[int, int, int, int], nn.Module],
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: Width,
    padding_scheme: str | None = None,
) -> TemplateNetwork:
    """The paper's template with average pooling of `block`s, see `stack_template`.

    Args:
        width: factor on the channels, or the six numbers of channels.
        padding_scheme: "mnist", "malaria" or "galaxy10"; by default the one for `image_size`.
    """
    channels = scaled_channels(width)
    padding = choose_padding(image_size, padding_scheme)
    ends = [*_POOL_AFTER, len(channels) - 1]
    return TemplateNetwork(
        stack_template(in_channels, channels, padding, block, lambda _: average_pool()),
        channels[-1],
        num_classes,
        smallest_side(padding),
        # Each pooling before a block moves it on by one place.
        stages=[Stage(end + n, channels[end], 2**n) for n, end in enumerate(ends)],
    )


class FeatureMaps(nn.Module):
    """The maps of every stage of a network, for segmentation, detection and the like.

    Args:
        network: whose layers are used, not copied.

    Attributes:
        feature_info: for each map a dict of "num_chs", its channels; "reduction", the pixels of the image
            from one pixel of the map to the next; "module", the layer that gives it.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        staged: Any = network
        stages: Any = getattr(network, "stages", ())
        # Networks of others may call something else their stages.
        if not isinstance(stages, tuple) or not stages:
            raise ValueError(
                f"a {type(network).__name__} does not tell its stages: take a network that does, such as "
                "the `pruned()` of a 'besselnet_gated'"
            )
        layers = list(staged.encoder.children())
        self.features = nn.Sequential(*layers[: stages[-1].layer + 1])
        self.smallest_size: int = staged.smallest_size
        self.in_channels: int | None = staged.in_channels
        self.feature_info: list[dict[str, Any]] = [
            {"num_chs": channels, "reduction": reduction, "module": f"features.{layer}"}
            for layer, channels, reduction in stages
        ]
        self._layers = {stage.layer for stage in stages}

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images (N, in_channels, H, W) to a list of maps (N, channels, h, w), the largest first."""
        return self.maps(_prepared(x, self.smallest_size, self.in_channels))

    def maps(self, x: Tensor) -> list[Tensor]:
        """`forward` without the check of the images."""
        maps = []
        for number, layer in enumerate(self.features):
            x = layer(x)
            if number in self._layers:
                maps.append(x)
        return maps


def feature_maps(
    features: nn.Module, x: Tensor, smallest_size: int, channels: int | None
) -> Tensor:
    """What `features` makes of images, and a `ValueError` in words where it cannot take them.

    Args:
        x: images (N, channels, H, W).
        smallest_size: that H and W must have.
        channels: None where the layers tell.
    """
    x = _prepared(x, smallest_size, channels)
    try:
        maps: Tensor = features(x)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            f"the images have the shape {tuple(x.shape)}: must be at least 2 in training, where the "
            "last maps, of one pixel, are normalised over the images: choose another batch size"
        ) from error
    return maps


def channels_taken(features: nn.Module) -> int | None:
    """Channels of the images, where the first layer that learns is a convolution that tells."""
    learning = (
        m for m in features.modules() if next(m.parameters(recurse=False), None) is not None
    )
    first = next(learning, None)
    return first.in_channels if isinstance(first, nn.Conv2d | BesselConv2d) else None


def _prepared(x: Tensor, smallest_size: int, channels: int | None) -> Tensor:
    """The images, on the CPU in channels-last memory, where its convolutions are faster.

    Refuses what a network cannot take; ``channels`` is None where its layers tell.
    """
    check_images("images", x)
    fits = x.ndim == 4 and (x.shape[1] == channels or (channels is None and x.shape[1]))
    if not fits or min(x.shape[-2:]) < smallest_size:
        raise ValueError(
            f"the images have the shape {tuple(x.shape)}: must be (N, {channels or 'C'}, H, W) with H and W "
            f"of at least {smallest_size}"
        )
    return x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x
