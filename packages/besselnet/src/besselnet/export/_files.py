"""`export_model`: write a network to files that run without besselnet, and compare it with the original."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from besselnet._pixels import RESIZE
from besselnet._version import __version__
from besselnet.atomic import write_together
from besselnet.checks import check_choice, check_number
from besselnet.export import _parity as parity
from besselnet.export._layers import count_forms, to_ordinary
from besselnet.export._maps import WithMaps
from besselnet.export._onnx import onnx_bytes
from besselnet.export._plain import plain_source, to_plain
from besselnet.export._program import (
    export_program,
    program_bytes,
    read_program,
    takes_other_sizes,
)
from besselnet.export._quantize import quantize
from besselnet.export._runtime import METADATA_FORMAT
from besselnet.models import network_config
from besselnet.nn import evaluating

Target = Literal["onnx", "torch-export", "plain"]
TARGETS: tuple[str, ...] = get_args(Target)
SUFFIXES = {"onnx": ".onnx", "torch-export": ".pt2", "plain": ".py"}


@dataclass(frozen=True)
class ExportReport:
    """Files written by `export_model`, and their difference from the original network.

    Attributes:
        files: the files; the first is the requested one.
        differences: largest difference of the logits for each kind of images, relative to the largest logit
            or to 1.
        forms: number of Bessel convolutions written in each form.
        any_size: whether the network accepts images of any size, or only of the size it was built for.
        int8_agreement: fraction of the images for which the 8-bit network predicts the same class as the
            original; None without ``int8``.
        int8_difference: the difference of its logits.
    """

    files: tuple[Path, ...]
    differences: Mapping[str, float]
    forms: Mapping[str, int]
    any_size: bool
    int8_agreement: float | None = None
    int8_difference: float | None = None


@dataclass(frozen=True)
class _Exported:
    """Contents of files by their suffixes, and the network read back from them."""

    contents: dict[str, bytes]
    network: Callable[[Tensor], Tensor]
    forms: dict[str, int] = field(default_factory=dict)


def export_model(
    model: nn.Module,
    path: str | Path,
    *,
    to: Target,
    images: Tensor,
    real: bool = True,
    classes: Sequence[str] = (),
    resize: str = RESIZE,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
    temperature: float = 1.0,
    int8: bool = False,
    maps: bool = False,
    bound: float = parity.BOUND,
) -> ExportReport:
    """Export a network to a file that runs without besselnet.

    The exported network is loaded and compared with the original on random images and on `images`. If the
    logits differ by more than `bound`, a `ValueError` is raised and nothing is written.

    Args:
        model: any module of torch and besselnet layers, from images to logits (N, classes), or to logits of
            every pixel (N, classes, H, W).
        path: the file; its suffix is .onnx, .pt2 or .py.
        to: "onnx"; "torch-export" (a .pt2 file for ``torch.export.load``); "plain" (a Python file that needs
            only torch, with its weights in a .pt file next to it).
        images: example images (N, C, H, W), floats in [0, 1].
        real: whether they are real images of the task, not random ones.
        classes: names of the classes, stored in the file.
        resize, bits, page, max_pixels: how to read image files, as in ``besselnet.data.load_data``.
        temperature: divisor of the logits for calibrated probabilities (`besselnet.robust.fit_temperature`).
            It is stored in the metadata; the logits are not changed.
        int8: with "onnx", quantise weights and activations to 8 bits, calibrated on `images`.
        maps: with "onnx", add outputs ``maps1``, ``maps2``, ...: the feature maps (N, channels, h, w) of the
            last activation at each resolution.
        bound: maximum difference of the logits, relative to the largest of them or to 1.
    """
    check_choice("to", to, TARGETS)
    path = Path(path)
    if path.suffix != SUFFIXES[to]:
        raise ValueError(f"path={str(path)!r}: must end in {SUFFIXES[to]} for to={to!r}")
    if int8 and to != "onnx":
        raise ValueError(f"int8=True: must be False for to={to!r}; it requires to='onnx'")
    if maps and (to != "onnx" or int8):
        raise ValueError(
            f"maps=True: must be False for to={to!r}, int8={int8}; it requires to='onnx'"
        )
    check_number("bound", bound, least=0)
    check_number("temperature", temperature, above=0)
    if images.ndim != 4 or not len(images):
        raise ValueError(f"images of shape {tuple(images.shape)}: must be (N, C, H, W) with N >= 1")
    images = images.detach().float().cpu()
    reading = {"resize": resize, "bits": bits, "page": page, "max_pixels": max_pixels}
    facts = describe(model, images, classes) | reading | {"temperature": temperature}
    any_size = takes_other_sizes(to_ordinary(model, "direct"), images)
    write: dict[str, Callable[..., _Exported]] = {
        "onnx": partial(_to_onnx, maps=maps),
        "torch-export": _to_program,
        "plain": _to_plain,
    }
    exported = write[to](model, images, any_size, facts)
    found = parity.differences(model, exported.network, images, real, any_size)
    parity.check(found, bound, path.name)
    contents, agreement, apart = exported.contents, None, None
    if int8:
        contents = {".onnx": quantize(contents[".onnx"], images)}
        network = _onnx_network(contents[".onnx"])
        agreement = parity.same_class(model, network, images)
        apart = parity.difference(model, network, images)
    files = {path.with_suffix(suffix): content for suffix, content in contents.items()}
    # The file that was asked for last: where it is, those that it needs are too.
    write_together(path.parent, {file.name: files[file] for file in reversed(files)})
    return ExportReport(tuple(files), found, exported.forms, any_size, agreement, apart)


def describe(model: nn.Module, images: Tensor, classes: Sequence[str]) -> dict[str, Any]:
    """What a file says of the network in it: its `network_config`, or less where it has no recipe."""
    with evaluating(model):
        device = next((p.device for p in model.parameters()), images.device)
        shape = model(images[:1].to(device)).shape
    outputs = shape[1]
    if classes and len(classes) != outputs:
        raise ValueError(f"classes={list(classes)}: must be {outputs} names, one per logit")
    names = list(classes) or None
    try:
        config = network_config(model, names)
    except ValueError:
        # Not of `create_model`, or changed since.
        config = {"besselnet": __version__, "name": type(model).__name__, "options": {}}
        config |= {"num_classes": outputs, "classes": names, "about": {}}
    config |= {"in_channels": images.shape[1], "image_size": images.shape[-1]}
    answers = "pixels" if len(shape) == 4 else "image"
    smallest = getattr(model, "smallest_size", 1)
    facts = {"answers": answers, "smallest_size": smallest, "format": METADATA_FORMAT}
    return config | facts


def _to_onnx(
    model: nn.Module, images: Tensor, any_size: bool, facts: Mapping[str, Any], maps: bool
) -> _Exported:
    ordinary = to_ordinary(model)
    shown = WithMaps(ordinary, images) if maps else ordinary
    count = len(shown.places) if isinstance(shown, WithMaps) else 0
    content = onnx_bytes(export_program(shown, images, any_size), facts, count)
    return _Exported({".onnx": content}, _onnx_network(content), count_forms(ordinary))


def _onnx_network(content: bytes) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def _to_program(
    model: nn.Module, images: Tensor, any_size: bool, facts: Mapping[str, Any]
) -> _Exported:
    ordinary = to_ordinary(model)
    content = program_bytes(export_program(ordinary, images, any_size), facts)
    return _Exported({".pt2": content}, read_program(content), count_forms(ordinary))


def _to_plain(
    model: nn.Module, images: Tensor, any_size: bool, facts: Mapping[str, Any]
) -> _Exported:
    plain = to_plain(model)
    shown = ("classes", "in_channels", "image_size")
    constants = {name.upper(): facts[name] for name in shown}
    source = plain_source(plain, constants, f"The network {facts['name']}, written by besselnet.")
    weights = io.BytesIO()
    torch.save(plain.state_dict(), weights)
    names: dict[str, Any] = {"__file__": "plain.py", "__name__": "plain"}
    exec(compile(source, "plain.py", "exec"), names)
    network = names["load"](io.BytesIO(weights.getvalue()))
    forms = {"direct": sum(count_forms(to_ordinary(model, "direct")).values())}
    return _Exported({".py": source.encode(), ".pt": weights.getvalue()}, network, forms)
