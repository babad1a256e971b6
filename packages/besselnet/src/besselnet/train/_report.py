"""What a finished run is worth: the numbers behind `besselnet evaluate` and `besselnet inspect`."""

import time
from collections.abc import Callable
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_count
from besselnet.data import Batches, ImageSet
from besselnet.functional import rotate_images
from besselnet.models import count_parameters, describe_model
from besselnet.testing import equivariance_error, plane_waves
from besselnet.train._evaluate import evaluate, evaluate_rotated
from besselnet.train._progress import in_words, watched
from besselnet.train._run import Run, load_images

# More images than this change an accuracy by less than two points, and cost minutes for each thousand.
MOST_IMAGES = 500

# images, degrees -> rotated images
Rotation = Callable[[Tensor, Tensor], Tensor]


def evaluate_run(
    run: Run,
    *,
    part: str | None = None,
    rotated: bool = False,
    untrained: bool = False,
    angles: int = 24,
    most_images: int = MOST_IMAGES,
    stream: TextIO | None = None,
) -> dict[str, Any]:
    """Test a trained network on the images kept for that: JSON values.

    Args:
        part: "train", "val" or "test"; by default test, else val.
        rotated: also at `angles` angles of the circle, under the key ``"rotated"``: see `RotatedEvaluation`.
            The curve is drawn into `rotated.png` of the run folder.
        untrained: rotate for the network before training, too.
        most_images: how many images to rotate at most, drawn at random, always the same ones; 0 for all.
        stream: gets progress, and how long the rotations will take; None for neither.
    """
    check_count("angles", angles, least=2)
    check_count("most_images", most_images, least=0)
    parts = load_images(run.config.data).parts()
    name = part or next(p for p in ("test", "val", "train") if p in parts)
    check_choice("part", name, list(parts))
    images = parts[name]
    batches = _batches(run, images)
    result = evaluate(run.model, _shown(batches, "testing", stream))
    report: dict[str, Any] = {"part": name, **result.to_dict(run.classes)}
    if rotated:
        networks = {"trained": run.model}
        if untrained:
            device = next(run.model.parameters()).device
            networks["untrained"] = run.untrained_model().to(device)
        report["rotated"] = _evaluate_rotated(run, networks, images, angles, most_images, stream)
    return report


def _evaluate_rotated(
    run: Run,
    networks: dict[str, nn.Module],
    images: ImageSet,
    angles: int,
    most_images: int,
    stream: TextIO | None,
) -> dict[str, Any]:
    """Number of images, and `RotatedEvaluation.to_dict` by the name of each network."""
    from besselnet.drawing import draw_rotated

    interpolation = run.config.data.interpolation

    def rotate(batch: Tensor, degrees: Tensor) -> Tensor:
        return rotate_images(batch, degrees, interpolation)

    available = len(images)
    if 0 < most_images < available:
        order = torch.randperm(available, generator=torch.Generator().manual_seed(0))
        images = images.select(order[:most_images].sort().values)
    batches = _batches(run, images)
    if stream is not None:
        seconds = len(networks) * _seconds(run.model, batches, rotate, angles)
        share = f"{len(images)} of {available}, at random" if len(images) < available else "all"
        print(
            f"rotating images ({share}) to {angles} angles: about {in_words(seconds)}",
            file=stream,
            flush=True,
        )
    curves = {
        name: evaluate_rotated(
            network, _shown(batches, f"rotating, {name}", stream), rotate, angles=angles
        )
        for name, network in networks.items()
    }
    draw_rotated(run.folder / "rotated.png", curves)
    return {
        "images": len(images),
        **{name: curve.to_dict() for name, curve in curves.items()},
    }


def _seconds(model: nn.Module, batches: Batches, rotate: Rotation, angles: int) -> float:
    """About how long `evaluate_rotated` takes: as one batch at two angles."""
    started = time.perf_counter()
    evaluate_rotated(model, [batches[0]], rotate, angles=2)
    return (time.perf_counter() - started) / 2 * angles * len(batches)


def _batches(run: Run, images: ImageSet) -> Batches:
    device = next(run.model.parameters()).device
    return Batches(images, run.config.train.batch_size, device=device)


def _shown(batches: Batches, text: str, stream: TextIO | None) -> Any:
    return batches if stream is None else watched(batches, len(batches), text, stream=stream)


def inspect_run(run: Run) -> dict[str, Any]:
    """Parameters, cost and equivariance of the trained network, as JSON values.

    Draws the kernels of the first convolution into `filters.png` of the run folder, if there is one.
    The equivariance error at an angle is the change of the logits, relative to the logits, when
    smooth random images (which rotate without interpolation) are rotated by that angle.
    """
    from besselnet.drawing import draw_filters, learned_filters

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
