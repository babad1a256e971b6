"""Start processes on their devices, and stop them between two steps on request."""

import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

import torch

from besselnet.train._config import TrainConfig

# Importing lightning-fabric takes as long as importing torch: only training pays for it.
if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import Strategy


# Where Fabric looks for the rank of a process when it is imported.
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
# What tells that machines know each other.
_MANAGERS = ("MASTER_ADDR", "SLURM_NTASKS", "LSB_JOBID", "OMPI_", "PMI_")
# On the CPU of one machine.
_MOST_PROCESSES = 1024
# Megabytes of gradients that are sent together.
_BUCKET = 0.25


def launch(config: TrainConfig) -> "Fabric":
    """Start the processes of `config` and return the Fabric of this process.

    With several processes and without torchrun, the running program is started again for each further
    process, so code before this call runs in all of them. With torchrun, the processes already exist, and
    their number overrides `config.devices` and `config.nodes`.
    """
    check_processes(config)
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    devices, nodes = config.devices, config.nodes
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    # Fabric's own notices tell how it works inside, not how the training goes.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    try:
        fabric = Fabric(
            accelerator=config.device,
            devices=devices,
            num_nodes=nodes,
            strategy=_strategy() if devices * nodes > 1 else "auto",
            precision=config.precision,
        )
    except (MisconfigurationException, RuntimeError) as error:
        one_line = " ".join(str(error).split())
        raise ValueError(
            f"device {config.device!r} with devices={devices}, precision={config.precision!r} "
            f"cannot be used here: {one_line}"
        ) from None
    fabric.launch()
    return fabric


def _strategy() -> "Strategy":
    """DDP whose gradients travel in small buckets, while those of earlier layers are computed.

    The usual 25 MB would hold all gradients of most networks here, and send them when all are there.
    """
    from lightning_fabric.strategies import DDPStrategy

    return DDPStrategy(bucket_cap_mb=_BUCKET, gradient_as_bucket_view=True)


def check_processes(config: TrainConfig) -> None:
    """Refuse at once what `launch` would take seconds to refuse, or wait for in vain."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return
    if config.nodes > 1 and not any(name.startswith(_MANAGERS) for name in os.environ):
        raise ValueError(
            f"nodes={config.nodes}: must be 1 unless the machines are connected: start with torchrun, or "
            "set MASTER_ADDR, MASTER_PORT and NODE_RANK on each"
        )
    kind = choose_device(config.device).type
    most = torch.cuda.device_count() if kind == "cuda" else 1 if kind == "mps" else _MOST_PROCESSES
    if config.devices > most:
        raise ValueError(f"devices={config.devices}: must be at most {most} for device {kind!r}")


def is_first_process() -> bool:
    """Return whether this is the process that prints and writes, before and after `launch`."""
    fabric = sys.modules.get("lightning_fabric.utilities.rank_zero")
    if fabric is not None:
        return getattr(fabric.rank_zero_only, "rank", 0) == 0
    told = (os.environ[name] for name in _RANKS if name in os.environ)
    return int(next(told, 0)) == 0


def choose_device(device: str) -> torch.device:
    """Return the device of a name; "auto" is a GPU if available, otherwise the CPU."""
    has_mps = torch.backends.mps.is_available()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
    try:
        chosen = torch.device(device)
        if chosen.type == "meta" or (chosen.type == "cpu" and chosen.index):
            raise RuntimeError
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError):
        here = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        here += ["mps"] if has_mps else []
        raise ValueError(
            f"device={device!r} is not available: this machine has {', '.join(here)}"
        ) from None
    return chosen


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal, has saved its state and can be resumed."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class StopRequest:
    """Context manager in which SIGINT and SIGTERM set `signal_number` instead of ending the process.

    A second signal of the same kind acts at once, as usual. Signals can be caught only in the main thread;
    in other threads, the context does nothing.
    """

    def __init__(self) -> None:
        self.signal_number = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        signal.signal(number, self._before[number])  # type: ignore[arg-type]
