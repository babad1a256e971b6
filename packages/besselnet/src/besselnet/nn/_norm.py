"""Attentive Normalization: batch normalisation whose affine parameters depend on the image."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet.checks import check_choice, check_count, check_number
from besselnet.nn._sync import is_synchronised

Squeeze = Literal["mean", "rsd"]
Gate = Literal["none", "hsigmoid"]
Preset = Literal["bcnn", "eccv2020"]


class AttentiveNorm2d(nn.Module):
    r"""Batch normalisation with a mixture of affine parameters, weighted by the content of the image.

    Li, Sun and Wu, *Attentive Normalization* (ECCV 2020). With :math:`\hat x` the batch-normalised
    input and s(x) one number per channel and image,

    .. math:: y = (\lambda W) \odot \hat x + \lambda B, \qquad \lambda = gate(linear(s(x)))

    with K rows in W and B. s(x) is a statistic of the whole feature map. It is the same for an image and
    its rotated copy, so the layer is equivariant.

    There are two presets. ``bcnn`` is the form of the B-CNN authors (s = mean, linear map with bias, no
    gate, affine batch normalisation). ``eccv2020`` is the original (s = mean over standard deviation,
    linear map without bias, batch-normalised, hard sigmoid, batch normalisation without affine parameters).

    Args:
        num_features: number of channels C.
        num_mixtures: number of mixture components K.
        preset: "bcnn" or "eccv2020".
        eps, momentum: of the batch normalisation, as in ``nn.BatchNorm2d``.

    Shape:
        (N, C, H, W) -> (N, C, H, W).
    """

    def __init__(
        self,
        num_features: int,
        num_mixtures: int = 5,
        *,
        preset: Preset = "bcnn",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
    ) -> None:
        super().__init__()
        check_count("num_features", num_features)
        check_count("num_mixtures", num_mixtures)
        check_choice("preset", preset, get_args(Preset))
        check_number("eps", eps, above=0)
        if momentum is not None:
            check_number("momentum", momentum, least=0, most=1)
        original = preset == "eccv2020"
        self.squeeze: Squeeze = "rsd" if original else "mean"
        self.gate: Gate = "hsigmoid" if original else "none"
        self.norm = nn.BatchNorm2d(num_features, eps, momentum, affine=not original)
        self.attention = nn.Linear(num_features, num_mixtures, bias=not original)
        self.attention_norm = nn.BatchNorm1d(num_mixtures) if original else nn.Identity()
        self.weight = nn.Parameter(torch.empty(num_mixtures, num_features))
        self.bias = nn.Parameter(torch.empty(num_mixtures, num_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise W around 1 and B around 0 with standard deviation 0.1, as in the paper."""
        nn.init.normal_(self.weight, 1.0, 0.1)
        nn.init.normal_(self.bias, 0.0, 0.1)

    def forward(self, input: Tensor) -> Tensor:
        channels = self.norm.num_features
        if input.dim() != 4 or input.shape[1] != channels:
            raise ValueError(f"input has shape {tuple(input.shape)}: must be (N, {channels}, H, W)")
        if not min(input.shape[2:]):
            raise ValueError(f"input has shape {tuple(input.shape)}: must have rows and columns")
        # The attention is normalised over images, the maps over images and pixels.
        alone = len(input) == 1 and (self.gate != "none" or input.shape[2:].numel() == 1)
        if self.training and alone and not is_synchronised(self.norm):
            raise ValueError(
                f"input has shape {tuple(input.shape)}: must have at least 2 images in training"
            )
        return self.attend(input)

    def attend(self, input: Tensor) -> Tensor:
        """Compute `forward` without checking the input."""
        statistic = input.mean((2, 3))
        if self.squeeze == "rsd":
            # The unbiased variance; of a map of one pixel, which has none, 0. The number of pixels is a
            # tensor: in a graph for every size, exporters round what is computed of sizes.
            pixels = torch.ones_like(input[:1, :1]).sum((2, 3))
            squares = (input - statistic[:, :, None, None]).square().sum((2, 3))
            statistic = statistic / (squares / (pixels - 1).clamp_min(1) + 1e-3).sqrt()
        mixture = self.attention_norm(self.attention(statistic))
        if self.gate == "hsigmoid":
            mixture = F.hardsigmoid(mixture)
        scale, shift = mixture @ self.weight, mixture @ self.bias
        return torch.addcmul(shift[:, :, None, None], self.norm(input), scale[:, :, None, None])
