"""A digest of the training images, so that resuming detects changed images."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from besselnet.data import Splits, row_hashes


@dataclass(frozen=True)
class ImagesDigest:
    """Result of `digest_images`.

    Attributes:
        about: shape (C, H, W), dtype and classes of the images, as JSON values.
        tensors: ``"PART/pixels"`` and ``"PART/labels"``, (N,) int64: a hash and the class of each image, or a
            hash of its other labels. `about` has the task if they are not classes.
    """

    about: dict[str, Any]
    tensors: dict[str, Tensor]


def digest_images(splits: Splits) -> ImagesDigest:
    """Return the digest of all splits, in the order of the images."""
    images = splits.train.images
    about = {
        "shape": list(images.shape[1:]),
        "type": str(images.dtype).removeprefix("torch."),
        "classes": list(splits.train.classes),
    }
    if splits.train.task != "classify":
        about["task"] = splits.train.task
    tensors = {}
    for name, part in splits.parts().items():
        tensors[f"{name}/pixels"] = row_hashes(part.images)
        has_classes = part.task == "classify"
        tensors[f"{name}/labels"] = part.labels.cpu() if has_classes else row_hashes(part.labels)
    return ImagesDigest(about, tensors)


def changed_images(old: ImagesDigest, new: ImagesDigest) -> list[str]:
    """What differs between two digests: `["class 'a' is now 'b'", "2 images added"]`."""
    if _are_equal(old, new):
        return []
    changes, renamed = _changed_classes(old.about["classes"], new.about["classes"])
    kinds = [
        f"{name} {old.about[name]} is now {new.about[name]}"
        for name in ("shape", "type", "task")
        if old.about.get(name) != new.about.get(name)
    ]
    before, after = _images(old, renamed), _images(new, {})
    if kinds:
        # No hash is that of an image of another shape: what is left to compare is their number.
        before, after = (
            [(0, part, name) for _, part, name in images] for images in (before, after)
        )
    come, gone = _more(after, before, 1), _more(before, after, 1)
    counts = {
        "pixels of {}": min(come, gone),
        "{} added": come - min(come, gone),
        "{} removed": gone - min(come, gone),
        # Those that are new together with their part or class, but not by themselves.
        "{} in another part": _more(after, before, 2) - come,
        "labels of {}": _more(after, before, 3) - _more(after, before, 2),
    }
    changes += kinds + [
        text.format(f"{count} image{'s' * (count > 1)}") for text, count in counts.items() if count
    ]
    return changes or ([] if before == after else ["the order of the images"])


def _are_equal(old: ImagesDigest, new: ImagesDigest) -> bool:
    """Whether nothing differs: told without a list of all images, which can be millions."""
    return (
        old.about == new.about
        and old.tensors.keys() == new.tensors.keys()
        and all(torch.equal(tensor, new.tensors[name]) for name, tensor in old.tensors.items())
    )


def _changed_classes(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    """The differences in words, and the new names of renamed classes."""
    gone = [name for name in old if name not in new]
    come = [name for name in new if name not in old]
    if len(gone) == len(come):
        if not gone and list(old) != list(new):
            return ["the order of the classes"], {}
        renamed = dict(zip(gone, come))
        return [f"class {a!r} is now {b!r}" for a, b in renamed.items()], renamed
    return [
        *(f"class {name!r} added" for name in come),
        *(f"class {name!r} removed" for name in gone),
    ], {}


def _images(digest: ImagesDigest, renamed: Mapping[str, str]) -> list[tuple[int, str, str]]:
    """(hash, part, class or hash of the labels) of every image."""
    classes = [renamed.get(name, name) for name in digest.about["classes"]]
    has_classes = "task" not in digest.about
    return [
        (pixels, part, classes[label] if has_classes else str(label))
        for part in ("train", "val", "test")
        if f"{part}/pixels" in digest.tensors
        for pixels, label in zip(
            digest.tensors[f"{part}/pixels"].tolist(), digest.tensors[f"{part}/labels"].tolist()
        )
    ]


def _more(some: Sequence[tuple[Any, ...]], others: Sequence[tuple[Any, ...]], facts: int) -> int:
    """How many of `some` are not among `others`, by the first `facts` entries of each."""
    return (Counter(image[:facts] for image in some) - Counter(i[:facts] for i in others)).total()
