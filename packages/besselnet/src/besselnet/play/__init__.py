"""The playground."""

from besselnet.play._page import PAGE, kernels_of
from besselnet.play._runtime import runtime_files, runtime_is_kept

__all__ = ["PAGE", "kernels_of", "runtime_files", "runtime_is_kept"]
