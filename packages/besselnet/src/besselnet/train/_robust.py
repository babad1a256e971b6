"""Test a trained network on corrupted and attacked images: `evaluate --robust`."""

import hashlib
import json
import logging
import reprlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

import torch
from torch import Tensor, nn

import besselnet
from besselnet._progress import ProgressLog, in_words
from besselnet.atomic import write_json
from besselnet.checks import check_count, check_number, check_seed
from besselnet.data import Batches, ImageSet, row_hashes
from besselnet.functional import Border, Interpolation
from besselnet.nn import evaluating
from besselnet.robust import (
    CORRUPTIONS,
    LARGE_EPS,
    SEVERITIES,
    MaskingVerdict,
    adversarial_batch,
    apgd,
    corrupt,
    fgsm,
    pgd,
    random_search,
    spatial,
    square,
    zero_gradients,
)
from besselnet.train._evaluate import device_of
from besselnet.train._run import Run
from besselnet.train._sample import sample_images
from besselnet.untrusted import check_keys, read_json

# Images of `evaluate --robust`, unless told otherwise.
MOST_ROBUST_IMAGES = 1000
# Small images go through the network in batches of at least so many pixels: little is left of a batch when
# most of its images are broken.
_PIXELS = 100_000
# (images, labels, seed) -> which of them, (N,).
Test = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class RobustSettings:
    """Settings of `evaluate_robust`. The defaults take less than five minutes for 1 000 small images.

    Attributes:
        epsilons: maximum changes of a pixel, for the curves of FGSM and of a short PGD.
        strong_epsilon: epsilon of the strong attacks, one of `epsilons`. Default: the one at which the short
            PGD leaves about half of the correct predictions. Compare networks at the same epsilon.
        attacked: maximum number of attacked images, sampled at random.
        placed: maximum number of images for the spatial attack (rotation and shift).
        angles: number of angles of the spatial attack, equally spaced from 0.
        shift: maximum shift of the spatial attack in every direction, as a fraction of the image side (whole
            pixels).
        curve_steps: steps of the short PGD, from one random start.
        steps, restarts: steps and restarts of PGD at one epsilon; APGD uses `steps` with each of its two
            losses.
        queries: queries of the square attack.
        tries: tries of the random search.
        seed: random seed.
    """

    epsilons: tuple[float, ...] = (2 / 255, 4 / 255, 8 / 255, 16 / 255, 32 / 255)
    strong_epsilon: float | None = None
    attacked: int = 200
    placed: int = 500
    angles: int = 24
    shift: float = 0.1
    curve_steps: int = 20
    steps: int = 50
    restarts: int = 5
    queries: int = 500
    tries: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.epsilons or list(self.epsilons) != sorted(set(self.epsilons)):
            raise ValueError(f"epsilons={self.epsilons!r}: must be increasing numbers")
        for i, epsilon in enumerate(self.epsilons):
            check_number(f"epsilons[{i}]", epsilon, above=0, most=1)
        if self.strong_epsilon is not None and self.strong_epsilon not in self.epsilons:
            raise ValueError(
                f"strong_epsilon={self.strong_epsilon!r}: must be one of epsilons={self.epsilons!r}"
            )
        for name in (
            "attacked",
            "placed",
            "angles",
            "curve_steps",
            "steps",
            "restarts",
            "queries",
            "tries",
        ):
            check_count(name, getattr(self, name))
        check_number("shift", self.shift, least=0, most=1)
        check_seed(self.seed)

    def passes(self, images: int) -> tuple[int, int]:
        """Return the number of forward passes and gradients of single images, if no attack succeeds."""
        attacked, placed = min(self.attacked, images), min(self.placed, images)
        forwards = images * len(CORRUPTIONS) * SEVERITIES
        # Rotated alone, then with nine shifts each.
        forwards += placed * self.angles * 10
        forwards += attacked * (self.queries + self.tries)
        curves = len(self.epsilons) * (self.curve_steps + 1) + self.curve_steps
        strong = self.steps * (self.restarts + 2)
        return forwards, attacked * (curves + strong)


