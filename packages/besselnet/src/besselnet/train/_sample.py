"""Sample images at random."""

import torch

from besselnet.data import ImageSet


def sample_images(images: ImageSet, most: int) -> ImageSet:
    """At most so many of the images, always the same ones, in their order; all if `most` is 0."""
    if not 0 < most < len(images):
        return images
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images.select(order[:most].sort().values)
