"""``convert``: replace the layers of an existing network, optionally with a report."""

import copy
import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import UninitializedParameter
from torch.optim.swa_utils import update_bn

from besselnet.checks import check_count
from besselnet.conversion._faults import find_faults
from besselnet.conversion._layers import ENLARGED, Options, change, count_parameters, replacement
from besselnet.conversion._rebuild import mend_flatten, widened
from besselnet.conversion._report import ConversionReport, Fault, KeptLayer, LayerChange
from besselnet.conversion._run import measure, run
from besselnet.functional import Response
from besselnet.nn import first_channels
from besselnet.testing import plane_waves

__all__ = ["convert", "convert_with_report"]


def convert(
    model: nn.Module,
    *,
    image_size: int | None = None,
    in_channels: int | None = None,
    symmetry: str = "SO(2)",
    cutoff: str | float = "strong",
    scales: Sequence[int] | None = None,
    response: Response = "signed",
    sampling: str = "cubic",
    kernel_size: int | Mapping[int, int] = ENLARGED,
    keep: Sequence[str] = (),
    repair: Sequence[str] | Literal["all"] = (),
    width: float = 1.0,
) -> nn.Module:
    """Return a rotation-equivariant copy of a network built from ``nn.Conv2d``.

    Each ``nn.Conv2d`` with a square kernel larger than one pixel becomes a ``BesselConv2d`` with the same
    channels, stride, padding, dilation and groups. New layers have random weights, and the running averages
    of normalisation layers are reset, so train the copy. The model itself is not modified.

    Args:
        model: any module that accepts images (N, C, H, W); its `forward` is unchanged.
        image_size: side of the square images; required by `width` and by the repair "flatten".
        in_channels: image channels. Default: those of the first layer.
        symmetry, cutoff, scales, response, sampling: as in `BesselConv2d`.
        kernel_size: new kernel size for each old one, or the smallest size to use. With the strong cut-off,
            a kernel of 3 pixels has 3 weights, one of 5 pixels has 6. The padding grows with the kernel, so
            maps keep their size; `{}` keeps all sizes.
        keep: names or patterns (such as "stem.*") of layers to leave unchanged.
        repair: what to fix, or "all". "stride": strided convolutions become convolutions followed by
            `BlurPool2d` (stride² times the arithmetic). "pool": max and average pooling become `BlurPool2d`.
            "padding": even kernels with padding "same" become one pixel larger. "transpose": transposed
            convolutions become bilinear upsampling and a convolution. "flatten": maps are averaged before
            they are flattened, and the next linear layer gets fewer inputs.
        width: multiplier for the number of channels between input and output. With the strong cut-off, a
            layer has about a quarter of its former weights, so 2 about restores the number. Values other
            than 1 reinitialise all layers and require `image_size`.

    `convert_with_report` also returns a report: what was changed, and what still breaks the symmetry.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 7, padding=3), nn.ReLU(), nn.Conv2d(8, 2, 1))
        >>> convert(model)[0].sampling
        'cubic'
    """
    options = Options(
        image_size=image_size,
        in_channels=in_channels,
        symmetry=symmetry,
        cutoff=cutoff,
        scales=scales,
        response=response,
        sampling=sampling,
        kernel_size=kernel_size,
        keep=keep,
        repair=repair,
        width=width,
    )
    return _convert(model, options).model


def convert_with_report(model: nn.Module, **options: Any) -> tuple[nn.Module, ConversionReport]:
    """Convert a network like `convert`, and report the changes and the equivariance of the result.

    Args:
        model: as in `convert`.
        options: options of `convert`. With `image_size`, the report lists what still breaks the symmetry at
            this size, and the equivariance error of the output before and after.

    Returns:
        The new model and the report; `print(report)` shows it.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 7, padding=3), nn.ReLU(), nn.Conv2d(8, 2, 1))
        >>> converted, report = convert_with_report(model, image_size=33)
        >>> [change.after for change in report.changes]
        ['BesselConv2d 3->8, 7x7']
        >>> report.exact
        True
    """
    chosen = Options(**options)
    symmetry = chosen.symmetry
    new, changes, kept, notes, images = _convert(model, chosen)
    faults: list[Fault] = []
    before = after = None
    if images is not None:
        faults, unjudged = find_faults(new, images, mirror=symmetry == "O(2)")
        notes += unjudged
        settled = copy.deepcopy(new)
        update_bn([images], settled)
        if len(run(new, images)) > 1:
            notes.append("the first of the outputs was measured")
        try:
            before, after = (
                measure(m, images.shape[-1], images.shape[1], symmetry=symmetry)
                for m in (model, settled)
            )
        except ValueError as error:
            notes.append(f"the output could not be measured: {error}")
    report = ConversionReport(
        symmetry=symmetry,
        image_size=chosen.image_size,
        changes=tuple(changes),
        kept=tuple(kept),
        faults=tuple(faults),
        notes=tuple(notes),
        parameters_before=count_parameters(model),
        parameters_after=count_parameters(new),
        before=before,
        after=after,
    )
    return new, report


