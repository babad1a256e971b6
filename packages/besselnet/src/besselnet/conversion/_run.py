"""Run a model: its outputs, the layers it calls, and the equivariance error of the output."""

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from besselnet.conversion._report import Measurement
from besselnet.nn import evaluating
from besselnet.testing import EquivarianceCurve, Region, equivariance_error, plane_waves

__all__ = ["Step", "measure", "run", "steps"]

ANGLES = (15.0, 30.0, 45.0, 60.0, 75.0)
QUARTERS = (90.0, 180.0, 270.0)
PROBES = 8


class Step(NamedTuple):
    """A layer and the tensor that it was given."""

    name: str
    layer: nn.Module
    input: Tensor


def run(model: nn.Module, images: Tensor) -> list[Tensor]:
    """All tensors that the model returns, in evaluation mode."""
    with evaluating(model):
        return [leaf for leaf in tree_leaves(model(images)) if isinstance(leaf, Tensor)]


def steps(model: nn.Module, images: Tensor) -> list[Step]:
    """The modules that take a tensor, in the order of execution."""
    executed: list[Step] = []

    def note(name: str, layer: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            executed.append(Step(name, layer, args[0]))

    handles = [
        layer.register_forward_pre_hook(lambda layer, args, name=name: note(name, layer, args))
        for name, layer in model.named_modules()
    ]
    try:
        run(model, images)
    finally:
        for handle in handles:
            handle.remove()
    return executed


class _Output(nn.Module):
    """The first tensor that a model returns, maps without their mean.

    Most of what an untrained network says is the same for all images; measured against that, a change from
    angle to angle looks small.
    """

    def __init__(self, model: nn.Module, images: Tensor) -> None:
        super().__init__()
        self.model = model
        returned = run(model, images)
        if not returned:
            raise ValueError("the model returns no tensor: must return (N, K) or (N, C, S, S)")
        output = returned[0]
        self.mean = output.mean((0, 2, 3), keepdim=True) if output.dim() == 4 else 0.0
        self.has_centre = output.dim() == 4 and output.shape[-1] % 2 == 1

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = tree_leaves(self.model(x))[0]
        return output - self.mean


def measure(
    model: nn.Module,
    image_size: int,
    in_channels: int,
    *,
    symmetry: str = "SO(2)",
    seed: int = 0,
) -> Measurement:
    """Measure the equivariance error of the (first) output of `model` on random smooth images.

    For O(2), the images are also mirrored.
    """
    probe = plane_waves(PROBES, in_channels, image_size, seed=seed)
    output = _Output(model, probe.turned().to(next(model.parameters())))

    def largest(angles: tuple[float, ...], region: Region) -> float:
        curves: list[EquivarianceCurve] = [
            equivariance_error(output, probe, angles, mirror=mirror, region=region)
            for mirror in ((False, True) if symmetry == "O(2)" else (False,))
        ]
        return max(curve.max() for curve in curves)

    # At the central pixel no map is interpolated.
    between: Region = "centre" if output.has_centre else "disc"
    return Measurement(largest(QUARTERS, "disc"), largest(ANGLES, between))
