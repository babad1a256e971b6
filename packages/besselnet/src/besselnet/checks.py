"""Checks of arguments: each names the argument, the value and what it must be.

Every public function and module checks with these where the user's call enters.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

__all__ = [
    "CUTOFFS",
    "check_choice",
    "check_count",
    "check_cutoff",
    "check_images",
    "check_kernel_size",
    "check_number",
    "check_padding",
    "check_pair",
    "check_scales",
]

CUTOFFS = {"soft": 1.0, "strong": 0.5}


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a value that is not one of the words allowed for an argument."""
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))}")


def check_count(name: str, value: object, least: int = 1) -> int:
    """An integer of at least ``least``; True and False are not numbers."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}={value!r}: must be an integer >= {least}")
    return int(value)


def check_pair(name: str, value: object, least: int) -> tuple[int, int]:
    """An integer or a pair of integers, as the arguments of ``nn.Conv2d``."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or any(
        isinstance(n, bool) or not isinstance(n, Integral) or n < least for n in pair
    ):
        raise ValueError(f"{name}={value!r}: must be an integer >= {least} or a pair of them")
    return int(pair[0]), int(pair[1])


def check_number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
) -> float:
    """A finite number > ``above``, >= ``least`` and < ``below``."""
    good = isinstance(value, Real) and not isinstance(value, bool)
    if not (good and math.isfinite(value) and above < value and least <= value < below):  # type: ignore[operator,arg-type]
        bounds = [
            *([f"> {above:g}"] if above > -math.inf else []),
            *([f">= {least:g}"] if least > -math.inf else []),
            *([f"< {below:g}"] if below < math.inf else []),
        ]
        raise ValueError(
            f"{name}={value!r}: must be a finite number {' and '.join(bounds)}".rstrip()
        )
    return float(value)  # type: ignore[arg-type]


def check_cutoff(cutoff: object) -> float:
    """The cut-off as a share of the paper's k_max = pi k / 2."""
    if isinstance(cutoff, str) and cutoff in CUTOFFS:
        return CUTOFFS[cutoff]
    if not isinstance(cutoff, str):
        try:
            return check_number("cutoff", cutoff, above=0)
        except ValueError:
            pass
    raise ValueError(
        f"cutoff={cutoff!r}: must be 'soft', 'strong' or a finite number > 0, a share of pi k / 2"
    )


def check_kernel_size(kernel_size: object) -> int:
    """A square kernel, given as a positive integer or as a pair of equal ones."""
    size = kernel_size
    if isinstance(size, (tuple, list)) and len(size) == 2 and size[0] == size[1]:
        size = size[0]
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
        raise ValueError(
            f"kernel_size={kernel_size!r}: must be an integer >= 1 or a pair of equal ones "
            "(a disc has one radius)"
        )
    return int(size)


def check_scales(scales: object, kernel_size: int) -> tuple[int, ...]:
    """Size offsets of a multi-scale layer; no scales means the base size alone."""
    if scales is None:
        return (0,)
    offsets = tuple(scales) if isinstance(scales, (tuple, list)) else ()
    good = all(isinstance(s, int) and not isinstance(s, bool) and s % 2 == 0 for s in offsets)
    if not offsets or not good or len(set(offsets)) != len(offsets):
        raise ValueError(
            f"scales={scales!r}: must be None or a list of different even integers such as "
            "(-2, 0, 2), added to kernel_size (even, so that the centres agree)"
        )
    if kernel_size + min(offsets) < 1:
        raise ValueError(
            f"scales={scales!r} with kernel_size={kernel_size}: must leave every kernel at least "
            f"1 pixel, that is be >= {1 - kernel_size}"
        )
    return offsets


def check_padding(
    padding: object, kernel_size: int, stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Padding as (left, right, top, bottom), from what ``nn.Conv2d`` takes."""
    if padding == "valid":
        return (0, 0, 0, 0)
    if padding == "same":
        if stride != (1, 1):
            raise ValueError(f"padding='same' with stride={stride}: stride must be 1")
        vertical, horizontal = (d * (kernel_size - 1) for d in dilation)
        left, top = horizontal // 2, vertical // 2
        return (left, horizontal - left, top, vertical - top)
    if isinstance(padding, str):
        raise ValueError(
            f"padding={padding!r}: must be 'same', 'valid', an integer >= 0 or a pair of them"
        )
    rows, columns = check_pair("padding", padding, 0)
    return (columns, columns, rows, rows)


def check_images(name: str, images: Any) -> None:
    """Refuse a tensor that is not floating point and (N, C, H, W) or (C, H, W)."""
    if not images.is_floating_point():
        raise TypeError(f"{name} has dtype {images.dtype}: must be a real floating-point type")
    if images.dim() not in (3, 4):
        raise ValueError(
            f"{name} has shape {tuple(images.shape)}: must be (N, C, H, W) or (C, H, W)"
        )
