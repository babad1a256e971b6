"""Image corruptions: noise, blur, compression and geometric changes.

Each corruption has five severities. Lengths are fractions of the shorter side, so a severity means the
same for small and large images. A seed gives the same random numbers at every severity: only the strength
differs.
"""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from besselnet.checks import check_choice, check_count, check_seed
from besselnet.data import Contrast, Erase, Rotate, Scale, Shift
from besselnet.functional import Border, Interpolation, warp_images
from besselnet.robust._standing import check_unit_images

SEVERITIES = 5
# "interpolation" and "border".
Sampling = Mapping[str, Any]
# Of the Gaussian that makes neighbours move together in an elastic deformation, as a share of the side.
_ELASTIC_SMOOTHNESS = 0.1


@dataclass(frozen=True)
class Corruption:
    """A corruption with five severities.

    Attributes:
        strengths: one number per severity, from mild to severe.
        meaning: meaning of the number.
        apply: (images (N, C, H, W) in [0, 1], strength, generator, sampling) -> images, not yet clamped to
            [0, 1]; `sampling` has `interpolation` and `border`.
    """

    strengths: tuple[float, float, float, float, float]
    meaning: str
    apply: Callable[[Tensor, float, Generator, Sampling], Tensor]


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    seed: int = 0,
    *,
    interpolation: Interpolation = "cubic",
    border: Border = "zeros",
) -> Tensor:
    """Apply the corruption `name` of `CORRUPTIONS` to images (N, C, H, W) in [0, 1], reproducibly by `seed`.

    Args:
        severity: 1 (mild) to 5 (severe).
        interpolation, border: for geometric corruptions, as in `besselnet.functional.warp_images`.
    """
    check_choice("name", name, list(CORRUPTIONS))
    check_count("severity", severity, most=SEVERITIES)
    check_unit_images(images)
    found = CORRUPTIONS[name]
    generator = Generator().manual_seed(check_seed(seed))
    sampling = {"interpolation": interpolation, "border": border}
    return found.apply(images, found.strengths[severity - 1], generator, sampling).clamp(0, 1)


def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    """Images (N, C, H, W) blurred by a Gaussian of `sigma` pixels, mirrored at their edges."""
    for axis in (2, 3):
        radius = min(math.ceil(4 * sigma), images.shape[axis] - 1)
        places = torch.arange(-radius, radius + 1, dtype=torch.float64)
        weights = torch.exp(-0.5 * (places / sigma) ** 2)
        kernel = (weights / weights.sum()).to(images)
        margin = [0, 0, radius, radius] if axis == 2 else [radius, radius, 0, 0]
        padded = F.pad(images, margin, mode="reflect")
        shape = [-1, 1] if axis == 2 else [1, -1]
        flat = padded.flatten(0, 1)[:, None]
        images = F.conv2d(flat, kernel.view(1, 1, *shape)).view(
            *padded.shape[:2], *images.shape[2:]
        )
    return images


def _side(images: Tensor) -> int:
    return min(images.shape[2:])


def _gaussian_noise(images: Tensor, deviation: float, generator: Generator, _: Sampling) -> Tensor:
    return images + deviation * torch.randn(images.shape, generator=generator).to(images)


def _salt_and_pepper(images: Tensor, share: float, generator: Generator, _: Sampling) -> Tensor:
    """All channels of a pixel become 0 or 1."""
    shape = (len(images), 1, *images.shape[2:])
    chosen, colour = (torch.rand(shape, generator=generator).to(images.device) for _ in range(2))
    return torch.where(chosen < share, (colour < 0.5).to(images), images)


def _blur(images: Tensor, share: float, generator: Generator, _: Sampling) -> Tensor:
    return gaussian_blur(images, share * _side(images))


def _contrast(images: Tensor, factor: float, generator: Generator, _: Sampling) -> Tensor:
    return Contrast().apply(images, torch.full((len(images),), factor))


def _brightness(images: Tensor, added: float, generator: Generator, _: Sampling) -> Tensor:
    return images + added


