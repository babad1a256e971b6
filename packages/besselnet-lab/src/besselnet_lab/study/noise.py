"""Which layer of a network amplifies noise, and which damps it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from besselnet.checks import check_images, check_number, check_seed
from besselnet.models.template import FeatureNetwork
from besselnet.nn import evaluating

__all__ = ["noise_changes"]

# Bands of the noise by the wavelength in pixels, and how they are called.
_BANDS = {
    "above 8 pixels": (8.0, torch.inf),
    "4 to 8 pixels": (4.0, 8.0),
    "below 4 pixels": (0.0, 4.0),
}
WHITE = "white, cut to [0, 1]"
_BATCH = 50


def noise_changes(
    model: nn.Module, images: Tensor, sigma: float = 0.2, seed: int = 0
) -> dict[str, Any]:
    """How much Gaussian noise changes what each layer gives, relative to what it gives: JSON values.

    With f the output of a layer for images x and noise n, it is the root of the sum over the images of
    ||f(x + n) - f(x)||^2, divided by that of ||f(x)||^2. `changes` has a list for each kind of noise, with
    a number for each of `layers`: the image, the layers one after the other, their mean over the pixels and
    the logits. White noise is cut to [0, 1] with the image, as the corruption "gaussian_noise" does. The
    others are noise of one band of wavelengths each, uncut, which cutting would mix; each has the deviation
    `sigma`. Of a layer that gives zeros for all images, the change counts as 0.

    Args:
        model: one of `besselnet.models`, or of the paper's peers.
        images: (N, C, H, W) in [0, 1].
        sigma: standard deviation of the noise in a pixel.
    """
    check_images("images", images)
    check_number("sigma", sigma, above=0, most=1)
    generator = torch.Generator().manual_seed(check_seed(seed))
    noise = torch.randn(images.shape, generator=generator).to(images)
    noisy = {WHITE: (images + sigma * noise).clamp(0, 1)}
    for name, band in _BANDS.items():
        part = _in_band(noise, band)
        noisy[name] = images + sigma * part / part.std()
    powers: dict[str, Tensor] = {}
    layers: list[str] = []
    pieces = zip(images.split(_BATCH), *(kind.split(_BATCH) for kind in noisy.values()))
    with evaluating(model):
        for clean, *changed in pieces:
            before = _outputs(model, clean)
            layers = list(before)
            _add(powers, "", list(before.values()))
            for name, kind in zip(noisy, changed):
                after = _outputs(model, kind)
                _add(powers, name, [after[layer] - before[layer] for layer in layers])
    signal = powers.pop("")
    changes = {}
    for name, power in powers.items():
        found = torch.where(signal > 0, power / signal, 0).sqrt().tolist()
        changes[name] = [float(f"{change:.4g}") for change in found]
    return {"sigma": sigma, "images": len(images), "layers": layers, "changes": changes}


def _in_band(noise: Tensor, wavelengths: tuple[float, float]) -> Tensor:
    """The part of noise (N, C, H, W) with wavelengths of so many pixels; the constant is the longest."""
    rows = torch.fft.fftfreq(noise.shape[-2], device=noise.device)[:, None]
    columns = torch.fft.rfftfreq(noise.shape[-1], device=noise.device)
    length = 1 / torch.hypot(rows, columns)
    kept = (wavelengths[0] < length) & (length <= wavelengths[1])
    return torch.fft.irfft2(torch.fft.rfft2(noise) * kept, s=noise.shape[-2:])


def _add(powers: dict[str, Tensor], name: str, outputs: list[Tensor]) -> None:
    found = torch.stack([output.double().square().sum().cpu() for output in outputs])
    powers[name] = powers.get(name, 0) + found


def _outputs(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """What each layer gives, by its number and kind, from the images to the logits."""
    found = {"image": images}
    with _recording(model, found):
        found["logits"] = model(images)
    return found


@contextmanager
def _recording(model: nn.Module, found: dict[str, Tensor]) -> Iterator[None]:
    """Note the outputs of the layers of `model` while it runs."""
    if not isinstance(model, FeatureNetwork):
        raise ValueError(
            f"model is a {type(model).__name__}: must be a network of besselnet.models"
        )
    # Those of escnn lie inside a module of their own.
    chains = (m for m in model.features.modules() if isinstance(m, nn.Sequential))
    names = {
        layer: f"{number} {type(layer).__name__.strip('_')}"
        for number, layer in enumerate(_flat(next(chains)), start=1)
    }

    def note(layer: nn.Module, _inputs: Any, output: Any) -> None:
        # Layers of escnn pass on fields, which hold a tensor. Later layers may work in place.
        found[names[layer]] = (output if isinstance(output, Tensor) else output.tensor).clone()

    def note_mean(_head: nn.Module, inputs: Any) -> None:
        found["mean"] = inputs[0]

    hooks = [layer.register_forward_hook(note) for layer in names]
    hooks.append(model.head.register_forward_pre_hook(note_mean))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _flat(chain: nn.Sequential) -> Iterator[nn.Module]:
    """The layers of a chain, with those of the chains inside it."""
    for layer in chain:
        if isinstance(layer, nn.Sequential):
            yield from _flat(layer)
        else:
            yield layer
