"""APGD: projected gradient ascent with an adaptive step size (Croce and Hein 2020)."""

import math
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from besselnet.checks import check_choice, check_count, check_seed
from besselnet.robust._standing import (
    Loss,
    Network,
    Standing,
    ascent,
    attacking,
    ball,
    check_eps,
    cross_entropy,
    margins,
    noise_in_ball,
)

LossName = Literal["cross_entropy", "dlr"]
# The share of a step that is new; the rest repeats the last one.
_NEW = 0.75
# A stretch of steps is a success if so many of them raised the loss.
_RISING = 0.75


def apgd(
    network: Network,
    images: Tensor,
    labels: Tensor,
    eps: float,
    *,
    steps: int = 100,
    restarts: int = 1,
    loss: LossName = "cross_entropy",
    seed: int = 0,
) -> Tensor:
    """Attack images by APGD: gradient ascent with momentum from random starts.

    Steps start at 2 eps and are halved when progress stops.

    Args:
        loss: "cross_entropy", or "dlr", the difference of logits ratio, which does not depend on the
            scale of the logits and so does not saturate.
    """
    check_eps(eps)
    check_count("steps", steps)
    check_count("restarts", restarts)
    check_choice("loss", loss, get_args(LossName))
    function = cross_entropy if loss == "cross_entropy" else dlr
    generator = Generator().manual_seed(check_seed(seed))
    with attacking(network, images, labels) as standing:
        for _ in range(restarts):
            if standing:
                _climb(network, standing, eps, steps, function, generator)
    return standing.found


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """(N,): (largest other logit - that of the true class) / (largest of all - third largest).

    For two classes it is the numerator alone.
    """
    lost = -margins(logits, labels)
    if logits.shape[1] < 3:
        return lost
    first, _, third = logits.topk(3).values.unbind(1)
    return lost / (first - third + 1e-12)


@dataclass(frozen=True)
class _State:
    """Of each image: where it is, the best place so far, and how the climb has gone."""

    low: Tensor
    high: Tensor
    here: Tensor
    before: Tensor
    gradient: Tensor
    value: Tensor
    best: Tensor
    best_gradient: Tensor
    best_value: Tensor
    size: Tensor
    # Since the last checkpoint: steps that raised the loss; what the best loss was there; whether the
    # size was halved there.
    rises: Tensor
    checked_value: Tensor
    halved: Tensor

    def select(self, chosen: Tensor) -> "_State":
        return _State(*(getattr(self, field.name)[chosen] for field in fields(self)))


def _climb(
    network: Network, standing: Standing, eps: float, steps: int, loss: Loss, generator: Generator
) -> None:
    """One start; `standing` is left with what it has not broken."""
    start = noise_in_ball(standing.images, eps, generator)
    gradient, logits = ascent(network, start, standing.labels, loss)
    value = loss(logits, standing.labels)
    none = torch.zeros_like(value)
    state = _State(
        *ball(standing.images, eps),
        *(start, start, gradient, value),
        *(start, gradient, value),
        *(torch.full_like(value, 2 * eps), none, value, none == 0),
    )
    state = state.select(standing.note(start, logits))
    ends, last = _checkpoints(steps), 0
    for step in range(1, steps + 1):
        if not standing:
            return
        there = _next_place(state, momentum=step > 1)
        gradient, logits = ascent(network, there, standing.labels, loss)
        state = _moved(state, there, gradient, loss(logits, standing.labels))
        state = state.select(standing.note(there, logits))
        if step in ends:
            state = _checked(state, step - last)
            last = step


def _next_place(state: _State, momentum: bool) -> Tensor:
    size = state.size[:, None, None, None]
    there = (state.here + size * state.gradient.sign()).clamp(state.low, state.high)
    if momentum:
        drift = _NEW * (there - state.here) + (1 - _NEW) * (state.here - state.before)
        there = (state.here + drift).clamp(state.low, state.high)
    return there


def _moved(state: _State, there: Tensor, gradient: Tensor, value: Tensor) -> _State:
    better = value > state.best_value
    far = better[:, None, None, None]
    return replace(
        state,
        before=state.here,
        here=there,
        gradient=gradient,
        value=value,
        best=torch.where(far, there, state.best),
        best_gradient=torch.where(far, gradient, state.best_gradient),
        best_value=torch.where(better, value, state.best_value),
        rises=state.rises + (value > state.value),
    )


def _checked(state: _State, steps: int) -> _State:
    """At a checkpoint: where progress has ended, halve the size and go on from the best place.

    It has ended where few of the last `steps` rose, or where nothing was gained since the last
    checkpoint, which had left the size as it was.
    """
    few = state.rises < _RISING * steps
    stuck = ~state.halved & (state.best_value <= state.checked_value)
    halve = few | stuck
    far = halve[:, None, None, None]
    return replace(
        state,
        here=torch.where(far, state.best, state.here),
        before=torch.where(far, state.best, state.before),
        gradient=torch.where(far, state.best_gradient, state.gradient),
        value=torch.where(halve, state.best_value, state.value),
        size=torch.where(halve, state.size / 2, state.size),
        rises=torch.zeros_like(state.rises),
        checked_value=state.best_value,
        halved=halve,
    )


def _checkpoints(steps: int) -> set[int]:
    """The steps after which the size is checked: 22% of all, then stretches that shrink to 6%."""
    ends, percent, stretch = set(), 22, 22
    while percent < 100:
        ends.add(math.ceil(percent * steps / 100))
        stretch = max(stretch - 3, 6)
        percent += stretch
    return ends
