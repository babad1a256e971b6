"""The complete state of a training in one safetensors file, replaced atomically.

Tensors (weights, moving average, best weights, optimiser moments) are stored by name; everything
else (position, history) is JSON in the file header. Reading it only parses numbers and text, and never
runs code. The states of the random generators and of the sampler are not stored: `fit` derives both
from the seed and the position.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from besselnet.atomic import write_atomically
from besselnet.models import check_weights
from besselnet.train._config import check_format
from besselnet.untrusted import check_file, parse_json

# 2: the coefficients of a Bessel convolution lie order by order.
CHECKPOINT_FORMAT = "2"
_SGD_MOMENTS = {"momentum_buffer"}
_ADAM_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}


class Checkpoint(NamedTuple):
    """Named groups of tensors (`groups["model"]["conv.weight"]`) and JSON values beside them."""

    groups: dict[str, dict[str, Tensor]]
    values: dict[str, Any]


def save_checkpoint(path: str | Path, checkpoint: Checkpoint) -> None:
    """Write `checkpoint`; on failure the file at `path`, if any, is left as it was."""
    stored = {
        # Copies on the CPU: safetensors refuses tensors that share memory, as tied weights do.
        f"{group}/{name}": tensor.detach().cpu().contiguous().clone()
        for group, members in checkpoint.groups.items()
        for name, tensor in members.items()
    }
    header = {
        "format": CHECKPOINT_FORMAT,
        "groups": json.dumps(list(checkpoint.groups), allow_nan=False),
        "values": json.dumps(checkpoint.values, allow_nan=False),
    }
    write_atomically(path, save(stored, metadata=header))


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read what `save_checkpoint` wrote, onto the CPU."""
    check_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            check_format(path, header.get("format"), CHECKPOINT_FORMAT)
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
    names, values = (
        parse_json(header.get(key, "null"), f"{path}: {key!r}") for key in ("groups", "values")
    )
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: 'groups' must be a list of strings")
    if not isinstance(values, dict):
        raise ValueError(f"{path}: 'values' must be an object")
    groups: dict[str, dict[str, Tensor]] = {group: {} for group in names}
    for name, tensor in tensors.items():
        group, _, member = name.partition("/")
        if group not in groups:
            raise ValueError(f"{path}: {name!r} is in none of the 'groups' {names}")
        groups[group][member] = tensor
    for group in ("model", "average", "best"):
        check_weights(path, groups.get(group, {}))
    return Checkpoint(groups, values)


def check_group(
    where: Path | str,
    checkpoint: Checkpoint,
    group: str,
    wanted: Mapping[str, Tensor] | None = None,
) -> None:
    """Refuse a checkpoint that lacks a group of tensors, or has other names, shapes or types in it."""
    if group not in checkpoint.groups:
        raise ValueError(f"{where}: tensors {group!r} are missing")
    if wanted is None:
        return
    found, expected = (
        {name: f"{t.dtype} {tuple(t.shape)}" for name, t in tensors.items()}
        for tensors in (checkpoint.groups[group], wanted)
    )
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"{where}: '{group}/{name}' is {found.get(name)}, must be {expected.get(name)}"
            )


def optimizer_moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of each parameter, keyed `"parameter/name"`.

    Hyper-parameters are left out: they are in the configuration, and the learning rate is a
    function of the step.
    """
    return {
        f"{parameter}/{name}": value
        for parameter, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
        # SGD without momentum notes None.
        if value is not None
    }


def restore_moments(optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]) -> None:
    """Undo `optimizer_moments`; `ValueError` for moments that this optimiser has not."""
    shapes = [p.shape for group in optimizer.param_groups for p in group["params"]]
    known = _SGD_MOMENTS if isinstance(optimizer, torch.optim.SGD) else _ADAM_MOMENTS
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in moments.items():
        parameter, _, name = key.partition("/")
        if parameter not in map(str, range(len(shapes))) or name not in known:
            raise ValueError(f"{key!r} belongs to no parameter of the optimiser")
        shape = () if name == "step" else shapes[int(parameter)]
        if value.shape != shape or not value.is_floating_point():
            raise ValueError(
                f"{key!r} is {value.dtype} {tuple(value.shape)}, must be real {tuple(shape)}"
            )
        state.setdefault(int(parameter), {})[name] = value
    for number, found in state.items():
        if found.keys() != known:
            raise ValueError(f"'{number}/{min(known - found.keys())}' is missing")
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