# An attack on (network, images, labels, epsilon), with settings and a seed.
_ATTACKS: dict[str, Callable[[tuple[Any, ...], RobustSettings, int], Tensor]] = {
    "fgsm": lambda given, how, seed: fgsm(*given),
    "short_pgd": lambda given, how, seed: pgd(*given, steps=how.curve_steps, restarts=1, seed=seed),
    "random_search": lambda given, how, seed: random_search(*given, tries=how.tries, seed=seed),
    "pgd": lambda given, how, seed: pgd(*given, steps=how.steps, restarts=how.restarts, seed=seed),
    "apgd_ce": lambda given, how, seed: apgd(*given, steps=how.steps, seed=seed),
    "apgd_dlr": lambda given, how, seed: apgd(*given, steps=how.steps, seed=seed, loss="dlr"),
    "square": lambda given, how, seed: square(*given, queries=how.queries, seed=seed),
}
_CURVES = ("fgsm", "short_pgd")
_STRONG = ("random_search", "pgd", "apgd_ce", "apgd_dlr", "square")
_ENSEMBLE = ("apgd_ce", "apgd_dlr", "square")


def evaluate_robust(
    model: nn.Module,
    images: ImageSet,
    *,
    settings: RobustSettings | None = None,
    interpolation: Interpolation = "cubic",
    border: Border = "zeros",
    batch_size: int = 64,
    kept: Path | None = None,
    stream: TextIO | None = None,
) -> dict[str, Any]:
    """Test a classifier on corrupted and attacked images, and return JSON values.

    | key | content |
    |---|---|
    | images, accuracy | number of images, and the accuracy on clean images |
    | corruptions | for each of `besselnet.robust.CORRUPTIONS`, its strengths and the accuracies |
    | corrupted_accuracy | the mean of these accuracies |
    | spatial | accuracy on clean images, at the worst rotation, and at the worst rotation and shift |
    | attacks | accuracy at each of `epsilons`; at one of them, `epsilon`, under strong attacks |
    | gradient_masking | a `besselnet.robust.MaskingVerdict`: whether the attacks are reliable |
    | settings | the settings used |

    By default, the strong attacks use the epsilon at which the short PGD leaves about half of the correct
    predictions, because attacks differ most there. Under "ensemble", an image counts as correct if APGD, with
    both losses, and the square attack all fail.

    Args:
        model: the network.
        images: images with classes.
        settings: see `RobustSettings`.
        interpolation, border: for transformed images, as in `besselnet.robust.corrupt`.
        batch_size: minimum number of images per forward pass.
        kept: file for finished parts, from which an interrupted call continues. Parts for other weights,
            images or settings are replaced.
        stream: stream for progress; None for no output.
    """
    if images.task != "classify":
        raise ValueError(f"images have labels for {images.task!r}: must have classes")
    check_count("batch_size", batch_size)
    settings = settings or RobustSettings()
    how = {"interpolation": interpolation, "border": border}
    digest = _digest(model, images, {**asdict(settings), **how, "batch_size": batch_size})
    measurement = _Measurement(
        *(model, images, settings, how, batch_size, kept, stream),
        *(digest, _read_parts(kept, digest)),
    )
    with evaluating(model):
        return measurement.run()


