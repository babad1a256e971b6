"""The one architecture that the paper gives to every method it compares.

Six convolutions (k = 9, 7, 7, 7, 7, 7) of 8, 16, 24, 24, 32, 40 channels times a width, each
followed by normalisation and activation; 2 x 2 pooling after the second and the fourth; a global
pooling and one dense layer. What differs between images is the padding alone.

Average pooling is `average_pool`: on maps with an odd side, windows of 2 x 2 pixels that start at
one corner would drop the last row and column, a turned image would be pooled on another grid, and
quarter turns would no longer be exact. Of the paper's images that concerns those of 128 pixels,
whose second pooled maps have 45.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from torch import Tensor, nn

from besselnet.functional._basis import check_choice
from besselnet.nn import BlurPool2d

__all__ = [
    "CHANNELS",
    "KERNEL_SIZES",
    "PADDINGS",
    "TemplateNetwork",
    "Width",
    "average_pool",
    "choose_padding",
    "pooled_sides",
    "scaled_channels",
    "smallest_side",
    "stack_template",
]

KERNEL_SIZES = (9, 7, 7, 7, 7, 7)
CHANNELS = (8, 16, 24, 24, 32, 40)
PADDINGS = {
    "mnist": (4, 3, 3, 3, 3, 0),
    "malaria": (4, 3, 3, 0, 0, 0),
    "galaxy10": (0, 0, 0, 0, 0, 0),
}
_POOL_AFTER = (1, 3)

Width = float | Sequence[int]
Fields = TypeVar("Fields")


def choose_padding(image_size: int, padding_scheme: str | None = None) -> tuple[int, ...]:
    """Padding of the six convolutions: the named scheme, or the one for images of this size.

    The paper's images have 28 (mnist), 64 (malaria) and 128 (galaxy10) pixels; a size between
    takes the scheme of the next smaller kind. `ValueError` if the scheme leaves nothing of the
    image.
    """
    if padding_scheme is None:
        padding_scheme = (
            "mnist" if image_size < 64 else "malaria" if image_size < 128 else "galaxy10"
        )
    check_choice("padding_scheme", padding_scheme, tuple(PADDINGS))
    padding = PADDINGS[padding_scheme]
    least = smallest_side(padding)
    if image_size < least:
        raise ValueError(
            f"image_size is {image_size}; padding_scheme={padding_scheme!r} needs at least {least}"
        )
    return padding


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
        if len(width) == len(CHANNELS) and all(_is_count(channels) for channels in width):
            return tuple(width)
    elif isinstance(width, int | float) and not isinstance(width, bool) and width > 0:
        # 40 * 0.725 is 29 on paper and 28.999... in floating point.
        return tuple(max(1, int(channels * width + 1e-9)) for channels in CHANNELS)
    raise ValueError(f"width={width!r}: allowed are a number > 0 or six integers >= 1")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


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
        fields: the same for the output of each of the six blocks.
        padding: padding of each of the six blocks.
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
    """2 x 2 averages on a grid centred on the maps; on even sides `nn.AvgPool2d(2)`."""
    return BlurPool2d(2, sigma=0)


class TemplateNetwork(nn.Module):
    """Feature maps, global pooling, one dense layer.

    Args:
        features: maps images (N, in_channels, H, W) to feature maps (N, channels, h, w).
        channels: channels of the feature maps.
        num_classes: length of the logits.
        smallest_size: smallest side of an image that `features` can take.
        global_pool: mean or maximum over the pixels of the feature maps.
    """

    def __init__(
        self,
        features: nn.Module,
        channels: int,
        num_classes: int,
        smallest_size: int,
        global_pool: Literal["mean", "max"] = "mean",
    ) -> None:
        super().__init__()
        self.features = features
        self.head = nn.Linear(channels, num_classes)
        self.smallest_size = smallest_size
        self.global_pool = global_pool

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to feature maps (N, channels, h, w)."""
        if x.ndim != 4 or min(x.shape[-2:]) < self.smallest_size:
            raise ValueError(
                f"the images have the shape {tuple(x.shape)}; (N, C, H, W) with H and W of at "
                f"least {self.smallest_size} is needed"
            )
        maps: Tensor = self.features(x)
        return maps

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to logits (N, num_classes)."""
        maps = self.forward_features(x)
        pooled = maps.mean((-2, -1)) if self.global_pool == "mean" else maps.amax((-2, -1))
        logits: Tensor = self.head(pooled)
        return logits
