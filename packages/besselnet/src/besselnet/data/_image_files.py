"""Many image files -> one tensor, and what happens to those that cannot be read."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from besselnet._pixels import check_reading, counted, option_hint, read_size
from besselnet.checks import check_choice
from besselnet.data._decode import Resize, iter_deep_images, warn_of_dark_images
from besselnet.data._imageset import as_floats
from besselnet.data._sizes import choose_size

# Of warnings in what `read_files` calls: the caller of load_data.
_CALLER = 5


def read_files(
    paths: Sequence[Path], image_size: int | None, resize: Resize, on_error: str, **how: Any
) -> tuple[Tensor, list[int], str]:
    """Images (M, C, S, S), the places of their files in `paths`, and how they came to their size.

    `image_size=None` chooses one (`choose_size`). `how` are the other options of `iter_images`.
    """
    check_choice("on_error", on_error, ("raise", "skip"))
    check_reading(**how)
    fitted = ""
    if image_size is None:
        sizes = header_sizes(paths, how["page"], how["max_pixels"])
        image_size, fitted = choose_size(sizes, resize)
    images: list[Tensor] = []
    kept, failures, largest = [], [], 0
    for number, (_, image, brightest) in enumerate(
        iter_deep_images(paths, image_size, resize, **how)
    ):
        if isinstance(image, Exception):
            failures.append(str(image))
            continue
        largest = max(largest, brightest)
        images.append(image)
        kept.append(number)
    report_failures(failures, len(paths), on_error, _CALLER)
    if how["bits"] is None:
        warn_of_dark_images(largest, _CALLER)
    return stack_alike(images), kept, fitted


def header_sizes(
    paths: Iterable[Path], page: int | None, max_pixels: int | None
) -> Iterator[tuple[int, int]]:
    """Width and height of the files whose headers can be read; the others are reported when decoded.

    EXIF orientations that swap the two are ignored: shorter side and squareness are the same.
    """
    for path in paths:
        with suppress(ValueError, OSError):
            yield read_size(path, page=page, max_pixels=max_pixels)


def stack_alike(images: Sequence[Tensor]) -> Tensor:
    """(N, C, H, W), with the channels and of the type that every image fits in."""
    most = max(len(image) for image in images)
    deep = any(image.dtype == torch.float32 for image in images)
    return torch.stack([(as_floats(i) if deep else i).expand(most, -1, -1) for i in images])


def report_failures(
    failures: Sequence[str], total: int, on_error: str, stacklevel: int = 4
) -> None:
    """An error, or with `on_error="skip"` a warning, with the first of the files that cannot be read.

    `stacklevel` is that of the caller of `load_data`.
    """
    if not failures:
        return
    message = f"{failures[0]} ({len(failures)} of {counted(total, 'file')} cannot be read)"
    if len(failures) == total:
        raise ValueError(message)
    if on_error == "raise":
        raise ValueError(f"{message}; to leave such files out, {option_hint('on_error', 'skip')}")
    warnings.warn(f"left out: {message}", stacklevel=stacklevel)
