"""Common parts of all attacks: the bound, the gradient, and the images that are still correct."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from besselnet.checks import check_number
from besselnet.nn import evaluating

Network = Callable[[Tensor], Tensor]
"""Images (N, C, H, W) in [0, 1] -> logits (N, K)."""
Loss = Callable[[Tensor, Tensor], Tensor]
"""Logits (N, K), labels (N,) -> (N,)."""


def check_unit_images(images: Tensor) -> None:
    """Refuse images that are not floats (N, C, H, W) in [0, 1]."""
    if not images.is_floating_point() or images.dim() != 4:
        raise ValueError(
            f"images are {images.dtype} of shape {tuple(images.shape)}: must be floating point (N, C, H, W)"
        )
    # Written so that NaN fails.
    if images.numel() and not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(
            f"images are between {images.min().item():.3g} and {images.max().item():.3g}: must be in [0, 1]"
        )


def check_eps(eps: object) -> float:
    """The largest change of a pixel."""
    return check_number("eps", eps, above=0, most=1)


@contextmanager
def measuring(network: Network) -> Iterator[None]:
    """Without gradients, and a module in evaluation mode."""
    with evaluating(network) if isinstance(network, nn.Module) else torch.no_grad():
        yield


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """(N,)."""
    return F.cross_entropy(logits, labels, reduction="none")


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """(N,): the logit of the true class minus the largest of the others."""
    true = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return true - others.amax(1)


def ascent(
    network: Network, images: Tensor, labels: Tensor, loss: Loss = cross_entropy
) -> tuple[Tensor, Tensor]:
    """The gradient of the loss of each image, (N, C, H, W), and the logits (N, K).

    It is zero where the network passes none on, or none that is a number.
    """
    images = images.detach().requires_grad_()
    with torch.enable_grad():
        logits = network(images).float()
        total = loss(logits, labels).sum()
        found = None
        if total.requires_grad:
            found = torch.autograd.grad(total, images, allow_unused=True)[0]
    gradient = torch.zeros_like(images) if found is None else found
    return gradient.detach().nan_to_num(0, 0, 0), logits.detach()


def ball(images: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The least and the largest value that each pixel may get: within `eps`, and in [0, 1]."""
    return (images - eps).clamp(min=0), (images + eps).clamp(max=1)


def noise_in_ball(images: Tensor, eps: float, generator: Generator) -> Tensor:
    """Each pixel moved uniformly by up to `eps`, and cut to [0, 1]."""
    noise = 2 * torch.rand(images.shape, generator=generator).to(images) - 1
    return (images + eps * noise).clamp(0, 1)


class Standing:
    """The images under attack: those still answered right, and for the others what broke them.

    Attributes:
        found: (N, C, H, W): for each image the copy that is answered wrongly, else the image itself.
        left: (M,): the numbers of the images that still stand.
    """

    def __init__(self, network: Network, images: Tensor, labels: Tensor) -> None:
        check_unit_images(images)
        if labels.shape != (len(images),) or labels.is_floating_point():
            raise ValueError(
                f"labels are {labels.dtype} of shape {tuple(labels.shape)}: must be {len(images)} classes"
            )
        self._labels = labels
        self.found = images.detach().clone()
        right = network(images).argmax(1) == labels
        self.left = right.nonzero()[:, 0]

    def __bool__(self) -> bool:
        return len(self.left) > 0

    @property
    def images(self) -> Tensor:
        """(M, C, H, W): those that stand."""
        return self.found[self.left]

    @property
    def labels(self) -> Tensor:
        """(M,): their classes."""
        return self._labels[self.left]

    def note(self, tried: Tensor, logits: Tensor) -> Tensor:
        """Take out the images whose copies `tried` are answered wrongly; (M,): which of them still stand."""
        stands = logits.argmax(1) == self.labels
        self.found[self.left[~stands]] = tried[~stands]
        self.left = self.left[stands]
        return stands


@contextmanager
def attacking(network: Network, images: Tensor, labels: Tensor) -> Iterator[Standing]:
    """The images to attack, while the network is `measuring`."""
    with measuring(network):
        yield Standing(network, images, labels)
