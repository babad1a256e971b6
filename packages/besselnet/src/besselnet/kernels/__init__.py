"""The native kernel: a C library with the fused passes of the factored algorithm, where it was built.

Nothing needs it: without it the same numbers come from torch operations. It is loaded at first use.
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
