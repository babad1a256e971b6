"""The page that shows networks at work in a browser, as files by their addresses."""

from pathlib import Path

from torch import nn

from besselnet.drawing import learned_filters

PAGE = Path(__file__).parent / "page"
# As many kernels as fit in a few rows.
MOST_KERNELS = 32


def page_files() -> dict[str, Path]:
    """The files of the page by their addresses below it; `runtime_files` go to ``runtime/`` beside them."""
    files = sorted(path for path in PAGE.rglob("*") if path.is_file())
    return {path.relative_to(PAGE).as_posix(): path for path in files}


def kernels_of(model: nn.Module) -> list[list[list[float]]]:
    """The first kernels of the first convolution, to look at: rows of each, largest value 1 or -1."""
    filters = learned_filters(model)
    if filters is None:
        return []
    kernels = filters.flatten(0, 1)[:MOST_KERNELS].cpu().double()
    largest = kernels.abs().amax((1, 2), keepdim=True).clamp(min=1e-12)
    return [
        [[round(value, 3) for value in row] for row in kernel]
        for kernel in (kernels / largest).tolist()
    ]
