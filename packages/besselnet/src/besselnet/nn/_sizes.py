"""Find the image sizes that keep a network exact under quarter turns, and the layers that break it.

A layer with stride s samples every s pixels. Rotating the image by 90 degrees or mirroring it maps the
samples onto each other only if they are symmetric about the centre: along each axis,

    (n + 2 padding - dilation (kernel_size - 1) - 1)  must be a multiple of s.

Otherwise the last pixels are dropped on one side only. Rows and columns must be treated alike.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from besselnet.checks import check_count
from besselnet.nn._eval_mode import evaluating
from besselnet.nn._pool import BlurPool2d

ALWAYS_CENTRED = (BlurPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)


@dataclass(frozen=True)
class LayerGrid:
    """How one layer sampled its input in a trace."""

    name: str
    """As in ``module.named_modules()``."""
    kind: str
    input_size: tuple[int, int]
    output_size: tuple[int, int]
    stride: int
    fault: str | None
    """Why the samples are not centred, or None if they are."""

    def __str__(self) -> str:
        sizes = " -> ".join("x".join(map(str, s)) for s in (self.input_size, self.output_size))
        return f"{self.name or 'the module'} ({self.kind}), {sizes}: {self.fault or 'centred'}"


@dataclass(frozen=True)
class SizeReport:
    """Result of :func:`check_size`, layer by layer in the order of execution."""

    size: int
    layers: tuple[LayerGrid, ...]

    @property
    def first_fault(self) -> LayerGrid | None:
        """The first layer that breaks the symmetry."""
        return next((layer for layer in self.layers if layer.fault), None)

    @property
    def exact(self) -> bool:
        return self.first_fault is None

    def __str__(self) -> str:
        if not self.layers:
            return f"size {self.size}: no convolution or pooling found"
        if self.first_fault is None:
            return f"size {self.size}: every layer samples on a centred grid"
        return f"size {self.size}: not exact from {self.first_fault}"


def check_size(module: nn.Module, size: int, in_channels: int | None = None) -> SizeReport:
    """Check whether every layer of ``module`` samples a square image of ``size`` pixels on a centred grid.

    Only then is the module exactly equivariant to quarter turns. The module runs on fake tensors: only
    shapes are computed, and nothing in it changes. The check covers adaptive pooling layers and all
    (nested) modules with a ``kernel_size`` and a ``stride``. It does not see functions that a ``forward``
    calls directly.

    Args:
        module: any module that accepts (1, in_channels, size, size).
        size: side of the image in pixels.
        in_channels: input channels. Default: those of the first layer that has them.

    Example:
        >>> stack = nn.Sequential(nn.Conv2d(1, 8, 7, padding=3), nn.MaxPool2d(2))
        >>> print(check_size(stack, 29))
        size 29: not exact from 1 (MaxPool2d), 29x29 -> 14x14: 1 of 29 rows left over by stride 2
    """
    check_count("size", size)
    channels = first_channels(module) if in_channels is None else in_channels
    like = next(
        (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None
    )
    layers: list[LayerGrid] = []

    def record(name: str, layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        layers.append(layer_grid(name, layer, pair(args[0].shape[-2:]), pair(output.shape[-2:])))

    with evaluating(module), fake_tensors():
        image = torch.empty(
            (1, check_count("in_channels", channels), size, size),
            dtype=None if like is None else like.dtype,
            device=None if like is None else like.device,
        )
        handles = [
            layer.register_forward_hook(
                lambda layer, args, output, name=name: record(name, layer, args, output)
            )
            for name, layer in module.named_modules()
            if isinstance(layer, ALWAYS_CENTRED)
            or (hasattr(layer, "kernel_size") and hasattr(layer, "stride"))
        ]
        try:
            module(image)
        except DataDependentOutputException as error:
            raise TypeError(
                f"module={type(module).__name__}: must be a module whose forward depends only on "
                f"shapes; this one reads values of a tensor ({error})"
            ) from error
        finally:
            for handle in handles:
                handle.remove()
    return SizeReport(size, tuple(layers))


def exact_sizes(
    module: nn.Module, sizes: Iterable[int], in_channels: int | None = None
) -> list[int]:
    """Return those of ``sizes`` that keep ``module`` exact under quarter turns, see :func:`check_size`.

    Sizes that the module does not accept, such as those smaller than a kernel, are left out. If it
    accepts none of them, its last error is raised.
    """
    reports, refusal = [], None
    for size in sizes:
        try:
            reports.append(check_size(module, size, in_channels))
        except (ValueError, RuntimeError) as error:
            refusal = error
    if refusal is not None and not reports:
        raise refusal
    return [report.size for report in reports if report.exact]


def suggest_size(module: nn.Module, size: int, in_channels: int | None = None) -> int:
    """Return the size nearest to ``size`` that keeps ``module`` exact under quarter turns.

    Of two equally near sizes, it returns the larger. It raises ``ValueError`` if there is none. Whether a
    size is exact depends on its remainder modulo the product of all strides, so the search is finite.

    Example:
        >>> suggest_size(nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.MaxPool2d(2)), 28)
        27
    """
    report = check_size(module, size, in_channels)
    if report.exact:
        return size
    period = math.prod(layer.stride for layer in report.layers)
    for distance in range(1, period + 1):
        candidates = [n for n in (size + distance, size - distance) if n > 0]
        with suppress(ValueError, RuntimeError):  # both are refused
            for found in exact_sizes(module, candidates, in_channels):
                return found
    raise ValueError(f"no size keeps the module exact under quarter turns; {report}")


def layer_grid(
    name: str, layer: nn.Module, input_size: tuple[int, int], output_size: tuple[int, int]
) -> LayerGrid:
    """Compare the grid of one layer's samples with the centre of its input."""
    if isinstance(layer, ALWAYS_CENTRED):
        fault = None
    elif isinstance(layer, nn.ConvTranspose2d):
        one_sided = any(pair(layer.output_padding))
        fault = f"output_padding={layer.output_padding} on one side only" if one_sided else None
    else:
        fault = sliding_fault(layer, input_size)
    stride = max(window_stride(layer)) if hasattr(layer, "stride") else 1
    return LayerGrid(name, type(layer).__name__, input_size, output_size, stride, fault)


