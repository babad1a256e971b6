"""The web page of the playground, as files by URL."""

from collections.abc import Mapping
from pathlib import Path

from torch import nn

from besselnet.drawing import learned_filters

PAGE = Path(__file__).parent / "page"
# As many kernels as fit in a few rows.
MOST_KERNELS = 32


def page_files(run: Mapping[str, bytes] | None = None) -> dict[str, bytes | Path]:
    """Return the files of the page by relative URL; put `runtime_files` into ``runtime/`` next to them.

    The result of `run_files` goes to ``run/``, and the page starts with it.
    """
    places = sorted(path for path in PAGE.rglob("*") if path.is_file())
    files: dict[str, bytes | Path] = {path.relative_to(PAGE).as_posix(): path for path in places}
    if run is not None:
        html = (PAGE / "index.html").read_text(encoding="utf-8")
        files["index.html"] = html.replace('data-run=""', 'data-run="run/"').encode()
        files |= {f"run/{name}": content for name, content in run.items()}
    return files


def kernels_of(model: nn.Module) -> list[list[list[float]]]:
    """Return the first kernels of the first convolution, as rows, scaled to a largest value of 1 or -1."""
    filters = learned_filters(model)
    if filters is None:
        return []
    kernels = filters.flatten(0, 1)[:MOST_KERNELS].cpu().double()
    largest = kernels.abs().amax((1, 2), keepdim=True).clamp(min=1e-12)
    return [
        [[round(value, 3) for value in row] for row in kernel]
        for kernel in (kernels / largest).tolist()
    ]
