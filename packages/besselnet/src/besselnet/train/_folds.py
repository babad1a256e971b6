"""k-fold cross-validation: every image is tested once, by a network that was not trained on it.

fold-1/, fold-2/, ...   the run folder of each fold
folds.json              the scores and their summary (`CrossValidation.to_dict`)
folds.png
"""

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from besselnet.atomic import write_json
from besselnet.data import Splits
from besselnet.locking import hold_folder
from besselnet.train._config import RunConfig
from besselnet.train._images import check_source, divide_in_folds, load_images
from besselnet.train._run import fold_folder, read_run_config, train_run
from besselnet.train._tasks import LearningTask, task_of

# Of the normal distribution: 95% lie within so many standard deviations.
_TWO_SIDED_95 = 1.959964


@dataclass(frozen=True)
class CrossValidation:
    """Result of `train_folds`.

    Attributes:
        scores: score of each fold on its test images: accuracy, or mean IoU, R² or F1.
        images: number of tested images of each fold.
        task: the task, which knows the name of the score.
    """

    scores: tuple[float, ...]
    images: tuple[int, ...]
    task: LearningTask = field(compare=False)

    @property
    def mean(self) -> float:
        """Mean score of the folds."""
        return fmean(self.scores)

    @property
    def spread(self) -> float:
        """Standard deviation of the scores of the folds (with k - 1 in the denominator)."""
        return stdev(self.scores)

    @property
    def right(self) -> tuple[int, ...] | None:
        """Number of correct predictions of each fold; None for scores that do not count images."""
        if self.task.score != "accuracy":
            return None
        return tuple(round(score * images) for score, images in zip(self.scores, self.images))

    @property
    def accuracy(self) -> float | None:
        """Accuracy over all tested images; None for other scores."""
        return None if self.right is None else sum(self.right) / sum(self.images)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% confidence interval of `accuracy`: Wilson's, as if all tested images were independent."""
        return None if self.right is None else wilson_interval(sum(self.right), sum(self.images))

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        name = self.task.score
        found = {
            "folds": len(self.images),
            "images": sum(self.images),
            f"mean_{name}": self.mean,
            "standard_deviation": self.spread,
            f"{name}_of_each_fold": list(self.scores),
            "images_of_each_fold": list(self.images),
        }
        if self.interval is not None:
            found |= {"accuracy": self.accuracy, "confidence_interval_95": list(self.interval)}
        return found


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95% confidence interval of a probability, for `right` successes out of `total`."""
    z = _TWO_SIDED_95
    share, weight = right / total, z * z / total
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / total + weight / total / 4) / (1 + weight)
    # Rounding puts the ends at 0 and 1 beyond, or on the wrong side of the share.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def train_folds(
    config: RunConfig,
    folder: str | Path,
    *,
    images: Splits | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> CrossValidation:
    """Cross-validate: train a network for each of `config.data.folds` folds, in its own run folder.

    All images (train, validation and test together) are split into folds. Each fold is an ordinary run:
    ``besselnet evaluate FOLDER/fold-2`` tests it on its own test images.

    Args:
        config: as for `train_run`, with `data.folds`.
        folder: a new folder, or with `resume` that of an earlier call with the same `config`.
        images: all images, in any splits. Default: loaded from `config.data`.
        resume: continue an interrupted call. Finished folds are kept.

    Raises:
        Busy: if another process is writing to `folder` (`besselnet.locking`).
    """
    folder = Path(folder)
    if config.train.devices * config.train.nodes > 1 or "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError("folds train in one process: do not use devices, nodes or torchrun")
    if images is None:
        check_source(config.data)
    with hold_folder(folder):
        if (folder / "config.json").exists():
            raise ValueError(f"{folder} already holds a run: choose another folder for folds")
        if not resume and (fold_folder(folder, 1) / "config.json").exists():
            raise ValueError(f"{folder} already holds folds: resume them, or choose another folder")
        whole = load_images(replace(config.data, fold=None)) if images is None else images
        divided = divide_in_folds(whole, config.data)
        tested = []
        for number, splits in enumerate(divided, 1):
            if not quiet:
                print(f"fold {number} of {len(divided)}", flush=True)
            one = replace(config, data=replace(config.data, fold=number))
            place = fold_folder(folder, number)
            run = train_run(one, place, images=splits, resume=resume, quiet=quiet)
            tested.append(run.results()["test"])
        task = task_of(whole.train)
        found = CrossValidation(
            tuple(result[task.score] for result in tested),
            tuple(result["images"] for result in tested),
            task,
        )
        write_json(folder / "folds.json", found.to_dict())
        from besselnet.drawing import attempt, draw_folds

        attempt(draw_folds, folder / "folds.png", found.scores, task.title, found.interval)
    return found


def read_folds_config(folder: str | Path) -> RunConfig:
    """Return the configuration of the folds in a folder, as passed to `train_folds`."""
    config = read_run_config(fold_folder(Path(folder), 1))
    return replace(config, data=replace(config.data, fold=None))
