"""The architecture that the paper uses for every method, and the base classes of all networks here.

Six convolutions (k = 9, 7, 7, 7, 7, 7) with 8, 16, 24, 24, 32, 40 channels times a width, each
followed by normalisation and activation; 2 x 2 pooling after the second and the fourth; global pooling
and a linear layer. Only the padding depends on the image size.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_count, check_images, check_number
from besselnet.functional import rotate_alike
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
    """One resolution of a network: its last layer, and the feature maps of that layer."""

    layer: int
    """Index of the layer in `features` of the network."""
    channels: int
    reduction: int
    """Downsampling factor: distance of neighbouring map pixels in pixels of the image."""


def choose_padding(image_size: int, padding_scheme: str | None = None) -> tuple[int, ...]:
    """Return the padding of the six convolutions, for the named scheme or for images of this size.

    The paper's images have 28 (mnist), 64 (malaria) and 128 (galaxy10) pixels. Sizes between them use
    the scheme of the next smaller one. Raises `ValueError` if the image is too small for the scheme.
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
    """Return the input sizes of the two pooling layers, then the size of the last feature maps."""
    sides, side = [], image_size
    for layer, (kernel_size, pad) in enumerate(zip(KERNEL_SIZES, padding)):
        side += 2 * pad - kernel_size + 1
        if layer in _POOL_AFTER:
            sides.append(side)
            side //= 2
    return [*sides, side]


def smallest_side(padding: Sequence[int]) -> int:
    """Return the smallest image side that leaves at least one pixel before global pooling."""
    return next(side for side in range(1, 1000) if pooled_sides(side, padding)[-1] >= 1)


def scaled_channels(width: Width) -> tuple[int, ...]:
    """Return the channels (or fields) of the six layers.

    A number multiplies `CHANNELS`, rounded down as in the experiments of the paper. Six integers are
    returned unchanged.
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
    """Return the six convolutions and two pooling layers of the template.

    Args:
        in_fields: number of image channels, or its equivalent for the layers of `block`.
        fields, padding: output and padding of each of the six blocks.
        block: `block(in_fields, out_fields, kernel_size, padding)` returns convolution, normalisation
            and activation.
        pool: `pool(fields)` returns a layer that halves the size of feature maps.
    """
    layers = []
    for layer, (out_fields, kernel_size, pad) in enumerate(zip(fields, KERNEL_SIZES, padding)):
        layers.append(block(in_fields, out_fields, kernel_size, pad))
        if layer in _POOL_AFTER:
            layers.append(pool(out_fields))
        in_fields = out_fields
    return nn.Sequential(*layers)


def average_pool() -> nn.Module:
    """Return 2 x 2 average pooling on a grid centred on the maps; for even sizes, this is `nn.AvgPool2d(2)`.

    For odd sizes, windows that start at a corner would drop the last row and column. A rotated image would
    be pooled on another grid, and quarter turns would not be exact. Of the paper's images, this concerns
    those of 128 pixels: their second pooling has an input of 45 pixels.
    """
    return BlurPool2d(2, sigma=0)


class FeatureNetwork(nn.Module, ABC):
    """Base class of all networks here: feature maps and a last layer.

    A subclass defines the last layer (`make_head`) and applies it (`classify`).

    Args:
        features: maps images (N, in_channels, H, W) to feature maps (N, channels, h, w).
        channels: channels of the feature maps, stored as ``num_features``.
        num_classes: number of logits; 0 for no last layer.
        smallest_size: smallest image side that `features` accepts.
        stages: stages of `encoder`, for `FeatureMaps`.
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
        """Return a new last layer."""

    @abstractmethod
    def classify(self, maps: Tensor) -> Tensor:
        """Map feature maps (N, num_features, h, w) to the output of `forward`."""

    @property
    def encoder(self) -> nn.Module:
        """The layers that `stages` refer to, for `FeatureMaps`."""
        return self.features

    def get_classifier(self) -> nn.Module:
        """Return the last layer; `nn.Identity` if there is none."""
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer by a new one with `num_classes` outputs; 0 removes it."""
        check_count("num_classes", num_classes, 0)
        like = next(self.features.parameters(), torch.empty(0))
        fresh = self.make_head(self.num_features, num_classes) if num_classes else nn.Identity()
        self.head = fresh.to(like.device, like.dtype)
        note_classes(self, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (N, in_channels, H, W) to feature maps (N, num_features, h, w)."""
        return feature_maps(self.features, x, self.smallest_size, self.in_channels)

    def answer(self, x: Tensor) -> Tensor:
        """Compute `forward` without checking the images."""
        return self.classify(self.features(x))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, in_channels, H, W) to logits, or to the input of the last layer if there is none."""
        return self.classify(self.forward_features(x))

    def extra_repr(self) -> str:
        return f"smallest_size={self.smallest_size}"


class TemplateNetwork(FeatureNetwork):
    """Classifier: feature maps, global pooling and a linear layer.

    Returns logits (N, num_classes), or features (N, num_features) if `num_classes` is 0.

    Args:
        features, channels, num_classes, smallest_size, stages: as in `FeatureNetwork`.
        global_pool: mean or maximum over the pixels of the feature maps.
        rotations: in eval mode, number of rotated copies of an image whose logits are averaged.
    """

    def __init__(
        self,
        features: nn.Module,
        channels: int,
        num_classes: int,
        smallest_size: int,
        global_pool: Literal["mean", "max"] = "mean",
        stages: Sequence[Stage] = (),
        rotations: int = 1,
    ) -> None:
        super().__init__(features, channels, num_classes, smallest_size, stages)
        self.global_pool = global_pool
        self.rotations = rotations

    @staticmethod
    def make_head(channels: int, num_classes: int) -> nn.Module:
        return nn.Linear(channels, num_classes)

    def classify(self, maps: Tensor) -> Tensor:
        pooled = maps.mean((-2, -1)) if self.global_pool == "mean" else maps.amax((-2, -1))
        logits: Tensor = self.head(pooled)
        return logits

    def answer(self, x: Tensor) -> Tensor:
        return self._averaged(super().answer, x)

    def forward(self, x: Tensor) -> Tensor:
        return self._averaged(super().forward, x)

    def _averaged(self, answer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Mean of the answers for images and, in eval mode, for their rotated copies.

        Quarter turns are exact already, so the angles divide 90 degrees.
        """
        logits = answer(x)
        if self.training or self.rotations == 1:
            return logits
        for number in range(1, self.rotations):
            logits = logits + answer(rotate_alike(x, 90 * number / self.rotations))
        return logits / self.rotations

    def extra_repr(self) -> str:
        shown = f"{super().extra_repr()}, global_pool={self.global_pool}"
        return f"{shown}, rotations={self.rotations}" if self.rotations > 1 else shown


