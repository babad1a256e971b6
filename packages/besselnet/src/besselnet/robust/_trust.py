"""`Trust`: whether single predictions of a network are reliable, fitted on held-out images."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from besselnet.atomic import write_atomically
from besselnet.checks import check_number
from besselnet.robust._calibration import fit_temperature
from besselnet.robust._conformal import answer_threshold, prediction_sets, quantile_rank, reached
from besselnet.robust._unlike import Likeness, Network, describe_images, fit_likeness
from besselnet.untrusted import check_file, parse_json

Batches = Iterable[tuple[Tensor, Tensor]]

TRUST_FILE = "trust.safetensors"
# The layout of the file. It changes when another version could not read it, or would misread it.
FORMAT = 1
COVERAGE = 0.95
# Error rates of sure answers: the first that the held-out images can promise, unless one is asked for.
ERROR_RATES = (0.05, 0.1, 0.2)
# Of that promise.
CONFIDENCE = 0.9
_GROUPS = ("means", "matrices", "centres")
_HELD_OUT = ("answer_probability", "answer_right", "true_probability", "distances")


@dataclass(frozen=True)
class Limits:
    """Thresholds for sure predictions, prediction sets and unlike images.

    Attributes:
        coverage: fraction of images (from the distribution of the held-out ones) that are not flagged as
            unlike, and fraction whose set contains the true class.
        error_rate: maximum error rate of sure predictions; None if none can be guaranteed, and then no
            prediction is sure.
        probability: lowest probability of a sure prediction.
        in_set: lowest probability of a class in the prediction set.
        unlike: score above which an image is flagged as unlike the training images.
    """

    coverage: float
    error_rate: float | None
    probability: float
    in_set: float
    unlike: float


@dataclass(frozen=True)
class Judgement:
    """Result of `Trust.judge` for a batch of images, on the CPU.

    Attributes:
        probabilities: (N, K), calibrated.
        sets: (N, K) bool, the prediction sets.
        unsure: (N,) bool, whether the probability is too low.
        unlike: (N,) bool, whether the image is unlike the training images.
        scores: (N,) out-of-distribution scores; images above `Limits.unlike` are unlike.
    """

    probabilities: Tensor
    sets: Tensor
    unsure: Tensor
    unlike: Tensor
    scores: Tensor

    @property
    def sure(self) -> Tensor:
        """Whether each prediction is sure, (N,) bool: neither unsure nor unlike."""
        return ~(self.unsure | self.unlike)

    def words(self) -> list[str]:
        """Return "yes", "unlike" or "unsure" for each image; "unlike" takes precedence."""
        pairs = zip(self.unlike.tolist(), self.unsure.tolist())
        return ["unlike" if unlike else "unsure" if unsure else "yes" for unlike, unsure in pairs]


@dataclass(frozen=True)
class Trust:
    """Calibration and reliability of the predictions of one network; from `fit_trust`.

    Attributes:
        temperature: divisor of the logits.
        likeness: distribution of the training images.
        answer_probability: (N,) calibrated probabilities of the predictions for the N held-out images.
        answer_right: (N,) bool, whether they are correct.
        true_probability: (N,) calibrated probabilities of the true classes.
        distances: (N, groups) distances from the training images, see `Likeness.distances`.
    """

    temperature: float
    likeness: Likeness
    answer_probability: Tensor
    answer_right: Tensor
    true_probability: Tensor
    distances: Tensor

    def limits(self, coverage: float = COVERAGE, error_rate: float | None = None) -> Limits:
        """Return the thresholds for a coverage and an error rate.

        Args:
            coverage: see `Limits`. With too few held-out images, sets contain all classes, and an image is
                unlike if its score is above all of theirs.
            error_rate: see `Limits`. Default: the first of 5, 10 and 20% that can be guaranteed.
        """
        in_set = reached(self.true_probability, coverage)
        scores = self._score(self.distances)
        rank = min(quantile_rank(len(scores), coverage), len(scores))
        unlike = scores.sort().values[rank - 1].item()
        # Sure answers are for images that are not unlike: the error rate is promised for these alone.
        kept = scores <= unlike
        promised, least = None, math.inf
        for rate in ERROR_RATES if error_rate is None else (error_rate,):
            least = answer_threshold(
                self.answer_probability[kept], self.answer_right[kept], rate, confidence=CONFIDENCE
            )
            if math.isfinite(least):
                promised = rate
                break
        return Limits(coverage, promised, least, in_set, unlike)

    def judge(self, network: Network, images: Tensor, limits: Limits | None = None) -> Judgement:
        """Judge the predictions of the network for images (N, C, H, W), floats in [0, 1].

        `network` is the network that was fitted, in eval mode. `limits` defaults to `limits()`; for many
        batches, compute them once.
        """
        limits = limits or self.limits()
        logits, features = describe_images(network, images)
        probabilities = (logits.cpu().double() / self.temperature).softmax(1)
        scores = self._score(self.likeness.distances(features))
        return Judgement(
            probabilities,
            prediction_sets(probabilities, limits.in_set),
            probabilities.amax(1) < limits.probability,
            scores > limits.unlike,
            scores,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        found = {name: getattr(self, name) for name in _HELD_OUT}
        found["temperature"] = torch.tensor(self.temperature, dtype=torch.float64)
        for name in _GROUPS:
            for number, tensor in enumerate(getattr(self.likeness, name)):
                found[f"{name}/{number}"] = tensor
        return found

    def _score(self, distances: Tensor) -> Tensor:
        """(N,) the larger of the distances (N, groups): an image that is unlike in one way alone is unlike.

        Each is counted in deviations from the mean of the held-out images.
        """
        deviation, mean = torch.std_mean(self.distances, dim=0, correction=0)
        return ((distances - mean) / deviation.clamp(min=1e-6)).amax(1)


def fit_trust(network: Network, training: Batches, held_out: Batches) -> Trust:
    """Fit a `Trust` to a trained network in eval mode.

    Args:
        network: maps images (N, C, H, W), floats in [0, 1], to logits (N, K).
        training: batches of (images, labels) that the network was trained on, without augmentation; a few
            thousand images are enough.
        held_out: batches that it was not trained on, from the distribution of the images to predict.
    """
    _, features, labels = _describe_all(network, training)
    likeness = fit_likeness(features, labels)
    logits, features, labels = _describe_all(network, held_out)
    temperature = fit_temperature(logits, labels)
    probabilities = (logits / temperature).softmax(1)
    best = probabilities.max(1)
    return Trust(
        temperature,
        likeness,
        best.values,
        best.indices == labels,
        probabilities.gather(1, labels[:, None])[:, 0],
        likeness.distances(features),
    )


def _describe_all(network: Network, batches: Batches) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    """Logits, features and labels of all images, float64 on the CPU."""
    columns: list[_Column] = []
    for images, classes in batches:
        outputs, found = describe_images(network, images)
        parts = (outputs.cpu().double(), classes.cpu(), *found)
        columns = columns or [_Column(part) for part in parts]
        for column, part in zip(columns, parts):
            column.append(part)
    if not columns:
        raise ValueError("batches is empty: must have at least one batch")
    logits, labels, *groups = (column.rows() for column in columns)
    return logits, tuple(groups), labels


class _Column:
    """Rows of many batches in one tensor, which doubles when it is full.

    One small tensor kept for each batch would lie in the memory that its images leave, so that the next
    batch does not fit there: hundreds of megabytes for tens of thousands of images.
    """

    def __init__(self, like: Tensor) -> None:
        self._whole, self._count = like[:0].clone(), 0

    def append(self, part: Tensor) -> None:
        end = self._count + len(part)
        if end > len(self._whole):
            whole = part.new_empty((2 * end, *part.shape[1:]))
            whole[: self._count] = self._whole[: self._count]
            self._whole = whole
        self._whole[self._count : end] = part
        self._count = end

    def rows(self) -> Tensor:
        return self._whole[: self._count].clone()


def save_trust(trust: Trust, folder: str | Path, weights: str = "") -> None:
    """Save a `Trust` to the folder of its network; `weights` is the digest of the network weights."""
    content = save(
        {name: tensor.contiguous().clone() for name, tensor in trust.tensors().items()},
        # One key: several are written in any order, and the same trust should be the same bytes.
        metadata={"besselnet": json.dumps({"format": FORMAT, "weights": weights}, allow_nan=False)},
    )
    write_atomically(Path(folder) / TRUST_FILE, content)


def load_trust(folder: str | Path, weights: str | None = None) -> Trust | None:
    """Load the `Trust` from the folder of a network; None if there is none.

    Raises `ValueError` if it belongs to other weights than `weights`, if given.
    """
    path = Path(folder) / TRUST_FILE
    if not path.exists():
        return None
    check_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            about = parse_json((file.metadata() or {}).get("besselnet", "{}"), path)
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
    found = about.get("format") if isinstance(about, dict) else None
    if found != FORMAT:
        raise ValueError(
            f"{path}: format {found!r} is not the format {FORMAT} of this besselnet: use the version that "
            "wrote it, or remove the file"
        )
    if weights is not None and about.get("weights") != weights:
        raise ValueError(
            f"{path} was fitted to other weights than those in its folder: remove the file, or train again"
        )
    _check_tensors(path, tensors)
    groups = tensors["distances"].shape[1]
    columns = ([tensors[f"{name}/{n}"] for n in range(groups)] for name in _GROUPS)
    likeness = Likeness(*map(tuple, columns))
    held_out = (tensors[name] for name in _HELD_OUT)
    return Trust(tensors["temperature"].item(), likeness, *held_out)


def _check_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Refuse tensors that are not those of `save_trust`: names, types, shapes, values."""
    distances = tensors.get("distances", torch.empty(0))
    images, groups = distances.shape if distances.ndim == 2 else (0, 0)
    shapes: dict[str, Sequence[int]] = {"temperature": (), "distances": (images, groups)}
    shapes |= dict.fromkeys(_HELD_OUT[:3], (images,))
    for n in range(groups):
        # Sizes that other tensors must agree with.
        width, kept = _shape(tensors, f"matrices/{n}")
        classes, _ = _shape(tensors, f"centres/{n}")
        shapes |= {f"means/{n}": (width,), f"matrices/{n}": (width, kept)}
        shapes[f"centres/{n}"] = (classes, kept)
    for name in {**shapes, **tensors}:
        tensor, wanted = tensors.get(name), shapes.get(name)
        if tensor is None or wanted is None or tuple(tensor.shape) != tuple(wanted) or 0 in wanted:
            found = None if tensor is None else tuple(tensor.shape)
            raise ValueError(f"{path}: {name!r} has shape {found}, must be {wanted}")
        if (tensor.dtype == torch.bool) != (name == "answer_right") or not (
            tensor.dtype == torch.bool or tensor.is_floating_point()
        ):
            raise ValueError(f"{path}: {name!r} must not be {tensor.dtype}")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{path}: {name!r} has values that are NaN or infinite")
    check_number(f"{path}: 'temperature'", tensors["temperature"].item(), above=0)


def _shape(tensors: dict[str, Tensor], name: str) -> tuple[int, int]:
    found = tensors.get(name, torch.empty(0))
    return (found.shape[0], found.shape[1]) if found.ndim == 2 else (0, 0)