def _jpeg(images: Tensor, quality: float, generator: Generator, _: Sampling) -> Tensor:
    """Colour images as such; of other numbers of channels each by itself."""
    planes = images if images.shape[1] == 3 else images.flatten(0, 1)[:, None]
    pixels = (planes * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    decoded = np.empty_like(pixels)
    for i, one in enumerate(pixels):
        decoded[i] = _recompressed(one, int(quality))
    found = torch.from_numpy(decoded).permute(0, 3, 1, 2).to(images) / 255
    return found.reshape(images.shape)


def _recompressed(pixels: np.ndarray, quality: int) -> np.ndarray:
    """(H, W, 1 or 3) uint8, written as JPEG and read again."""
    # Pillow belongs to the extra `train`: the other corruptions need none.
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).save(
        file, format="JPEG", quality=quality
    )
    with Image.open(file) as read:
        return np.asarray(read).reshape(pixels.shape)


def _occlusion(images: Tensor, share: float, generator: Generator, _: Sampling) -> Tensor:
    """A disc of the mean colour somewhere in the image."""
    places = torch.rand(len(images), 2, generator=generator)
    radii = torch.full((len(images), 1), share)
    return Erase().apply(images, torch.cat([places, radii], dim=1))


def _shift(images: Tensor, share: float, generator: Generator, how: Sampling) -> Tensor:
    """As far for every image, each in its own direction."""
    direction = 2 * math.pi * torch.rand(len(images), generator=generator)
    moved = share * torch.stack([direction.cos(), direction.sin()], dim=1)
    return Shift(**how).apply(images, moved)


def _scale(images: Tensor, factor: float, generator: Generator, how: Sampling) -> Tensor:
    """Half of the images grow, half shrink."""
    sign = torch.where(torch.rand(len(images), generator=generator) < 0.5, -1.0, 1.0)
    return Scale(**how).apply(images, factor**sign)


def _elastic(images: Tensor, share: float, generator: Generator, how: Sampling) -> Tensor:
    """Smooth random displacements (Simard et al. 2003), of the root mean square `share` of the side."""
    height, width = images.shape[2:]
    noise = torch.randn(len(images), 2, height, width, generator=generator)
    smooth = gaussian_blur(noise, _ELASTIC_SMOOTHNESS * _side(images))
    lengths = smooth.square().sum(1, keepdim=True).mean((2, 3), keepdim=True).sqrt()
    moved = share * _side(images) * smooth / lengths.clamp(min=1e-12)
    still = torch.eye(2, 3, dtype=torch.float64).expand(len(images), 2, 3)
    return warp_images(images, still, **how, displacements=moved)


def _rotation(images: Tensor, degrees: float, generator: Generator, how: Sampling) -> Tensor:
    change = Rotate(**how, degrees=degrees)
    return change.apply(images, change.draw(len(images), generator))


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": Corruption(
            (0.05, 0.1, 0.2, 0.3, 0.4), "standard deviation", _gaussian_noise
        ),
        "salt_and_pepper": Corruption(
            (0.01, 0.03, 0.06, 0.12, 0.2), "share of the pixels", _salt_and_pepper
        ),
        "blur": Corruption(
            (0.01, 0.02, 0.03, 0.04, 0.05), "sigma of a Gaussian, share of the side", _blur
        ),
        "contrast": Corruption((0.7, 0.5, 0.35, 0.2, 0.1), "factor of the contrast", _contrast),
        "brightness": Corruption((0.1, 0.2, 0.3, 0.4, 0.5), "added to every pixel", _brightness),
        "jpeg": Corruption((80, 50, 25, 15, 7), "quality of the JPEG file", _jpeg),
        "occlusion": Corruption(
            (0.08, 0.12, 0.16, 0.2, 0.25), "radius of a disc, share of the side", _occlusion
        ),
        "shift": Corruption((0.03, 0.06, 0.1, 0.15, 0.2), "share of the side", _shift),
        "scale": Corruption((1.1, 1.2, 1.35, 1.5, 1.75), "factor, or one over it", _scale),
        "elastic": Corruption(
            (0.01, 0.02, 0.03, 0.045, 0.06),
            "root mean square displacement, share of the side",
            _elastic,
        ),
        "rotation": Corruption((15, 45, 90, 135, 180), "degrees at most, either way", _rotation),
    }
)
"""All corruptions by name."""
