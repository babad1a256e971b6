"""Patches of images and their masks: where they lie, and how they are cut out."""

import math

import torch

from besselnet.data._imageset import IGNORED

# Half of the patches look for a class, so that rare classes are seen as often as common ones.
BY_CLASS = 0.5
# A patch must have this share of labelled pixels; so many places are tried for one.
LABELLED, TRIES = 0.5, 8


def classes_in(masks: torch.Tensor) -> torch.Tensor:
    """(N, 255) bool: which classes each of the masks (N, H, W) has."""
    counts = [torch.bincount(mask.flatten(), minlength=IGNORED + 1) for mask in masks]
    return torch.stack(counts)[:, :IGNORED] > 0


def draw_numbers(count: int, generator: torch.Generator) -> torch.Tensor:
    """(count, 2 + 2 TRIES): the random numbers, in [0, 1), that `place_patch` needs for so many patches."""
    return torch.rand(count, 2 + 2 * TRIES, generator=generator, dtype=torch.float64)


def place_patch(
    mask: torch.Tensor, present: torch.Tensor, patch: tuple[int, int], numbers: torch.Tensor
) -> tuple[int, int]:
    """The first row and column of a patch of a mask (H, W), from the random `numbers` of one patch.

    Half of the patches have a pixel of a class in their centre, or as near to it as the frame allows. The
    class is drawn uniformly from those that are `present` (255,), the pixel from those of the class. The
    other half lie anywhere. A patch that is mostly `IGNORED` is drawn again; of eight such patches, the one
    with the most labelled pixels is taken.
    """
    kind, choice, *places = numbers.tolist()
    (height, width), (rows, columns) = mask.shape, patch
    found = present.nonzero()[:, 0]
    pixels = None
    if kind < BY_CLASS and len(found):
        pixels = (mask == found[int(choice * len(found))]).flatten().nonzero()[:, 0]
    best, most = (0, 0), -1.0
    for down, across in zip(places[::2], places[1::2]):
        top, left = int(down * (height - rows + 1)), int(across * (width - columns + 1))
        if pixels is not None:
            row, column = divmod(int(pixels[int(down * len(pixels))]), width)
            top = min(max(row - rows // 2, 0), height - rows)
            left = min(max(column - columns // 2, 0), width - columns)
        seen = mask[top : top + rows, left : left + columns]
        labelled = (seen != IGNORED).float().mean().item()
        if labelled > most:
            best, most = (top, left), labelled
        if labelled >= LABELLED:
            break
    return best


def margins(patch: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns to add on each side of a patch, so that it can be rotated by any angle."""
    diagonal = math.hypot(*patch)
    return math.ceil((diagonal - patch[0]) / 2), math.ceil((diagonal - patch[1]) / 2)


def cut_out(
    image: torch.Tensor, corner: tuple[int, int], patch: tuple[int, int], margin: tuple[int, int]
) -> torch.Tensor:
    """The patch of (..., H, W) whose first pixel is `corner`, with a margin; mirrored beyond the frame."""
    rows, columns = (
        _mirrored(first - more, side + 2 * more, size)
        for first, side, more, size in zip(corner, patch, margin, image.shape[-2:])
    )
    return image[..., rows[:, None], columns]


def centre(images: torch.Tensor, margin: tuple[int, int]) -> torch.Tensor:
    """Images (..., H, W) without their margin."""
    height, width = images.shape[-2:]
    return images[..., margin[0] : height - margin[0], margin[1] : width - margin[1]]


def _mirrored(start: int, count: int, size: int) -> torch.Tensor:
    """Indices from `start` on, mirrored at the edges of `size` pixels: ... 1 0 | 0 1 ..."""
    places = torch.arange(start, start + count).remainder(2 * size)
    return torch.minimum(places, 2 * size - 1 - places)
