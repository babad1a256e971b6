"""Out-of-distribution detection: the distance of image features from those of the training classes.

There are two groups of features: the colours of the image, and the inputs of the layers of the network. For
example, a network that subtracts the mean colour cannot tell a grey square from an empty slide, but the
colours can. Distances are Mahalanobis distances (Lee et al., A Simple Unified Framework for Detecting
Out-of-Distribution Samples and Adversarial Attacks, 2018), with the shrunk covariance of Ledoit and Wolf
(2004).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from besselnet.nn import BesselConv2d

Network = Callable[[Tensor], Tensor]

# Features of more dimensions than this are projected at random, so that a large network costs no more.
MOST_DIMENSIONS = 128
# Of the deviation of a feature, as a share of that of all: channels that never respond have none.
LEAST_DEVIATION = 1e-3
# Half of the smallest difference of two pixels of 8 bits: what the logarithm of a contrast of 0 is taken of.
SMALLEST_CONTRAST = 0.5 / 255


def describe_images(network: Network, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return logits and features of images (N, C, H, W), in one forward pass.

    The features are float64 on the CPU. The first, (N, 2C), are mean and logarithm of the standard deviation
    of each channel. The second, (N, D), are mean and standard deviation of all input maps of the convolutions
    of the network (`nn.Conv2d`, `BesselConv2d`), if it has some. They are invariant to rotations, as far as
    the network is equivariant, and to folding of batch normalisation.
    """
    maps: list[Tensor] = []
    with torch.no_grad(), _watched(network, maps):
        logits = network(images)
    deviation, mean = _spread(images)
    colours = torch.cat([mean, (deviation + SMALLEST_CONTRAST).log()], dim=1)
    return logits, (colours, *([torch.cat(maps, dim=1)] if maps else []))


def _spread(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Deviation and mean (N, C) of maps (N, C, H, W) over their pixels."""
    found = torch.std_mean(maps.float(), dim=(-2, -1), correction=0)
    # On the CPU first: some devices have no float64.
    deviation, mean = (values.cpu().double() for values in found)
    return deviation, mean


@contextmanager
def _watched(network: Network, maps: list[Tensor]) -> Iterator[None]:
    """Let mean and deviation of what enters each convolution be appended to `maps`."""

    def note(_layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        maps.append(torch.cat(_spread(inputs[0]), dim=1))

    layers = network.modules() if isinstance(network, nn.Module) else ()
    hooks = [
        layer.register_forward_pre_hook(note)
        for layer in layers
        if isinstance(layer, nn.Conv2d | BesselConv2d)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class Likeness:
    """Distribution of training images: a normal distribution for each class and group of features.

    Attributes:
        means: means (D,) of the features, for each group.
        matrices: whitening matrices (D, d) of (features - mean) within a class.
        centres: whitened centres (classes, d) of the classes.
    """

    means: tuple[Tensor, ...]
    matrices: tuple[Tensor, ...]
    centres: tuple[Tensor, ...]

    def distances(self, features: Sequence[Tensor]) -> Tensor:
        """Return the logarithm (N, groups) of the squared distance from the nearest class, relative to d.

        `features` are those of `describe_images`, for the same network.
        """
        sizes, wanted = [group.shape[1] for group in features], [len(m) for m in self.means]
        if sizes != wanted:
            raise ValueError(
                f"the images have features of {sizes} numbers: must be {wanted}, as for the fitted network"
            )
        found = []
        for group, mean, matrix, centres in zip(features, self.means, self.matrices, self.centres):
            whitened = (group.double() - mean.double()) @ matrix.double()
            squares = torch.cdist(whitened, centres.double()).square().amin(1)
            found.append((squares / matrix.shape[1]).clamp(min=1e-12).log())
        return torch.stack(found, dim=1)


def fit_likeness(features: Sequence[Tensor], labels: Tensor) -> Likeness:
    """Fit the distribution of training images.

    Args:
        features: (N, D) for each group, from `describe_images`.
        labels: (N,) integers.
    """
    fitted = [_fit_group(group, labels) for group in features]
    means, matrices, centres = zip(*fitted)
    return Likeness(means, matrices, centres)


def _fit_group(features: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Mean, matrix and centres of one group."""
    mean = features.mean(0)
    centred = features - mean
    classes, members = labels.unique(return_inverse=True)
    centres = torch.zeros(len(classes), features.shape[1], dtype=torch.float64)
    centres.index_add_(0, members, centred)
    centres /= members.bincount()[:, None]
    deviation = (centred - centres[members]).square().mean(0).sqrt()
    # Images that are all equal have no deviation at all.
    typical = deviation.square().mean().sqrt()
    floor = LEAST_DEVIATION * torch.where(typical > 0, typical, 1.0)
    matrix = (1 / torch.maximum(deviation, floor)).diag()
    if len(mean) > MOST_DIMENSIONS:
        matrix = matrix @ _directions(len(mean), MOST_DIMENSIONS)
    within = (centred - centres[members]) @ matrix
    root = torch.linalg.cholesky(_shrunk_covariance(within))
    # (x L^-T) has the identity as covariance where x has L L^T.
    matrix = torch.linalg.solve_triangular(root.T, matrix, upper=True, left=False)
    found = mean.float(), matrix.float(), (centres @ matrix).float()
    # As they are read from a file, so that sums come out the same.
    return tuple(tensor.contiguous() for tensor in found)


def _directions(dimensions: int, kept: int) -> Tensor:
    """(dimensions, kept) orthonormal columns at random, always the same."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(dimensions, kept, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(drawn).Q


def _shrunk_covariance(rows: Tensor) -> Tensor:
    """Covariance of rows (N, d) of mean 0, mixed with a multiple of the identity as by Ledoit and Wolf."""
    count, dimensions = rows.shape
    sample, identity = rows.T @ rows / count, torch.eye(dimensions, dtype=rows.dtype)
    scale = sample.diagonal().mean()
    apart = (sample - scale * identity).square().sum()
    noise = rows.square().sum(1).square().sum() / count**2 - sample.square().sum() / count
    share = torch.where(apart > 0, noise / apart, 1.0).clamp(0, 1)
    # Rows that are all 0 have no scale.
    scale = torch.where(scale > 0, scale, 1.0)
    return (1 - share) * sample + share.clamp(min=1e-6) * scale * identity
