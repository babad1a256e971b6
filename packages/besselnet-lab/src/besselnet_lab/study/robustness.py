"""How a trained network of a cell fares with corrupted images and under attack, and what noise does inside.

All networks of a data set see the same images, corrupted alike, and the same epsilons: else they could not be
compared.
"""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from besselnet.checks import check_count
from besselnet.data import ImageSet
from besselnet.robust import SEVERITIES
from besselnet.train import RobustSettings, evaluate_robust
from besselnet.untrusted import check_keys
from besselnet_lab.study.images import spread
from besselnet_lab.study.noise import noise_changes

__all__ = ["RobustPlan", "check_robust", "measure_robustness"]

# For `noise_changes`: the curves are means, and steady with few images.
_NOISY_IMAGES = 200
_OBJECT, _LIST = (dict, "an object"), (list, "a list")
_SHARES = {
    "": ("accuracy", "corrupted_accuracy"),
    "spatial": ("accuracy", "worst_rotated_accuracy", "worst_accuracy"),
    "attacks": ("accuracy",),
    "attacks.strong": ("fgsm", "random_search", "pgd", "apgd_ce", "apgd_dlr", "square", "ensemble"),
}
_CURVES = ("fgsm", "short_pgd")


@dataclass(frozen=True)
class RobustPlan:
    """How the robustness of the networks of a data set is tested.

    Attributes:
        images: at most so many of the judged images are corrupted.
        border: what comes in from outside the frame of images that are moved.
        attacks: how much is done, see `RobustSettings`. Without `strong_epsilon` each network has its own.
    """

    images: int = 1000
    border: Literal["zeros", "reflect"] = "zeros"
    attacks: RobustSettings = field(default_factory=RobustSettings)

    def __post_init__(self) -> None:
        check_count("images", self.images)

    def passes(self, judged: int) -> tuple[int, int]:
        """(forward passes, gradients) of single images at most, if there are so many judged images."""
        return self.attacks.passes(min(self.images, judged))


def measure_robustness(
    model: nn.Module, judged: ImageSet, plan: RobustPlan, kept: Path
) -> dict[str, Any]:
    """`evaluate_robust`, and under "noise" what `noise_changes` finds: JSON values.

    Args:
        kept: file for the parts that are done: a call that was cut off goes on there.
    """
    found = evaluate_robust(
        *(model, spread(judged, plan.images)),
        settings=plan.attacks,
        border=plan.border,
        kept=kept,
    )
    few = spread(judged, _NOISY_IMAGES)
    images = torch.stack([few[i][0] for i in range(len(few))])
    device = next((parameter.device for parameter in model.parameters()), None)
    return {**found, "noise": noise_changes(model, images.to(device))}


def check_robust(path: Path, values: Mapping[str, Any]) -> None:
    """Refuse a result whose part "robust" a report cannot show."""
    sections = (*(f"robust.{name}" for name in _SHARES if name), "robust.gradient_masking")
    kinds: dict[str, tuple[Any, str]] = dict.fromkeys(("robust", *sections), _OBJECT)
    kinds |= {"robust.corruptions": _OBJECT, "robust.gradient_masking.reasons": _LIST}
    kinds |= {f"robust.attacks.{name}": _LIST for name in ("epsilons", *_CURVES)}
    check_keys(path, values, kinds)
    robust = values["robust"]
    for section, names in _SHARES.items():
        table = robust
        for part in filter(None, section.split(".")):
            table = table[part]
        for name in names:
            where = ".".join(filter(None, ("robust", section, name)))
            _check_shares(path, where, [table.get(name)], 1)
    for name, curve in robust["corruptions"].items():
        where = f"robust.corruptions.{name}"
        if not isinstance(curve, dict):
            raise ValueError(f"{path}: {where!r} must be an object")
        _check_shares(path, f"{where}.accuracy", curve.get("accuracy"), SEVERITIES)
    attacks = robust["attacks"]
    count = len(attacks["epsilons"])
    _check_shares(path, "robust.attacks.epsilons", attacks["epsilons"], count)
    _check_shares(path, "robust.attacks.epsilon", [attacks.get("epsilon")], 1)
    for name in _CURVES:
        _check_shares(path, f"robust.attacks.{name}", attacks[name], count)
    if not all(isinstance(reason, str) for reason in robust["gradient_masking"]["reasons"]):
        raise ValueError(f"{path}: 'robust.gradient_masking.reasons' must be a list of strings")


def _check_shares(path: Path, where: str, numbers: Any, count: int) -> None:
    good = isinstance(numbers, list) and len(numbers) == count
    if not good or not all(type(n) in (int, float) and 0 <= n <= 1 for n in numbers):
        shown = numbers[0] if count == 1 and good else numbers
        raise ValueError(f"{path}: {where!r} is {reprlib.repr(shown)}: must be {count} in [0, 1]")
