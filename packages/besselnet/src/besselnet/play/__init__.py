"""The playground: a page that runs networks in the browser, and the server behind `besselnet play`.

Needs the extras `train`, `data` and `export`: ``pip install 'besselnet[play]'``.
"""

from besselnet.play._page import PAGE, kernels_of, page_files
from besselnet.play._review import run_files
from besselnet.play._runtime import runtime_files, runtime_is_kept
from besselnet.play._server import HOST, open_server

__all__ = [
    "HOST",
    "PAGE",
    "kernels_of",
    "open_server",
    "page_files",
    "run_files",
    "runtime_files",
    "runtime_is_kept",
]
