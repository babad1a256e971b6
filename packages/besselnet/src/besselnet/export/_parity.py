"""How far an exported network is from the one that was trained."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from besselnet.nn import evaluating

# Largest difference of the logits, relative to the largest of them (or to 1, if that is more): what rounding
# leaves of float32 after some ten layers, unless small differences decide between scales.
BOUND = 1e-4
RANDOM_IMAGES = 100
# Images that go through both networks at a time.
PIECE = 20

Network = Callable[[Tensor], Tensor]


def difference(model: nn.Module, exported: Network, images: Tensor) -> float:
    """Largest difference of the logits, relative to the largest logit or to 1, whichever is more."""
    logits, others = answers(model, exported, images)
    return float((others - logits).abs().max() / logits.abs().max().clamp_min(1))


def same_class(model: nn.Module, exported: Network, images: Tensor) -> float:
    """Share of the images for which both networks name the same class."""
    logits, others = answers(model, exported, images)
    return float((logits.argmax(1) == others.argmax(1)).double().mean())


def answers(model: nn.Module, exported: Network, images: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of both networks, (N, classes) each."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with evaluating(model):
        pairs = [(model(x.to(device)).cpu(), exported(x)) for x in images.split(PIECE)]
    return torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])


def differences(
    model: nn.Module, exported: Network, images: Tensor, real: bool, any_size: bool
) -> dict[str, float]:
    """:func:`difference` on several kinds of images, by what they are.

    Random images always; `images` themselves if they are `real`; random ones of another size, in a batch of
    another length, if the exported network takes `any_size`.
    """
    count, (channels, height, width) = RANDOM_IMAGES, images.shape[1:]
    generator = torch.Generator().manual_seed(0)
    kinds = {
        f"{count} random images": torch.rand(count, channels, height, width, generator=generator)
    }
    if real:
        kinds[f"{len(images)} real images"] = images
    if any_size:
        size = (height + 3, width + 6)
        kinds[f"1 image of {size[0]} x {size[1]} pixels"] = torch.rand(
            1, channels, *size, generator=generator
        )
    return {kind: difference(model, exported, given) for kind, given in kinds.items()}


def check(found: dict[str, float], bound: float, what: str) -> None:
    """`ValueError` if a difference is above the bound, or not a number."""
    for kind, value in found.items():
        if not value <= bound:
            raise ValueError(
                f"{what} differs from PyTorch by {value:.1e} on {kind}, more than {bound:.0e}: "
                "nothing was written"
            )
