"""Argument checks whose errors give the argument, its value and what it must be.

Every public function and module uses them on its arguments.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

__all__ = [
    "CUTOFFS",
    "check_choice",
    "check_count",
    "check_cutoff",
    "check_finite",
    "check_images",
    "check_kernel_size",
    "check_number",
    "check_padding",
    "check_pair",
    "check_scales",
    "check_seed",
]

CUTOFFS = {"soft": 1.0, "strong": 0.5}
# Four times as fine as pixels are: nothing is gained beyond, and the number of modes grows with the square.
LARGEST_CUTOFF = 4.0
# More than anything here can have, and less than integers of torch and Pillow hold.
LARGEST_COUNT = 2**31 - 1
# Side in pixels that images are resized to at most: 24 of them, in colour, take more than a gigabyte.
LARGEST_SIDE = 4096
# Of a Gaussian, in pixels.
LARGEST_SIGMA = 100.0


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise ``ValueError`` if a value is not one of those allowed for an argument."""
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))}")


def check_count(name: str, value: object, least: int = 1, most: int = LARGEST_COUNT) -> int:
    """Check and return an integer from ``least`` to ``most``; True and False are not integers."""
    if not _is_integer(value, least, most):
        raise ValueError(f"{name}={value!r}: must be an integer {_bounds(least, most, value)}")
    return int(value)  # type: ignore[call-overload]


def check_seed(value: object) -> int:
    """Check and return a seed that every random generator accepts."""
    return check_count("seed", value, least=0, most=2**63 - 1)


def check_pair(name: str, value: object, least: int) -> tuple[int, int]:
    """Check an integer or a pair of integers, as in ``nn.Conv2d``, and return the pair."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(_is_integer(n, least, LARGEST_COUNT) for n in pair):
        bounds = _bounds(least, LARGEST_COUNT, *pair)
        raise ValueError(f"{name}={value!r}: must be an integer {bounds} or a pair of them")
    return int(pair[0]), int(pair[1])


def _is_integer(value: object, least: int, most: int) -> bool:
    good = isinstance(value, Integral) and not isinstance(value, bool)
    return good and least <= value <= most  # type: ignore[operator]


def _bounds(least: int, most: int, *values: object) -> str:
    """What integers must be; the bound that every count has is only told to whom it concerns."""
    concerned = any(isinstance(n, Integral) and n > most for n in values)  # type: ignore[operator]
    return f">= {least}" + (f" and <= {most}" if concerned or most < LARGEST_COUNT else "")


def check_number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """Check and return a finite number > ``above``, >= ``least``, < ``below`` and <= ``most``."""
    good = isinstance(value, Real) and not isinstance(value, bool)
    inside = good and above < value and least <= value < below and value <= most  # type: ignore[operator]
    # Infinity and NaN are never inside. An integer may be, and be too long for a float.
    if not (inside and abs(value) <= sys.float_info.max):  # type: ignore[arg-type]
        bounds = [
            *([f"> {above:g}"] if above > -math.inf else []),
            *([f">= {least:g}"] if least > -math.inf else []),
            *([f"< {below:g}"] if below < math.inf else []),
            *([f"<= {most:g}"] if most < math.inf else []),
        ]
        raise ValueError(
            f"{name}={value!r}: must be a finite number {' and '.join(bounds)}".rstrip()
        )
    return float(value)  # type: ignore[arg-type]


def check_finite(name: str, value: object) -> None:
    """Raise ``ValueError`` for infinite numbers or NaN, also inside lists and mappings."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_finite(f"{name}.{key}", item)
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            check_finite(f"{name}[{i}]", item)
    elif isinstance(value, float):
        check_number(name, value)


def check_cutoff(cutoff: object) -> float:
    """Return the cut-off as a fraction of the paper's k_max = pi k / 2."""
    if isinstance(cutoff, str) and cutoff in CUTOFFS:
        return CUTOFFS[cutoff]
    if not isinstance(cutoff, str):
        try:
            return check_number("cutoff", cutoff, above=0, most=LARGEST_CUTOFF)
        except ValueError:
            pass
    raise ValueError(
        f"cutoff={cutoff!r}: must be 'soft', 'strong' or a finite number > 0 and <= {LARGEST_CUTOFF:g}, "
        "a fraction of pi k / 2"
    )


def check_kernel_size(kernel_size: object) -> int:
    """Return the side of a square kernel from a positive integer or a pair of equal integers."""
    size = kernel_size
    if isinstance(size, (tuple, list)) and len(size) == 2 and size[0] == size[1]:
        size = size[0]
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
        raise ValueError(
            f"kernel_size={kernel_size!r}: must be an integer >= 1 or a pair of equal integers "
            "(kernels are discs)"
        )
    return int(size)


def check_scales(scales: object, kernel_size: int) -> tuple[int, ...]:
    """Return the size offsets of a multi-scale layer; None means only the base size."""
    if scales is None:
        return (0,)
    offsets = tuple(scales) if isinstance(scales, (tuple, list)) else ()
    good = all(isinstance(s, int) and not isinstance(s, bool) and s % 2 == 0 for s in offsets)
    if not offsets or not good or len(set(offsets)) != len(offsets):
        raise ValueError(
            f"scales={scales!r}: must be None or a list of different even integers such as "
            "(-2, 0, 2), which are added to kernel_size (even, so that the centres agree)"
        )
    if kernel_size + min(offsets) < 1:
        raise ValueError(
            f"scales={scales!r} with kernel_size={kernel_size}: must be >= {1 - kernel_size}, so that "
            "every kernel has at least 1 pixel"
        )
    return offsets


def check_padding(
    padding: object, kernel_size: int, stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Return the padding as (left, right, top, bottom) from the argument of ``nn.Conv2d``."""
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
    """Raise an error unless a tensor is floating point and (N, C, H, W) or (C, H, W)."""
    if not images.is_floating_point():
        raise TypeError(f"{name} has dtype {images.dtype}: must be a real floating-point type")
    if images.dim() not in (3, 4):
        raise ValueError(
            f"{name} has shape {tuple(images.shape)}: must be (N, C, H, W) or (C, H, W)"
        )
