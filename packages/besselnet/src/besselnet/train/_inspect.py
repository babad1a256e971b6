"""What a trained network is, costs and keeps: the figures behind `besselnet inspect`."""

from typing import Any

import torch

from besselnet.drawing._runs import draw_filters, learned_filters
from besselnet.models import count_parameters, describe_model
from besselnet.testing import equivariance_error, plane_waves
from besselnet.train._run import Run


def inspect_run(run: Run) -> dict[str, Any]:
    """Parameters, cost and equivariance of the trained network, as JSON values.

    Draws the kernels of the first convolution into `filters.png` of the run folder, if there is one.
    The equivariance error at an angle is the change of the logits, relative to the logits, when
    smooth random images (which turn without interpolation) are turned by that angle.
    """
    built_for = {
        "in_channels": run.in_channels,
        "num_classes": len(run.classes),
        "image_size": run.image_size,
    }
    name = run.config.model.name
    described = describe_model(name, **built_for, **run.config.model.options)
    probe = plane_waves(16, run.in_channels, run.image_size)
    curve = equivariance_error(run.model, probe)
    filters = learned_filters(run.model)
    picture = None
    if filters is not None:
        picture = run.folder / "filters.png"
        draw_filters(picture, filters)
    return {
        "model": name,
        "options": run.config.model.options,
        **built_for,
        # What this network has, where the description says what it could have.
        "symmetry": described.options.get("symmetry", described.symmetry),
        "parameters": count_parameters(run.model),
        "multiply_adds": described.multiply_adds,
        "bytes": sum(t.numel() * t.element_size() for t in run.model.state_dict().values()),
        "angles": list(curve.angles),
        "equivariance_error": list(curve.errors),
        "worst_equivariance_error": max(curve.errors),
        "filters": None if picture is None else str(picture),
        "layers": _layers(run.model),
    }


def _layers(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Name, kind and parameters of each module that has parameters of its own."""
    rows = []
    for name, module in model.named_modules():
        own = sum(parameter.numel() for parameter in module.parameters(recurse=False))
        if own:
            rows.append({"name": name, "kind": type(module).__name__, "parameters": own})
    return rows
