"""Protocol of batches with a length."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor


class SizedBatches(Protocol):
    """Batches of (images, labels) with a length.

    `set_epoch(epoch)` is called where it exists. Where `batches[i]` exists, resuming goes straight to
    its place in the epoch; where `batches.iter_from(i)` exists, it iterates from there. Where
    `batches.indices(i)` exists, which numbers the images of a batch, a model that has
    `begin_batch(indices)` is told them before each forward pass of training.
    """

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...
    def __len__(self) -> int: ...
