"""Evaluate and inspect a finished run."""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TextIO

from torch import Tensor

from besselnet._progress import ProgressLog, in_words
from besselnet.checks import check_choice, check_count
from besselnet.data import Batches
from besselnet.functional import VIEWS, View, hidden_colour
from besselnet.masks import MaskAgreement, mask_agreement
from besselnet.models import count_parameters, describe_model
from besselnet.testing import equivariance_error, plane_waves
from besselnet.train._evaluate import (
    MOST_ANGLES,
    RotatedEvaluation,
    device_of,
    evaluate,
    evaluate_rotated,
    not_finite,
    with_objects,
)
from besselnet.train._images import make_batches
from besselnet.train._robust import MOST_ROBUST_IMAGES, robust_report
from besselnet.train._run import Run
from besselnet.train._sample import sample_images
from besselnet.train._trust import evaluate_trust, find_limits

# More images than this change an accuracy by less than two points, and cost minutes for each thousand.
MOST_IMAGES = 500


def evaluate_run(
    run: Run,
    *,
    part: str | None = None,
    rotated: bool = False,
    untrained: bool = False,
    angles: int = 24,
    border: View = "disc",
    robust: bool = False,
    most_images: int | None = None,
    coverage: float | None = None,
    error_rate: float | None = None,
    stream: TextIO | None = None,
) -> dict[str, Any]:
    """Test a trained network on the images of its run, and return JSON values.

    Args:
        run: the run.
        part: "train", "val" or "test". Default: test, or val.
        rotated: also test at `angles` angles, under the key ``"rotated"``: see `RotatedEvaluation`, and
            `besselnet.masks.MaskAgreement` for masks. The curve is drawn in `rotated.png` in the run folder;
            ``"picture"`` is None if it cannot be written.
        border: corners of rotated images, "disc", "reflect" or "black", see `evaluate_rotated`.
        untrained: also rotate for the untrained network.
        robust: also test corrupted and attacked images, under the key ``"robust"``: see `evaluate_robust`.
            Only for classes. Finished parts are stored in `robust.json` in the run folder, and the next call
            continues from there. The curves are drawn in `robust.png`.
        most_images: maximum number of images to rotate or corrupt, a fixed random sample; 0 for all.
            Default: 500 for `rotated`, 1000 for `robust`.
        coverage, error_rate: guarantees for sets and sure predictions of classes (`besselnet.robust.Limits`).
            Default: 95%, and the best error rate of `Trust.limits`. If the run has a `Run.trust`, the key
            ``"trust"`` shows whether they hold, and `reliability.png` in the run folder plots accuracy
            against probability.
        stream: stream for progress and the estimated time of the rotations; None for no output.
    """
    check_count("angles", angles, least=2, most=MOST_ANGLES)
    check_choice("border", border, VIEWS)
    if most_images is not None:
        check_count("most_images", most_images, least=0)
    if robust and run.task != "classify":
        raise ValueError(
            f"robust=True: must be False for {run.learned.labels}: only classes can be corrupted and attacked"
        )
    limits = find_limits(run.trust, coverage, error_rate)
    parts = run.load_images().parts()
    name = part or next(p for p in ("test", "val", "train") if p in parts)
    check_choice("part", name, list(parts))
    images = parts[name]
    batches = make_batches(run.config, images)
    result = evaluate(run.model, watched(batches, "testing", stream=stream), task=run.learned)
    result = with_objects(result, run.model, batches)
    report: dict[str, Any] = {"part": name, **result.to_dict(run.classes)}
    if run.trust is not None and limits is not None:
        judged = watched(batches, "judging", stream=stream)
        chart = run.folder / "reliability.png"
        report["trust"] = evaluate_trust(run.trust, limits, run.model, judged, chart)
    if robust:
        most = MOST_ROBUST_IMAGES if most_images is None else most_images
        report["robust"] = robust_report(run, images, most, stream)
    if not rotated:
        return report
    from besselnet.drawing import attempt, draw_rotated, draw_rotated_masks

    networks = {"trained": run.model}
    if untrained:
        networks["untrained"] = run.untrained_model().to(device_of(run.model))
    share, total = "all", len(images)
    images = sample_images(images, MOST_IMAGES if most_images is None else most_images)
    if len(images) < total:
        share = f"{len(images)} of {total}, at random"
        batches = make_batches(run.config, images)
    how: dict[str, Any] = {"border": border, "interpolation": run.config.data.interpolation}
    if border == "disc":
        how["colour"] = hidden_colour(batches)
    measure: Callable[..., Any] = partial(evaluate_rotated, task=run.learned)
    tell: Callable[[Any], dict[str, Any]] = RotatedEvaluation.to_dict
    draw: Callable[..., None] = draw_rotated
    if run.learned.answers == "pixels":
        measure, draw = mask_agreement, draw_rotated_masks
        tell = partial(MaskAgreement.to_dict, classes=run.classes)
    if stream is not None:
        # As long, for each batch and angle, as one batch at two angles.
        started = time.perf_counter()
        measure(run.model, [batches[0]], angles=2, **how)
        once = (time.perf_counter() - started) / 2
        wait = in_words(once * angles * len(batches) * len(networks))
        print(
            f"rotating images ({share}) to {angles} angles: about {wait}", file=stream, flush=True
        )
    curves = {}
    for name, network in networks.items():
        shown = watched(batches, f"rotating, {name}", stream=stream)
        curves[name] = measure(network, shown, angles=angles, **how)
    path = run.folder / "rotated.png"
    picture = str(path) if attempt(draw, path, curves) else None
    by_network = {name: tell(curve) for name, curve in curves.items()}
    found = {"images": len(images), "border": border, **by_network}
    return {**report, "rotated": found, "picture": picture}


def inspect_run(run: Run) -> dict[str, Any]:
    """Return parameters, cost and equivariance of the trained network, as JSON values.

    Draws the kernels of the first convolution in `filters.png` in the run folder; ``"filters"`` is None if
    there is no convolution, or if the file cannot be written. The equivariance error at an angle is the
    change of the logits, relative to the logits, for smooth random images, which rotate without
    interpolation. For segmentation networks, it uses the logits of the central pixel.
    """
    from besselnet.drawing import attempt, draw_filters, learned_filters

    built_for = {
        "in_channels": run.in_channels,
        "num_classes": len(run.classes),
        "image_size": run.image_size,
    }
    name = run.config.model.name
    described = describe_model(name, **built_for, **run.config.model.options)
    # The maps of networks that answer for pixels are compared at their central pixel: there must be one.
    side = run.image_size | 1 if run.learned.answers == "pixels" else run.image_size
    curve = equivariance_error(run.model, plane_waves(16, run.in_channels, side))
    if not all(map(math.isfinite, curve.errors)):
        raise not_finite()
    filters = learned_filters(run.model)
    path = run.folder / "filters.png"
    drawn = filters is not None and attempt(draw_filters, path, filters)
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
        "filters": str(path) if drawn else None,
        "layers": [
            {"name": name, "kind": type(module).__name__, "parameters": own}
            for name, module in run.model.named_modules()
            if (own := sum(parameter.numel() for parameter in module.parameters(recurse=False)))
        ],
    }


def watched(
    batches: Batches, text: str, *, stream: TextIO | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches and show progress in `stream`, if given; `text` describes the work."""
    with ProgressLog(len(batches), unit="batches", stream=stream, quiet=stream is None) as log:
        for item in batches:
            yield item
            log.advance(text=text)
