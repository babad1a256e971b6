"""The training loop, for any network, any task and any batches.

Everything random is a function of the seed and the position (epoch, batch), and the learning rate
is a function of the step. So weights, optimiser moments and position are the whole state. A training
that is stopped at any moment and resumed ends with bit-identical weights (on the same number of the
same processors).
"""

import logging
import math
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from besselnet._progress import ProgressLog
from besselnet.locking import hold_folder
from besselnet.train._adversarial import check_adversarial
from besselnet.train._checkpoint import (
    Checkpoint,
    check_group,
    load_checkpoint,
    optimizer_moments,
    restore_moments,
    save_checkpoint,
)
from besselnet.train._config import TrainConfig, changed_settings, to_dict
from besselnet.train._digest import ImagesDigest, changed_images
from besselnet.train._evaluate import NonFiniteLoss, evaluate
from besselnet.train._history import History, describe_epoch, read_history, write_metrics
from besselnet.train._losses import Criterion
from besselnet.train._optimise import MovingAverage, learning_rate, make_optimizer
from besselnet.train._pace import training_pace
from besselnet.train._process import Interrupted, StopRequest, launch
from besselnet.train._seeding import seed_generators
from besselnet.train._sized import SizedBatches
from besselnet.train._tasks import Classify, LearningTask
from besselnet.train._together import SharedForward
from besselnet.untrusted import check_keys, reading

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from torchmetrics import Metric

CHECKPOINT_NAME = "checkpoint.safetensors"
# Seconds that a save may take after every epoch; a longer one waits until training has taken so many times
# as long. Of a large network on few images, saving would take half of the time.
_QUICK_SAVE, _TRAINING_PER_SAVING = 0.2, 20
_COUNT, _LIST, _OBJECT = (int, "an integer"), (list, "a list"), (dict, "an object")
# What a checkpoint says beside its tensors.
_VALUES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("train", "history", "precision"), _OBJECT),
    "batches": _COUNT,
    **{f"history.{key}": _COUNT for key in ("epoch", "batch", "step", "epochs_since_best")},
    **dict.fromkeys(("history.rows", "history.sums"), _LIST),
    "history.best": (int | float | None, "a finite number or null"),
    "history.finished": (bool, "true or false"),
}
_DIGEST: dict[str, tuple[Any, str]] = {
    "images": _OBJECT,
    **dict.fromkeys(("images.shape", "images.classes"), _LIST),
    "images.type": (str, "a string"),
}


