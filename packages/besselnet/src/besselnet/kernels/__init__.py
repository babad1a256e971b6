"""The native kernel: an optional C library with the fused passes of the factored algorithm.

Without it, torch operations compute the same result. The library is loaded on first use.
"""

from besselnet.kernels._call import MOST_TAPS, Settings, backward, forward
from besselnet.kernels._load import Status, available, status, switched_off

__all__ = [
    "MOST_TAPS",
    "Settings",
    "Status",
    "available",
    "backward",
    "forward",
    "status",
    "switched_off",
]
