"""The lab: the paper's networks and peers, the study that fills its tables, benchmarks and figures."""

from besselnet_lab._version import __version__

__all__ = ["__version__"]