def fit(
    model: nn.Module,
    train_batches: SizedBatches,
    val_batches: SizedBatches | None,
    config: TrainConfig,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    fabric: "Fabric | None" = None,
    labels: Tensor | None = None,
    digest: ImagesDigest | None = None,
    metrics: "Mapping[str, Metric] | None" = None,
    task: LearningTask | None = None,
    quiet: bool = False,
) -> History:
    """Train `model` in place and return the history; the final weights are those of `config.keep`.

    Args:
        model: any module that maps images to logits (N, K), or to the outputs of its `task`.
        train_batches: any iterable of (images, labels) with a length. For exact resuming, its order
            must depend only on `set_epoch` and on the global random generators.
        val_batches: evaluated after each epoch; None for no validation.
        config: see `TrainConfig`. `batch_size` is not used here, only where the batches are built. With
            `adversarial`, images must be in [0, 1].
        folder: folder for checkpoint, metrics.csv and log.txt; None writes nothing. One process at a time.
        resume: continue from the checkpoint in `folder`, or start from the beginning if there is none.
        fabric: the processes to train on, from `launch`; required for more than one process. Each process
            must get its own part of the same batches.
        labels: all training labels, required for `class_weights="balanced"`.
        digest: digest of the images (`digest_images`), stored in the checkpoint; resuming with other images
            raises an error. Without it, changed images are not detected if their number is the same.
        metrics: additional torchmetrics for the validation, by column name.
        task: the task, such as `Segment(classes)`. Default: classification.
        quiet: print nothing.

    Raises:
        Busy: if another process is training in `folder` (`besselnet.locking`).
        NonFiniteLoss: in training, with the step and the batch, or in validation, with the epoch.
        Interrupted: after Ctrl-C or SIGTERM, once the state is saved.
    """
    if fabric is None:
        if config.devices * config.nodes > 1:
            raise ValueError(
                f"devices={config.devices} and nodes={config.nodes} require several processes: "
                "call launch(config) first, give each process its part of the batches, and "
                "pass fabric=..."
            )
        fabric = launch(config)
    if not len(train_batches):
        raise ValueError("train_batches is empty")
    if val_batches is None and (config.keep == "best" or config.patience is not None):
        raise ValueError("keep='best' and patience require validation batches, got None")
    task = task or Classify()
    monitors = ("val_loss", f"val_{task.score}")
    if config.monitor not in monitors:
        raise ValueError(
            f"monitor={config.monitor!r}: must be {' or '.join(map(repr, monitors))} for {task.labels}"
        )
    check_adversarial(config, task)
    criterion = task.criterion(config, labels)
    place = Path(folder) if folder is not None and fabric.is_global_zero else None
    quiet = quiet or not fabric.is_global_zero
    with nullcontext() if place is None else hold_folder(place):
        training = _Training(
            *(model, train_batches, val_batches, config, place, fabric, criterion, metrics),
            *(digest, task, quiet),
        )
        training.restore(resume)
        return training.run()


