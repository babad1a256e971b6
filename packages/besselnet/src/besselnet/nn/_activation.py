"""The paper's activation."""

from torch import Tensor, nn

from besselnet.functional import softsign


class Softsign(nn.Softsign):
    """x / (1 + |x|): ``nn.Softsign`` with a faster backward pass."""

    def forward(self, input: Tensor) -> Tensor:
        return softsign(input)
