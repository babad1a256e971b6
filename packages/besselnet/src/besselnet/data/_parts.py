"""Train, val and test: existing splits, or new ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from besselnet.data._imageset import ImageSet, Provenance, Splits
from besselnet.data._split import divide, hold_out

PART_NAMES = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
# The part of images that are not divided yet.
ALL = "all"


def need_folder(kind: str, root: Path | None) -> Path:
    """`root`, if it is a folder; the name of the `kind` goes before a folder of the same name."""
    if root is None:
        raise ValueError(
            f"{kind}: requires the path of a folder; for a folder of that name write ./{kind}"
        )
    if not root.is_dir():
        raise ValueError(f"{root}: must be a folder")
    return root


def part_folders(root: Path) -> dict[str, Path]:
    """train, val and test folders by name, or everything as "all"."""
    found = {
        part: root / name
        for part, names in PART_NAMES.items()
        for name in names
        if (root / name).is_dir()
    }
    if found and "train" not in found:
        raise ValueError(f"{root}: has {', '.join(found)} but no train folder")
    return found or {ALL: root}


def assemble(
    sets: Mapping[str, ImageSet],
    data_set: str,
    split: Sequence[float],
    seed: int,
    *,
    val: float | None = None,
    by_group: bool | None = None,
    fitted: str = "",
    stored: str = "",
) -> Splits:
    """The parts that a source has, or the division of "all" into such; `divide` explains the arguments.

    `val` is the share of the training images that becomes the validation part of a source without one.
    """
    if val is not None and not ("train" in sets and "val" not in sets):
        has = "its own validation images" if "val" in sets else "no splits: use split"
        raise ValueError(f"val={val!r}: must be unset, because {data_set} has {has}")
    if ALL in sets:
        splits = divide(sets[ALL], data_set, split, seed, by_group)
    else:
        splits = Splits(**sets, provenance=Provenance(f"{data_set}, its own parts"))
    if val is not None:
        splits = hold_out(splits, val, seed, by_group)
    return replace(splits, provenance=replace(splits.provenance, fitted=fitted, stored=stored))