def template_network(
    block: Callable[[int, int, int, int], nn.Module],
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: Width,
    padding_scheme: str | None = None,
) -> TemplateNetwork:
    """Return the paper's template with average pooling, made of `block`, see `stack_template`.

    Args:
        width: multiplier for the number of channels, or six numbers of channels.
        padding_scheme: "mnist", "malaria" or "galaxy10". Default: chosen from `image_size`.
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
    """Multi-scale feature extractor: the feature maps of every stage, for segmentation or detection.

    Args:
        network: the network; its layers are shared, not copied.

    Attributes:
        feature_info: one dict per feature map with "num_chs", its channels; "reduction", its downsampling
            factor; "module", the layer that returns it.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        staged: Any = network
        stages: Any = getattr(network, "stages", ())
        # Networks of others may call something else their stages.
        if not isinstance(stages, tuple) or not stages:
            raise ValueError(
                f"a {type(network).__name__} does not define stages: use a network that does, such as "
                "`pruned()` of a 'besselnet_gated'"
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
        """Map images (N, in_channels, H, W) to feature maps (N, channels, h, w), the largest first."""
        return self.maps(_prepared(x, self.smallest_size, self.in_channels))

    def maps(self, x: Tensor) -> list[Tensor]:
        """Compute `forward` without checking the images."""
        maps = []
        for number, layer in enumerate(self.features):
            x = layer(x)
            if number in self._layers:
                maps.append(x)
        return maps


def feature_maps(
    features: nn.Module, x: Tensor, smallest_size: int, channels: int | None
) -> Tensor:
    """Return the feature maps of images; raise a clear `ValueError` if `features` cannot process them.

    Args:
        features: the layers.
        x: images (N, channels, H, W).
        smallest_size: minimum of H and W.
        channels: number of image channels. Default: as the layers define it.
    """
    x = _prepared(x, smallest_size, channels)
    try:
        maps: Tensor = features(x)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            f"the images have shape {tuple(x.shape)}: must be at least 2 images in training, because "
            "the last maps have one pixel and are batch-normalised: choose another batch size"
        ) from error
    return maps


def channels_taken(features: nn.Module) -> int | None:
    """Return the number of image channels if the first layer with parameters is a convolution."""
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
            f"the images have shape {tuple(x.shape)}: must be (N, {channels or 'C'}, H, W) with H and W "
            f"at least {smallest_size}"
        )
    return x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x
