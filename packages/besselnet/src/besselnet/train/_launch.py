"""Devices and processes: a lightning-fabric `Fabric` from the training configuration."""

import logging
import os
from typing import TYPE_CHECKING

from besselnet.train._config import TrainConfig

# Importing lightning-fabric takes as long as importing torch: only training pays for it.
if TYPE_CHECKING:
    from lightning_fabric import Fabric


def launch(config: TrainConfig) -> "Fabric":
    """Start the processes that `config` asks for and return this process's handle on them.

    With more than one process and outside torchrun, the running program is started again once per
    further process: what stands before this call happens in each of them. Under torchrun the
    processes exist already, and their number rules over `config.devices` and `config.nodes`.
    """
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
            strategy="ddp" if devices * nodes > 1 else "auto",
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


def is_first_process() -> bool:
    """Whether this is the process that prints and writes, before and after `launch` alike."""
    from lightning_fabric.utilities.rank_zero import rank_zero_only

    return getattr(rank_zero_only, "rank", 0) == 0