@dataclass
class _Measurement:
    """One call of `evaluate_robust`. `parts` are what is done: lists of numbers by name."""

    model: nn.Module
    images: ImageSet
    settings: RobustSettings
    how: dict[str, Any]
    batch_size: int
    kept: Path | None
    stream: TextIO | None
    digest: str
    parts: dict[str, list[float]]

    def __post_init__(self) -> None:
        self.attacked = sample_images(self.images, self.settings.attacked)
        self.placed = sample_images(self.images, self.settings.placed)

    def run(self) -> dict[str, Any]:
        # The images as they are, all, placed and attacked ones; two spatial attacks; PGD in the large ball;
        # images without gradient.
        others, epsilons = 7, len(self.settings.epsilons)
        total = len(CORRUPTIONS) + len(_CURVES) * epsilons + len(_STRONG) + others
        if self.stream is not None and len(self.parts) < total:
            self._announce(self.stream, total)
        with ProgressLog(
            *(total,),
            unit="parts",
            done=len(self.parts),
            stream=self.stream,
            quiet=self.stream is None,
        ) as self.progress:
            right = self._part("clean", self.images, self._right)
            corruptions = self._corruptions()
            placed = self._spatial()
            attacks, verdict = self._attacks()
        return {
            "images": len(self.images),
            "accuracy": len(right) / len(self.images),
            "corrupted_accuracy": fmean(
                share for found in corruptions.values() for share in found["accuracy"]
            ),
            "corruptions": corruptions,
            "spatial": placed,
            "attacks": attacks,
            "gradient_masking": verdict.to_dict(),
            "settings": {
                **asdict(self.settings),
                "epsilons": list(self.settings.epsilons),
                **self.how,
            },
        }

    def _corruptions(self) -> dict[str, dict[str, Any]]:
        found = {}
        for name, corruption in CORRUPTIONS.items():
            if name not in self.parts:
                severities = range(1, SEVERITIES + 1)
                tests = [partial(self._right_if_corrupted, name, s) for s in severities]
                counts = [len(self._which(self.images, test)) for test in tests]
                self._keep(name, [count / len(self.images) for count in counts])
            found[name] = {
                "meaning": corruption.meaning,
                "strengths": list(corruption.strengths),
                "accuracy": self.parts[name],
            }
        return found

    def _spatial(self) -> dict[str, Any]:
        settings = self.settings
        pixels = round(settings.shift * min(self.images.image_size))
        angles = [360 * i / settings.angles for i in range(settings.angles)]

        def test(shifts: list[int], images: Tensor, labels: Tensor, seed: int) -> Tensor:
            moved = spatial(self.model, images, labels, angles=angles, shifts=shifts, **self.how)
            return self._right(moved, labels, seed)

        before = self._part("placed", self.placed, self._right)
        rotated = self._part("rotated", self.placed, partial(test, [0]))
        shifts = sorted({-pixels, 0, pixels})
        after = self._part("spatial", self.placed, partial(test, shifts))
        return {
            "images": len(self.placed),
            "angles": settings.angles,
            "shift_pixels": pixels,
            "accuracy": len(before) / len(self.placed),
            "worst_rotated_accuracy": len(rotated) / len(self.placed),
            "worst_accuracy": len(after) / len(self.placed),
        }

    def _attacks(self) -> tuple[dict[str, Any], MaskingVerdict]:
        count, epsilons = len(self.attacked), self.settings.epsilons
        right = self._part("attacked", self.attacked, self._right)
        curves = {
            name: [len(self._under(name, epsilon)) / count for epsilon in epsilons]
            for name in _CURVES
        }
        half = len(right) / count / 2
        at_half = min(range(len(epsilons)), key=lambda i: abs(curves["short_pgd"][i] - half))
        fixed = self.settings.strong_epsilon
        chosen = at_half if fixed is None else epsilons.index(fixed)
        epsilon = epsilons[chosen]
        standing = {name: self._under(name, epsilon) for name in _STRONG}
        strong = {"fgsm": curves["fgsm"][chosen]}
        strong |= {name: len(numbers) / count for name, numbers in standing.items()}
        together = set.intersection(*(set(standing[name]) for name in _ENSEMBLE))
        without = self._part(
            *("zero_gradients", self.attacked),
            lambda images, labels, _: zero_gradients(self.model, images, labels),
        )
        verdict = MaskingVerdict(
            **{name: strong[name] for name in ("pgd", "fgsm", "random_search", "square")},
            pgd_large_eps=len(self._under("short_pgd", LARGE_EPS)) / count,
            zero_gradients=len(without) / max(1, len(right)),
        )
        found = {
            "images": count,
            "accuracy": len(right) / count,
            "epsilons": list(epsilons),
            **curves,
            "epsilon": epsilon,
            "strong": {**strong, "ensemble": len(together) / count},
        }
        return found, verdict

    def _right(self, images: Tensor, labels: Tensor, seed: int) -> Tensor:
        return self.model(images).argmax(1) == labels

    def _right_if_corrupted(
        self, name: str, severity: int, images: Tensor, labels: Tensor, seed: int
    ) -> Tensor:
        return self._right(corrupt(images, name, severity, seed, **self.how), labels, seed)

    def _under(self, attack: str, epsilon: float) -> list[float]:
        """The numbers of the attacked images that stand."""

        def test(images: Tensor, labels: Tensor, seed: int) -> Tensor:
            given = self.model, images, labels, epsilon
            return self._right(_ATTACKS[attack](given, self.settings, seed), labels, seed)

        return self._part(f"{attack} {epsilon:.6g}", self.attacked, test)

    def _part(self, name: str, images: ImageSet, test: Test) -> list[float]:
        """The numbers of the images that pass the test, unless they are known."""
        if name not in self.parts:
            self._keep(name, self._which(images, test))
        return self.parts[name]

    def _which(self, images: ImageSet, test: Test) -> list[float]:
        batches = self._batches(images)
        found = [
            batches.indices(i)[test(*batches[i], self.settings.seed + i).cpu()]
            for i in range(len(batches))
        ]
        return torch.cat(found).tolist()

    def _batches(self, images: ImageSet) -> Batches:
        height, width = images.image_size
        size = max(self.batch_size, _PIXELS // (height * width))
        return Batches(images, size, device=device_of(self.model))

    def _keep(self, name: str, numbers: list[float]) -> None:
        """Note what was found, at once in the file."""
        self.parts[name] = numbers
        if self.kept is not None:
            try:
                write_json(self.kept, {"digest": self.digest, "parts": self.parts})
            except OSError as error:
                # What is found is worth more than that it is kept.
                logging.getLogger(__name__).warning(
                    "%s cannot be written: %s", self.kept, error.strerror or error
                )
                self.kept = None
        self.progress.advance(text=name.replace("_", " "))

    def _announce(self, stream: TextIO, total: int) -> None:
        """Say what is to be done, and how long it takes if no image is broken before the end."""
        settings, attacked = self.settings, len(self.attacked)
        images, labels = self._batches(self.attacked)[0]
        self.model(images)  # The first pass also plans and allocates.
        started = time.perf_counter()
        self.model(images)
        forward = (time.perf_counter() - started) / len(images)
        started = time.perf_counter()
        adversarial_batch(self.model, images, labels, settings.epsilons[0], steps=1)
        gradient = (time.perf_counter() - started) / len(images)
        forwards, gradients = settings.passes(len(self.images))
        seconds = forwards * forward + gradients * gradient
        done = f", {len(self.parts)} of {total} parts are done" if self.parts else ""
        print(
            f"corrupting {len(self.images)} images, attacking {attacked}: at most about "
            f"{in_words(max(1, seconds))} in total{done}",
            file=stream,
            flush=True,
        )


def robust_report(run: Run, images: ImageSet, most: int, stream: TextIO | None) -> dict[str, Any]:
    """`evaluate_robust` of a run: what is done is kept in `robust.json`, and drawn in `robust.png`."""
    from besselnet.drawing import attempt, draw_robust

    data = run.config.data
    found = evaluate_robust(
        *(run.model, sample_images(images, most)),
        interpolation=data.interpolation,
        border=data.border,
        batch_size=run.config.train.batch_size,
        kept=run.folder / "robust.json",
        stream=stream,
    )
    path = run.folder / "robust.png"
    return {**found, "picture": str(path) if attempt(draw_robust, path, found) else None}


def _digest(model: nn.Module, images: ImageSet, settings: dict[str, Any]) -> str:
    """Of all that decides the outcome."""
    about = [besselnet.__version__, settings, str(images)]
    digest = hashlib.sha256(json.dumps(about, allow_nan=False).encode())
    # The same for images on disk and in memory.
    tensors = {**model.state_dict(), "images": row_hashes(images.images), "labels": images.labels}
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read_parts(path: Path | None, digest: str) -> dict[str, list[float]]:
    """What a file holds of the measurement of this digest; nothing if it is of another."""
    if path is None or not path.exists():
        return {}
    values = read_json(path)
    check_keys(path, values, {"digest": (str, "a string"), "parts": (dict, "an object")})
    if values["digest"] != digest:
        return {}
    for name, numbers in values["parts"].items():
        if not isinstance(numbers, list):
            raise ValueError(
                f"{path}: {name!r} is {reprlib.repr(numbers)}: must be a list of numbers"
            )
        for number in numbers:
            check_number(f"{path}: {name!r}", number, least=0)
    return values["parts"]
