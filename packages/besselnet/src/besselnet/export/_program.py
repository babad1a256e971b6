"""Networks as graphs of torch's own operators, for every batch and image size: ``torch.export``."""

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.fx.experimental._config
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

FACTS_FILE = "besselnet.json"


def export_program(ordinary: nn.Module, images: Tensor, any_size: bool) -> ExportedProgram:
    """The graph of a network without layers of besselnet (see :mod:`besselnet.export._layers`).

    Args:
        ordinary: the network.
        images: (N, C, H, W), what it takes.
        any_size: whether the graph must take other sizes of images too.
    """
    channels, height, width = images.shape[1:]
    if any_size:
        # torch takes equal sides for one, and maps of one pixel in the network for maps of a fixed size.
        height, width = 2 * height, 2 * width + 2
    example = torch.rand(2, channels, height, width)
    dynamic = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC} if any_size else {0: Dim.DYNAMIC}
    try:
        with torch_quiet(), _sizes_of_one_allowed():
            program = torch.export.export(
                ordinary, (example,), dynamic_shapes=(dynamic,), strict=False
            )
    except Exception as error:  # torch raises exceptions of many kinds here
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"torch.export cannot trace the network ({type(error).__name__}: {reason})"
        ) from error
    own = {str(n.target) for n in program.graph.nodes if str(n.target).startswith("besselnet")}
    if own:
        raise ValueError(
            f"the network calls {', '.join(sorted(own))}, which only besselnet has: use the layers of "
            "besselnet.nn, not functions or subclasses with their own forward"
        )
    return program


def takes_other_sizes(model: nn.Module, images: Tensor) -> bool:
    """Whether the network takes images of another size than these."""
    channels, height, width = images.shape[1:]
    try:
        with torch.no_grad():
            model(torch.zeros(1, channels, height + 3, width + 4))
    except (RuntimeError, ValueError):
        return False
    return True


def program_bytes(program: ExportedProgram, facts: Mapping[str, Any]) -> bytes:
    """The content of a .pt2 file; ``torch.export.load(path).module()`` is the network again."""
    buffer = io.BytesIO()
    with torch_quiet():
        torch.export.save(
            program, buffer, extra_files={FACTS_FILE: json.dumps(facts, allow_nan=False)}
        )
    return buffer.getvalue()


def read_program(content: bytes) -> nn.Module:
    """The network in a .pt2 file."""
    with torch_quiet():
        module: nn.Module = torch.export.load(io.BytesIO(content)).module()
    return module


def _sizes_of_one_allowed() -> Any:
    """Let graphs take batches of one image and maps of one pixel, as torch's ONNX exporter does."""
    config: Any = torch.fx.experimental._config
    # torch 2.6 has no such setting.
    known = hasattr(config, "backed_size_oblivious")
    return config.patch(backed_size_oblivious=True) if known else nullcontext()


@contextmanager
def torch_quiet() -> Iterator[None]:
    """Without torch's remarks on its own insides, which say nothing to a user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch.fx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec.*")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
