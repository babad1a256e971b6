"""Checks of arguments: each names the argument, the value and what it must be.

Every public function and module checks with these where the user's call enters.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real

__all__ = ["check_choice", "check_count", "check_number", "check_pair"]


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
