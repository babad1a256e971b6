"""The mirror trial: find out whether mirror images stay in their class.

Mirrored copies improve accuracy by several points if handedness does not matter, as in tissue or satellite
images. They ruin classes that differ only in handedness, such as clockwise and anti-clockwise spirals. A
network trained without mirrored images shows which is the case: its predictions for mirrored test images are
either as good as for the images themselves, or worse.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from besselnet.data import ImageSet, Splits, stratified_split
from besselnet.nn import evaluating
from besselnet.train._config import RunConfig
from besselnet.train._evaluate import device_of
from besselnet.train._fit import fit
from besselnet.train._images import make_batches
from besselnet.train._run import build_model

# Of the training images, the share that the trial asks about; with fewer images than this it says nothing.
HELD_OUT, FEWEST = 0.25, 50
# A network that has not learned handedness in this time cannot tell.
MOST_STEPS = 2_000
# Chance of a loss like the one seen if mirror images stay in their class, below which they do not; and of an
# accuracy like the one seen if nothing was learned, above which the trial says nothing.
HANDED, GUESSED = 0.1, 0.01


@dataclass(frozen=True)
class MirrorTrial:
    """Result of `try_mirror_images`.

    Attributes:
        images: number of tested images.
        accuracy, mirrored_accuracy: on these images, and on their mirror images.
        same: whether mirror images stay in their class, according to the trial.
    """

    images: int
    accuracy: float
    mirrored_accuracy: float
    same: bool

    def __str__(self) -> str:
        seen = f"accuracy {self.accuracy:.1%}, mirrored {self.mirrored_accuracy:.1%}"
        says = "stay in their class" if self.same else "may be of another class"
        return f"mirror images {says} ({seen} of {self.images} images in a trial)"


def try_mirror_images(
    config: RunConfig, images: Splits, *, quiet: bool = False
) -> MirrorTrial | None:
    """Train on three quarters of the training images, at most 2 000 steps, and test the mirrored rest.

    Mirror images stay in their class unless significantly fewer of them are classified correctly (one-sided
    sign test on the images whose predictions differ, p < 0.1). Only training images are used. Returns None
    with fewer than 50 test images, if the network has learned nothing, and for other tasks than
    classification.

    Args:
        config: configuration of the planned training; its augmentation is used without mirrored copies.
        images: its images.
        quiet: print nothing.
    """
    train = images.train
    if not trial_steps(config, train):
        return None
    by_group = train.groups is not None and len(train.groups.unique()) >= 1 / HELD_OUT
    seen, held_out = stratified_split(
        train, (1 - HELD_OUT, HELD_OUT), config.data.seed, by_group=by_group
    )
    augment = tuple(name for name in config.data.augment if name != "reflect")
    trial = replace(config, data=replace(config.data, augment=augment))
    batches = make_batches(trial, seen, training=True)
    epochs = _epochs(config, len(batches))
    settings = replace(
        config.train,
        epochs=epochs,
        keep="last",
        patience=None,
        class_weights=None,
        accumulate=1,
        adversarial=None,
    )
    if not quiet:
        print("trial: do mirror images stay in their class? (data.augment=... skips it)")
    model = build_model(config, train.channels, len(train.classes), train.image_size[0])
    with torch.random.fork_rng():
        fit(model, batches, None, settings, quiet=quiet)
    return _judge(model, held_out)


def trial_steps(config: RunConfig, train: ImageSet) -> int:
    """About how many steps the trial has; 0 for labels and numbers of images that it says nothing about."""
    if train.task != "classify" or len(train) * HELD_OUT < FEWEST:
        return 0
    batches = math.ceil(len(train) * (1 - HELD_OUT) / config.train.batch_size)
    return batches * _epochs(config, batches)


def _epochs(config: RunConfig, batches: int) -> int:
    return min(config.train.epochs, max(1, MOST_STEPS // batches))


def _judge(model: nn.Module, images: ImageSet) -> MirrorTrial | None:
    # Only here: it takes longer to import than the rest of this package.
    from scipy.stats import binomtest

    right: list[Tensor] = []
    mirrored: list[Tensor] = []
    device = device_of(model)
    with evaluating(model):
        for start in range(0, len(images), 64):
            part = images.select(torch.arange(start, min(start + 64, len(images))))
            pixels = torch.stack([part[i][0] for i in range(len(part))]).to(device)
            for answers, shown in ((right, pixels), (mirrored, pixels.flip(-1))):
                answers.append(model(shown).argmax(1).cpu() == part.labels)
    upright, other = torch.cat(right), torch.cat(mirrored)
    commonest = int(images.class_counts().max()) / len(images)
    learned = binomtest(int(upright.sum()), len(images), commonest, alternative="greater")
    if learned.pvalue > GUESSED:
        return None
    lost, won = int((upright & ~other).sum()), int((~upright & other).sum())
    handed = lost + won > 0 and binomtest(lost, lost + won, alternative="greater").pvalue < HANDED
    return MirrorTrial(
        images=len(images),
        accuracy=upright.float().mean().item(),
        mirrored_accuracy=other.float().mean().item(),
        same=not handed,
    )
