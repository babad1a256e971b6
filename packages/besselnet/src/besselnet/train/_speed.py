"""Measure the training and prediction speed of networks on this machine."""

import gc
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet._progress import ProgressLog, in_words
from besselnet.checks import check_count
from besselnet.models import count_parameters, create_model, model_info
from besselnet.nn import fold_batch_norm
from besselnet.train._config import make_config
from besselnet.train._optimise import make_optimizer

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Timing:
    """Duration of a measurement, see `time_in_turns`."""

    rounds: int
    fewest_rounds: int
    seconds_per_case: float
    seconds_per_round: float


SPEED_TIMING = Timing(rounds=5, fewest_rounds=2, seconds_per_case=30, seconds_per_round=0.3)


def time_in_turns(
    calls: Mapping[Name, Callable[[], object]],
    timing: Timing,
    clock: Callable[[], float] = time.perf_counter,
    *,
    stream: TextIO | None = None,
    text: str = "",
) -> dict[Name, list[float]]:
    """Return the seconds per call of every candidate in every round.

    The candidates take turns, and each round begins with another one, so other load on the machine affects
    all of them. Short calls are repeated to fill ``timing.seconds_per_round``. The first call of a turn is
    not counted, because the caches and the memory are still those of the previous candidate. `stream` gets
    the estimated time of `text` and progress; None for no output.
    """
    repeats, spent = {}, 0.0
    for name, call in calls.items():
        seconds = _time(call, 1, clock)
        if seconds < timing.seconds_per_round:
            # The first call also builds kernels and caches: it says too much about a short one.
            seconds = _time(call, 1, clock)
        repeats[name] = max(1, math.ceil(timing.seconds_per_round / max(seconds, 1e-6)))
        spent += (1 + repeats[name]) * seconds
    affordable = int(timing.seconds_per_case / spent) if spent else timing.rounds
    rounds = min(timing.rounds, max(affordable, timing.fewest_rounds))
    times: dict[Name, list[float]] = {name: [] for name in calls}
    names = list(calls)
    gc.collect()
    turns = rounds * len(names)
    with ProgressLog(turns, unit="turns", stream=stream, quiet=stream is None) as log:
        log.line(f"{text}: about {in_words(rounds * spent)}")
        for turn in range(rounds):
            first = turn % max(len(names), 1)
            for name in names[first:] + names[:first]:
                calls[name]()
                times[name].append(_time(calls[name], repeats[name], clock))
                log.advance(text=text)
    return times


def _time(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


@dataclass(frozen=True)
class Speed:
    """Speed of one network on the CPU, in its best round.

    Attributes:
        model: name of the network.
        parameters: number of learned parameters.
        training: images per second in training: forward, backward and optimiser step.
        prediction: images per second in prediction, as in `predict`.
        training_time, prediction_time: time per image, relative to the baseline.
        kept_bytes: activation memory that the forward pass keeps for the backward pass, without the weights.
            It grows with the batch and is the same on every machine. Gradients and optimiser (three times the
            weights for AdamW) are not included.
    """

    model: str
    parameters: int
    training: float
    prediction: float
    training_time: float | None
    prediction_time: float | None
    kept_bytes: int


def measure_speed(
    models: Sequence[str],
    *,
    image_size: int = 64,
    in_channels: int = 3,
    num_classes: int = 10,
    batch_size: int = 16,
    baseline: str | None = None,
    timing: Timing = SPEED_TIMING,
    stream: TextIO | None = None,
) -> list[Speed]:
    """Measure the speed of networks on random images; they take turns, and the best round counts.

    Args:
        models: names of the networks.
        baseline: the network for comparison, if it is one of `models`.
        stream: stream for the estimated time and progress; None for no output.
    """
    check_count("batch_size", batch_size, least=2)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(batch_size, in_channels, image_size, image_size, generator=generator)
    numbers = torch.arange(batch_size) % num_classes
    masks = numbers[:, None, None].expand(-1, image_size, image_size)
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for name in models:
        network = create_model(
            name, in_channels=in_channels, num_classes=num_classes, image_size=image_size
        )
        labels = masks if model_info(name).answers == "pixels" else numbers
        calls[name, "training"] = _training_step(name, network, images, labels)
        calls[name, "prediction"] = _prediction(network, images)
        sizes[name] = count_parameters(network), _kept_bytes(network, images, labels)
    text = f"speed at {image_size} pixels"
    if stream is not None:
        print(f"{text}: one step of each network first", file=stream, flush=True)
    times = time_in_turns(calls, timing, stream=stream, text=text)
    best = {call: min(rounds) / batch_size for call, rounds in times.items()}

    def against(name: str, work: str) -> float | None:
        return best[name, work] / best[baseline, work] if baseline in sizes else None

    return [
        Speed(
            model=name,
            parameters=parameters,
            training=1 / best[name, "training"],
            prediction=1 / best[name, "prediction"],
            training_time=against(name, "training"),
            prediction_time=against(name, "prediction"),
            kept_bytes=kept,
        )
        for name, (parameters, kept) in sizes.items()
    ]


def _training_step(
    name: str, network: nn.Module, images: Tensor, labels: Tensor
) -> Callable[[], object]:
    network.train()
    optimizer = make_optimizer(network, make_config({"model": {"name": name}}).train)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()

    return step


def _prediction(network: nn.Module, images: Tensor) -> Callable[[], object]:
    folded = fold_batch_norm(network)

    @torch.no_grad()
    def predict() -> Tensor:
        logits: Tensor = folded(images)
        return logits

    return predict


def _kept_bytes(network: nn.Module, images: Tensor, labels: Tensor) -> int:
    own = {t.untyped_storage().data_ptr() for t in (*network.parameters(), *network.buffers())}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = F.cross_entropy(network(images), labels)
    # Up to here, nothing that is kept has been freed, and no two storages have one place.
    del loss
    return sum(size for place, size in kept.items() if place not in own)