def window_stride(layer: Any) -> tuple[int, int]:
    """Return ``stride``; some pooling layers store None if it equals the window size."""
    return pair(layer.kernel_size if layer.stride is None else layer.stride)


def sliding_fault(layer: Any, input_size: tuple[int, int]) -> str | None:
    """Return why the windows of a convolution or pooling layer are not symmetric; None if they are."""
    kernel, stride = pair(layer.kernel_size), window_stride(layer)
    dilation = pair(getattr(layer, "dilation", 1))
    padding = getattr(layer, "padding", 0)
    spans = [d * (k - 1) for d, k in zip(dilation, kernel)]
    if padding == "same":
        if any(span % 2 for span in spans):
            return f"padding='same' adds {spans[0] // 2} and {spans[0] - spans[0] // 2} pixels"
        padding = [span // 2 for span in spans]
    padding = (0, 0) if padding == "valid" else pair(padding)
    for setting in (kernel, stride, dilation, padding):
        if setting[0] != setting[1]:
            return "rows and columns are not treated alike"
    for n, p, span, s, axis in zip(input_size, padding, spans, stride, ("rows", "columns")):
        left_over = (n + 2 * p - span - 1) % s
        if left_over:
            padded = f"{n} {axis}" if p == 0 else f"{n} + {2 * p} {axis}"
            return f"{left_over} of {padded} left over by stride {s}"
    return None


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def first_channels(module: nn.Module) -> int:
    """Return the input channels of the first layer that defines them."""
    for layer in module.modules():
        channels = getattr(layer, "in_channels", None)
        if isinstance(channels, int):
            return channels
    raise ValueError("in_channels=None: must be given, because no layer of the module defines it")


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Tensors made inside have a shape and no numbers."""
    # A size that the module refuses is an answer here; torch would print its traceback as well.
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        logger.setLevel(level)