class _Conversion(NamedTuple):
    """A new model, how it came about, and images of the size given to run it on."""

    model: nn.Module
    changes: list[LayerChange]
    kept: list[KeptLayer]
    notes: list[str]
    images: Tensor | None


def _convert(model: nn.Module, options: Options) -> _Conversion:
    _check_model(model)
    kept_names = _matching(model, options.keep)
    images = None
    if options.image_size is not None:
        images = _probe_images(model, options.image_size, options.in_channels)
    new = copy.deepcopy(model)
    if options.width != 1:
        if images is None:
            raise ValueError(
                f"width={options.width!r} with image_size=None: width requires image_size"
            )
        widened(new, options.width, images)
    new, changes, kept = _replace_layers(model, new, options, kept_names)
    notes: list[str] = []
    if "flatten" in options.repairs:
        if images is not None:
            changes += mend_flatten(new, images)
        elif options.repair == "all":
            notes.append(
                "repair 'flatten' requires image_size, because it depends on the size of the maps"
            )
        else:
            raise ValueError(
                f"repair={options.repair!r} with image_size=None: 'flatten' requires image_size"
            )
    for layer in new.modules():
        if isinstance(layer, _NormBase):
            layer.reset_running_stats()
    return _Conversion(new, changes, kept, notes, images)


def _replace_layers(
    old: nn.Module, new: nn.Module, options: Options, kept_names: set[str]
) -> tuple[nn.Module, list[LayerChange], list[KeptLayer]]:
    """Exchange the layers of `new`; a layer that is used in several places stays one layer."""
    originals = dict(old.named_modules())
    shared = _shared_weights(new)
    replaced: dict[int, nn.Module] = {}
    changes, kept = [], []
    for name, layer in list(new.named_modules(remove_duplicate=False)):
        if id(layer) in replaced:
            new.set_submodule(name, replaced[id(layer)])
            continue
        found = replacement(layer, options)
        if isinstance(found, nn.Module) and (name in kept_names or id(layer) in shared):
            found = (
                "kept on request" if name in kept_names else "shares its weights with another layer"
            )
        if isinstance(found, str):
            kept.append(KeptLayer(name, type(layer).__name__, found))
        elif found is not None:
            found.train(layer.training)
            replaced[id(layer)] = found
            changes.append(change(name, originals.get(name, layer), found))
            if name:
                new.set_submodule(name, found)
            else:
                new = found
    return new, changes, kept


def _shared_weights(model: nn.Module) -> set[int]:
    """The layers, by id, whose weight another layer uses too."""
    owners: dict[int, list[int]] = {}
    for layer in model.modules():
        for parameter in layer.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(id(layer))
    return {layer for layers in owners.values() if len(layers) > 1 for layer in layers}


def _probe_images(model: nn.Module, image_size: int, in_channels: int | None) -> Tensor:
    """Random smooth images that fill the frame, like the parameters of the model."""
    channels = first_channels(model) if in_channels is None else in_channels
    like = next(p for p in model.parameters() if p.is_floating_point())
    check_count("in_channels", channels)
    images = plane_waves(2, channels, image_size, window=False).turned().to(like)
    try:
        run(model, images)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"image_size={image_size} and in_channels={channels}: the model does not accept such "
            f"images ({error})"
        ) from error
    return images


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r}: must be an nn.Module")
    if any(isinstance(p, UninitializedParameter) for p in model.parameters()):
        raise ValueError("model has uninitialised lazy layers: run it once on some images")
    if not any(isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) for layer in model.modules()):
        raise ValueError("model has no nn.Conv2d: nothing to convert")


def _matching(model: nn.Module, patterns: Sequence[str]) -> set[str]:
    """Names of the layers that match; a pattern without any is a mistake."""
    if isinstance(patterns, str):
        raise ValueError(f"keep={patterns!r}: must be a list of names or patterns")
    names = [name for name, _ in model.named_modules() if name]
    found: set[str] = set()
    for pattern in patterns:
        matches = {
            name for name in names if fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
        }
        if not matches:
            near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4) or names[:3]
            raise ValueError(f"keep: no layer is named {pattern!r}; nearest: {', '.join(near)}")
        found |= matches
    return found
