"""What is measured: layers and networks from settings, and one step of each."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet.export import OnnxClassifier, export_model
from besselnet.functional import BasisSpec, cheaper_algorithm, direct_cost, factored_cost
from besselnet.kernels import available, switched_off
from besselnet.models import create_model, model_info
from besselnet.nn import BesselConv2d
from besselnet_lab import paper  # noqa: F401  (registers the peers)
from besselnet_lab.benchmarks.entries import BESSEL_OPTIONS, CONV_OPTIONS, Settings


class LeftOut(Exception):
    """A candidate that is not measured; the message says why."""


def build(settings: Settings, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The layer, or the network (float32), of the settings; the same seed gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if "model" in settings:
            return _laid_out(_network(settings), settings)
        kind: Any = BesselConv2d if settings["layer"] == "BesselConv2d" else nn.Conv2d
        names = CONV_OPTIONS + (BESSEL_OPTIONS if kind is BesselConv2d else ())
        options = {name: settings[name] for name in names if name in settings}
        shape = (settings["in_channels"], settings["out_channels"], settings["kernel_size"])
        layer: nn.Module = kind(*shape, dtype=dtype, **options | {"padding": _padding(settings)})
        return _laid_out(layer, settings)


def _laid_out(module: nn.Module, settings: Settings) -> nn.Module:
    if settings.get("channels_last"):
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


@contextmanager
def conditions(settings: Settings) -> Iterator[None]:
    """Context with the kernel, the threads and the precision of the settings."""
    before = torch.get_num_threads()
    with ExitStack() as stack:
        if not settings.get("native", True):
            stack.enter_context(switched_off())
        if settings.get("bfloat16"):
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        torch.set_num_threads(settings.get("threads", before))
        stack.callback(torch.set_num_threads, before)
        yield


def _network(settings: Settings) -> nn.Module:
    try:
        return create_model(
            settings["model"],
            in_channels=settings["in_channels"],
            num_classes=settings["num_classes"],
            image_size=settings["size"],
            **settings.get("options", {}),
        )
    except ValueError as error:
        # Only a missing package is a reason to go on without the candidate.
        if isinstance(error.__cause__, ImportError):
            raise LeftOut("not installed: besselnet-lab[peers]") from None
        raise


def images_for(
    settings: Settings, batch: int, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Random images (batch, C, H, W); those for a layer want a gradient, as inside a network."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, settings["in_channels"], settings["size"], settings["size"])
    images = torch.randn(shape, generator=generator, dtype=dtype)
    if settings.get("channels_last"):
        images = images.contiguous(memory_format=torch.channels_last)
    return images.requires_grad_("model" not in settings)


def training_step(
    module: nn.Module, settings: Settings, seed: int = 0
) -> Callable[[Tensor], Tensor]:
    """A function of the images: forward and backward, and for a network a step of Adam."""
    generator = torch.Generator().manual_seed(seed)
    module.train()
    if "model" in settings:
        masks = model_info(settings["model"]).answers == "pixels"
        shape = (settings["batch"], *([settings["size"]] * 2 if masks else ()))
        labels = torch.randint(settings["num_classes"], shape, generator=generator)
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)

        def train(images: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(module(images), labels[: len(images)])
            loss.backward()
            optimizer.step()
            return loss.detach()

        return train

    side = _output_side(settings)
    gradient = torch.randn(
        settings["batch"], settings["out_channels"], side, side, generator=generator
    )

    def pass_both_ways(images: Tensor) -> Tensor:
        module.zero_grad()
        images.grad = None
        output: Tensor = module(images)
        output.backward(gradient[: len(images)].to(output.dtype))
        return output.detach()

    return pass_both_ways


def forward_pass(module: nn.Module, settings: Settings) -> Callable[[Tensor], object]:
    """A function of the images: inference, nothing kept for a backward pass."""
    module.eval()
    if settings.get("onnx"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.onnx"
            export_model(module, path, to="onnx", images=images_for(settings, 2))
            network = OnnxClassifier(path, threads=torch.get_num_threads())
        return lambda images: network.logits(images.numpy())

    @torch.inference_mode()
    def infer(images: Tensor) -> Tensor:
        output: Tensor = module(images)
        return output

    return infer


def multiply_adds(settings: Settings) -> int | None:
    """Of one forward pass of a layer, by the operation counts of ``besselnet.functional``."""
    if "model" in settings:
        return None
    ends = (settings["in_channels"], settings["out_channels"], settings.get("groups", 1))
    if settings["layer"] == "Conv2d":
        per_pixel = ends[0] * ends[1] // ends[2] * settings["kernel_size"] ** 2
    else:
        cost = direct_cost if predicted_algorithm(settings) == "direct" else factored_cost
        per_pixel = cost(basis_of(settings), *ends).operations
    return per_pixel * _output_side(settings) ** 2 * int(settings["batch"])


def basis_of(settings: Settings) -> BasisSpec:
    names = ("symmetry", "cutoff", "sampling", "scales")
    options = {name: settings[name] for name in names if name in settings}
    return BasisSpec.checked(settings["kernel_size"], **options)


def predicted_algorithm(settings: Settings) -> str:
    """The algorithm that a Bessel layer of these settings runs."""
    chosen: str = settings.get("algorithm", "auto")
    if chosen == "auto":
        ends = (settings["in_channels"], settings["out_channels"], settings.get("groups", 1))
        stride = settings.get("stride", 1)
        pixels = settings["batch"] * settings["size"] ** 2 // stride**2
        chosen = cheaper_algorithm(basis_of(settings), *ends, pixels=pixels, fused=available())
    return chosen


def _padding(settings: Settings) -> int:
    default = settings.get("dilation", 1) * (settings["kernel_size"] - 1) // 2
    return int(settings.get("padding", default))


def _output_side(settings: Settings) -> int:
    reach = settings.get("dilation", 1) * (settings["kernel_size"] - 1)
    room = settings["size"] + 2 * _padding(settings) - reach - 1
    return int(room // settings.get("stride", 1) + 1)
