"""Training steps of several processes, each with its part of the batch."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from besselnet.nn import synchronised_norms
from besselnet.train._adversarial import moved_against
from besselnet.train._config import TrainConfig
from besselnet.train._losses import Criterion
from besselnet.train._tasks import LearningTask

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# Images of a process, below which their mean and variance are too noisy. Wu and He, Group Normalization
# (2018): errors of ResNet-50 with 32, 16, 8, 4, 2 images are 23.6, 23.7, 24.8, 27.3, 34.7%.
FEWEST = 16
# Images that a process without a share of a batch computes on: its gradients are 0.
_STAND_INS = 2


def synchronises(config: TrainConfig, processes: int) -> bool:
    """Whether batch normalisation is over the images of all processes."""
    if processes == 1:
        return False
    small = config.batch_size // processes < FEWEST
    return small if config.sync_norm is None else config.sync_norm


@dataclass
class SharedForward:
    """The forward pass of a batch, in one of the processes that share it.

    Attributes:
        model: the network; `module` is what Fabric has made of it.
    """

    fabric: "Fabric"
    model: nn.Module
    module: nn.Module
    criterion: Criterion
    task: LearningTask
    config: TrainConfig

    def __post_init__(self) -> None:
        self.synchronised = synchronises(self.config, self.fabric.world_size)

    def __call__(
        self, images: Tensor, labels: Tensor, signal_number: int
    ) -> tuple[Tensor, list[float], bool]:
        """The loss of this process's share; what the whole batch adds to `History.sums`; whether to stop.

        A process whose share is empty, as in a last batch of one image, takes part with images of zeros that
        count nowhere.
        """
        empty = len(labels) == 0
        if empty:
            images = images.new_zeros((_STAND_INS, *images.shape[1:]))
        else:
            autocast = self.fabric.autocast
            images = moved_against(self.model, images, labels, self.config, autocast)
        with self._normalising(empty):
            outputs = self.module(images)
        if empty:
            loss, weight = 0 * outputs.sum(), outputs.new_zeros(())
            tally = torch.zeros(self.task.tally_size)
        else:
            loss, weight = self.criterion(outputs, labels)
            tally = self.task.tally(outputs.detach(), labels)
        parts = [loss.detach(), weight, *tally.unbind(), len(labels), signal_number != 0]
        totals = torch.stack([torch.as_tensor(p, device=loss.device).float() for p in parts])
        if self.fabric.world_size > 1:
            totals = cast(Tensor, self.fabric.all_reduce(totals, reduce_op="sum"))
        *sums, stopping = totals.tolist()
        return loss, sums, stopping > 0

    def share_buffers(self, *modules: nn.Module) -> None:
        """Give the buffers of the first process to all: without synchronisation each has its own averages."""
        if self.fabric.world_size > 1 and not self.synchronised:
            for module in modules:
                for buffer in module.buffers():
                    torch.distributed.broadcast(buffer, 0)

    def _normalising(self, silent: bool) -> AbstractContextManager[None]:
        if not self.synchronised:
            return nullcontext()
        return synchronised_norms(self.model, silent=silent)
