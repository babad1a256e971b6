"""Additional torchmetrics."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class EquivarianceError(Metric):
    """Equivariance error of outputs (N, K), accumulated over batches and processes.

    ``update`` takes the output for a batch and the output for the same batch rotated. The value is the
    relative error of :func:`equivariance_error` for outputs: the norm of their difference over the norm
    of the variation of the output between images. Keyword arguments are those of every torchmetrics metric.

    >>> metric = EquivarianceError()
    >>> metric.update(torch.tensor([[3.0, 1.0], [5.0, 1.0]]), torch.tensor([[3.2, 1.0], [5.2, 1.0]]))
    >>> metric.compute()
    tensor(0.2000)
    """

    higher_is_better = False
    is_differentiable = False
    full_state_update = False
    squared_difference: Tensor
    squared_norm: Tensor
    output_sum: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in ("squared_difference", "squared_norm", "output_sum", "count"):
            self.add_state(name, torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, output: Tensor, output_of_rotated: Tensor) -> None:
        for name, tensor in (("output", output), ("output_of_rotated", output_of_rotated)):
            if tensor.dim() != 2 or tensor.shape != output.shape:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}: must be (N, K), the same for both"
                )
        output, rotated = (t.detach().to(self.count) for t in (output, output_of_rotated))
        self.squared_difference += (rotated - output).square().sum()
        self.squared_norm += output.square().sum()
        self.output_sum = self.output_sum + output.sum(0)
        self.count += len(output)

    def compute(self) -> Tensor:
        variation = self.squared_norm - self.output_sum.square().sum() / self.count
        return (self.squared_difference / variation).sqrt()


class Counts(Metric):
    """The sum of all that ``update`` is given: (size,) integers."""

    full_state_update = False
    total: Tensor

    def __init__(self, size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.zeros(size, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, counts: Tensor) -> None:
        self.total += counts.to(self.total)

    def compute(self) -> Tensor:
        return self.total
