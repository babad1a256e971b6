"""Outputs of the layers inside a network."""

from torch import Tensor, nn

ACTIVATIONS = (nn.ReLU, nn.GELU, nn.Softsign, nn.Tanh)


def activation_maps(model: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the output of `model` for images (N, C, H, W), and the outputs of its activation layers.

    The feature maps are (N, channels, h, w), in the order in which the layers are called.
    """
    found: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output: found.append(output))
        for module in model.modules()
        if isinstance(module, ACTIVATIONS)
    ]
    try:
        answer: Tensor = model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return answer, found