@dataclass
class _Training:
    """One call of `fit`, in one process; `folder` is where this one writes."""

    model: nn.Module
    train_batches: SizedBatches
    val_batches: SizedBatches | None
    config: TrainConfig
    folder: Path | None
    fabric: "Fabric"
    criterion: Criterion
    metrics: "Mapping[str, Metric] | None"
    digest: ImagesDigest | None
    task: LearningTask
    quiet: bool

    def __post_init__(self) -> None:
        model, config = self.model, self.config
        self.optimizer = make_optimizer(model, config)
        self.forward, self.step = self.fabric.setup(model, self.optimizer)
        self.shared = SharedForward(
            self.fabric, model, self.forward, self.criterion, self.task, config
        )
        self.average = None if config.ema_decay is None else MovingAverage(model, config.ema_decay)
        self.best_weights: dict[str, Tensor] = {}
        self.history = History(sums=self._no_sums())
        self.total_steps = config.epochs * math.ceil(len(self.train_batches) / config.accumulate)
        self.saved_at, self.save_seconds = -math.inf, 0.0

    def _no_sums(self) -> list[float]:
        return [0.0] * (4 + self.task.tally_size)

    def run(self) -> History:
        history = self.history
        log = None if self.folder is None else self.folder / "log.txt"
        with (
            StopRequest() as stop,
            self._board() as board,
            ProgressLog(
                self.total_steps, unit="steps", done=history.step, log=log, quiet=self.quiet
            ) as progress,
        ):
            if history.rows:
                self._write_metrics()
            if history.finished:
                progress.line(f"already finished, after {history.epoch} epochs")
            elif history.step:
                progress.line(f"resuming at epoch {history.epoch + 1}, step {history.step}")
            if not (self.quiet or history.finished):
                self._announce(progress)
            while not history.finished:
                self._train_epoch(stop, progress)
                row = self._finish_epoch()
                self._save_in_time()
                self._write_metrics()
                if board is not None:
                    for name, value in row.items():
                        if value is not None:
                            board.add_scalar(name, value, history.step)
                left = progress.time_left()
                progress.line(describe_epoch(row, self.config.epochs, left, self.task))
        if self.config.keep == "best":
            self.model.load_state_dict(self.best_weights)
        elif self.average is not None:
            self.model.load_state_dict(self.average.module.state_dict())
        return history

    def _announce(self, progress: ProgressLog) -> None:
        """Say how long the rest takes. Seeds come anew with each epoch: this leaves no trace."""
        pace = training_pace(
            *(self.model, self.train_batches, self.val_batches, self.config, self.criterion),
            autocast=self.fabric.autocast,
        )
        if pace is not None:
            history, epochs = self.history, self.config.epochs - self.history.epoch
            batches = epochs * len(self.train_batches) - history.batch
            progress.line(pace.describe(epochs, batches, self.total_steps - history.step))

    def _train_epoch(self, stop: StopRequest, progress: ProgressLog) -> None:
        history, config = self.history, self.config
        batches = len(self.train_batches)
        # A model that asks for it is told which images each forward pass is about.
        announce = getattr(self.model, "begin_batch", None)
        numbers = getattr(self.train_batches, "indices", None)
        self.model.train()
        started, seconds_before = time.monotonic(), history.sums[-1]
        for index, images, labels in self._rest_of_epoch():
            group = index // config.accumulate * config.accumulate
            group_size = min(config.accumulate, batches - group)
            ends_group = index + 1 == group + group_size
            images, labels = images.to(self.fabric.device), labels.to(self.fabric.device)
            share = self.fabric.world_size > 1 and not ends_group
            with self.fabric.no_backward_sync(self.forward) if share else nullcontext():
                if announce is not None and numbers is not None:
                    announce(numbers(index))
                loss, sums, stopping = self.shared(images, labels, stop.signal_number)
                if not math.isfinite(sums[0]):
                    raise self._not_finite(sums[0], index, images)
                # Processes average their gradients: times world_size makes that the sum.
                self.fabric.backward(loss * (self.fabric.world_size / sums[1] / group_size))
            history.batch = index + 1
            history.sums[:-1] = [old + new for old, new in zip(history.sums, sums)]
            history.sums[-1] = seconds_before + time.monotonic() - started
            if not ends_group:
                continue
            self._take_step()
            pace = history.sums[-2] / max(history.sums[-1], 1e-9)
            mean_loss = history.sums[0] / history.sums[1]
            progress.advance(
                text=f"epoch {history.epoch + 1}/{config.epochs}  loss {mean_loss:.4f}  "
                f"{pace:.0f} images/s"
            )
            if stopping:
                self._save()
                where = "" if self.folder is None else f"; the state is saved in {self.folder}"
                raise Interrupted(
                    f"stopped at epoch {history.epoch + 1}, step {history.step}{where}",
                    stop.signal_number or signal.SIGINT,
                )
            if config.checkpoint_steps and history.step % config.checkpoint_steps == 0:
                self._save()

    def _rest_of_epoch(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(index, images, labels) of this epoch from the current position on."""
        batches, epoch, first = self.train_batches, self.history.epoch, self.history.batch
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(epoch)
        device, seed = self.fabric.device, self.config.seed
        seed_generators(device, seed, epoch, 0, 0)
        pick = getattr(batches, "__getitem__", None)
        start = getattr(batches, "iter_from", None)
        iterator = start(first) if start else iter(batches)
        # Batches that neither have an index nor start anywhere must be drawn again to be passed over.
        for index in range(first if pick or start else 0, len(batches)):
            seed_generators(device, seed, epoch, index + 1, self.fabric.global_rank)
            try:
                images, labels = pick(index) if pick else next(iterator)
            except (StopIteration, IndexError):
                raise ValueError(
                    f"train_batches has length {len(batches)} but yielded {index} batches"
                ) from None
            if index >= first:
                yield index, images, labels

    def _remedy(self) -> str:
        return (
            f"lower train.learning_rate (now {self.config.learning_rate}), set train.clip_norm=1.0, "
            "or use train.precision='32-true'"
        )

    def _not_finite(self, loss: float, index: int, images: Tensor) -> NonFiniteLoss:
        seen = images.detach().float()
        cause = (
            f"the images of this batch are between {seen.min().item():.3g} and "
            f"{seen.max().item():.3g}: {self._remedy()}"
            if bool(torch.isfinite(seen).all())
            else "the images of this batch have values that are not finite: check the data"
        )
        return NonFiniteLoss(
            f"the loss is {loss} at step {self.history.step} (epoch "
            f"{self.history.epoch + 1}, batch {index + 1} of {len(self.train_batches)}); {cause}"
        )

    def _take_step(self) -> None:
        config, history = self.config, self.history
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, history.step, self.total_steps)
        if config.clip_norm is not None:
            self.fabric.clip_gradients(self.forward, self.step, max_norm=config.clip_norm)
        self.step.step()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update(self.model, history.step)
        history.step += 1

    def _finish_epoch(self) -> dict[str, Any]:
        """Validate, note the epoch, decide whether to go on, and move to the next epoch."""
        history, config = self.history, self.config
        loss, weight, *tally, images, seconds = history.sums
        row: dict[str, Any] = {
            "epoch": history.epoch + 1,
            "step": history.step,
            # Of the last step; the optimiser has forgotten it if the run was stopped just then.
            "learning_rate": learning_rate(config, history.step - 1, self.total_steps),
            "train_loss": loss / weight,
            f"train_{self.task.score}": self.task.score_of(
                torch.tensor(tally, dtype=torch.float64), images
            ),
        }
        watched = self.model if self.average is None else self.average.module
        self.shared.share_buffers(self.model, watched)
        if self.val_batches is not None:
            try:
                result = evaluate(
                    *(watched, self.val_batches),
                    task=self.task,
                    metrics=self.metrics,
                    autocast=self.fabric.autocast,
                )
            except NonFiniteLoss as error:
                raise NonFiniteLoss(
                    f"validation after epoch {history.epoch + 1}, step {history.step}: {error}; "
                    f"{self._remedy()}"
                ) from None
            row |= {"val_loss": result.loss, f"val_{self.task.score}": result.score}
            row |= result.metrics
            sign = -1 if config.monitor == "val_loss" else 1
            if history.best is None or sign * row[config.monitor] > sign * history.best:
                history.best, history.epochs_since_best = row[config.monitor], 0
                if config.keep == "best":
                    self.best_weights = {
                        name: tensor.detach().cpu().clone()
                        for name, tensor in watched.state_dict().items()
                    }
            else:
                history.epochs_since_best += 1
        row |= {"images_per_second": images / max(seconds, 1e-9), "seconds": seconds}
        history.rows.append(row)
        history.epoch, history.batch, history.sums = history.epoch + 1, 0, self._no_sums()
        out_of_patience = (
            config.patience is not None and history.epochs_since_best >= config.patience
        )
        history.finished = history.epoch == config.epochs or out_of_patience
        return row

    def _check_weights(self) -> None:
        """Refuse weights that are not finite: a loss before the last step does not tell of them."""
        for name, weight in self.model.named_parameters():
            if not bool(weight.isfinite().all()):
                raise NonFiniteLoss(
                    f"{name} is infinite or NaN after step {self.history.step}; {self._remedy()}"
                )

    def _save_in_time(self) -> None:
        """Save after an epoch, unless saves are slow and the last one is recent."""
        recent = time.monotonic() - self.saved_at < _TRAINING_PER_SAVING * self.save_seconds
        if self.save_seconds > _QUICK_SAVE and recent and not self.history.finished:
            self._check_weights()
        else:
            self._save()

    def _save(self) -> None:
        self._check_weights()
        if self.folder is None:
            return
        started = time.monotonic()
        groups = {
            "model": self.model.state_dict(),
            "optimizer": optimizer_moments(self.optimizer),
            "best": self.best_weights,
        }
        if self.average is not None:
            groups["average"] = self.average.module.state_dict()
        values = {
            "train": to_dict(self.config),
            "batches": len(self.train_batches),
            "history": asdict(self.history),
            "precision": self.fabric.strategy.precision.state_dict(),
        }
        if self.digest is not None:
            groups["images"], values["images"] = self.digest.tensors, self.digest.about
        try:
            save_checkpoint(self.folder / CHECKPOINT_NAME, Checkpoint(groups, values))
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}; the last good checkpoint is kept: free some space, then resume",
                str(self.folder / CHECKPOINT_NAME),
            ) from error
        self.saved_at = time.monotonic()
        self.save_seconds = self.saved_at - started

    def restore(self, resume: bool) -> None:
        """Take up the state in the folder; process 0 reads it and gives it to the others."""
        found: Checkpoint | None = None
        if self.folder is not None and (self.folder / CHECKPOINT_NAME).exists():
            if not resume:
                raise ValueError(
                    f"{self.folder} already holds a training: resume it (resume=True), "
                    "or choose another folder"
                )
            found = load_checkpoint(self.folder / CHECKPOINT_NAME)
        found = self.fabric.broadcast(found)
        if found is None:
            return
        where = CHECKPOINT_NAME if self.folder is None else str(self.folder / CHECKPOINT_NAME)
        check_keys(where, found.values, _VALUES)
        self._check_images(where, found)
        changes = changed_settings(found.values["train"], to_dict(self.config))
        if found.values["batches"] != len(self.train_batches):
            changes.append(
                f"batches in an epoch: {found.values['batches']} -> {len(self.train_batches)}"
            )
        if changes:
            raise ValueError(f"cannot resume with changed settings: {'; '.join(changes)}")
        most = (self.config.epochs, len(self.train_batches), self.total_steps, len(self._no_sums()))
        self.history = history = read_history(where, found.values["history"], *most)
        weights = self.model.state_dict()
        has_best = self.config.keep == "best" and history.best is not None
        check_group(where, found, "model", weights)
        check_group(where, found, "best", weights if has_best else {})
        self.model.load_state_dict(found.groups["model"])
        self.best_weights = found.groups["best"]
        if self.average is not None:
            check_group(where, found, "average", weights)
            self.average.module.load_state_dict(found.groups["average"])
        check_group(where, found, "optimizer")
        with reading(f"{where}: 'optimizer'"):
            restore_moments(self.optimizer, found.groups["optimizer"])
        with reading(f"{where}: 'precision'"):
            self.fabric.strategy.precision.load_state_dict(found.values["precision"])

    def _check_images(self, where: str, found: Checkpoint) -> None:
        """Refuse a checkpoint of other images than these, where both are known."""
        if self.digest is None:
            return
        if "images" not in found.values:
            # Of an earlier version, or of a call without a digest. The next checkpoint has one.
            if self.folder is not None:
                logging.getLogger(__name__).warning(
                    "%s has no digest of its images: changed images cannot be detected",
                    where,
                )
            return
        check_keys(where, found.values, _DIGEST)
        check_group(where, found, "images")
        with reading(f"{where}: 'images'"):
            trained_on = ImagesDigest(found.values["images"], found.groups["images"])
            changes = changed_images(trained_on, self.digest)
        if changes:
            place = "the training" if self.folder is None else str(self.folder)
            raise ValueError(
                f"cannot resume {place}: its images have changed: {', '.join(changes)}; "
                "restore them, or train in another folder"
            )

    def _write_metrics(self) -> None:
        if self.folder is not None:
            write_metrics(self.folder / "metrics.csv", self.history)

    def _board(self) -> Any:
        """A TensorBoard writer as a context, or a context of None."""
        if not self.config.tensorboard or self.folder is None:
            return nullcontext()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError(
                "tensorboard=true needs TensorBoard: pip install 'besselnet[tensorboard]'"
            ) from None
        return SummaryWriter(self.folder / "tensorboard", purge_step=self.history.step + 1)
