"""Cells: one training each, expanded from a recipe."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from besselnet.train import ModelConfig, RunConfig, from_dict, make_config, to_dict
from besselnet_lab.study.images import CellImages
from besselnet_lab.study.recipe import Column, DataEntry, Method, Recipe
from besselnet_lab.study.robustness import RobustPlan

__all__ = ["Cell", "CellKey", "expand", "select"]


@dataclass(frozen=True, order=True)
class CellKey:
    """What a cell is called: its place in the tables."""

    data_set: str
    augmentation: str
    regime: str
    method: str
    group: str
    seed: int
    protocol: str = "paper"

    @property
    def column(self) -> str:
        """Name of the column of a table, such as "MNIST-rot noaug low"."""
        standard = "" if self.protocol == "paper" else f" {self.protocol}"
        return f"{self.data_set} {self.augmentation} {self.regime}{standard}"

    @property
    def row(self) -> str:
        """Name of the row of a table."""
        return f"{self.method} {self.group}".strip()

    @property
    def identity(self) -> str:
        """Path of its files within the results, without the ending."""
        row = ".".join(_slug(part) for part in (self.method, self.group) if part)
        return f"{_slug(self.column)}/{row}.seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.column} | {self.row} | seed {self.seed}"


@dataclass(frozen=True)
class Cell:
    """A cell: its name, its images, the run that fills it, and what is known beforehand.

    Attributes:
        config: of the run. Its options of the model are those of the recipe; `train_run` adds the
            others.
        channels, classes, train_images, judged_images: what the images are and how many, for estimates
            of time.
        over_recommended: with recommended settings, what the recipe puts over them: sections `data` and
            `train`, and names of augmentations that are taken away or added, in `augment`. `config` then has
            the model's own settings in their place, for estimates of time.
        robust: how the trained network is tested with corrupted images and under attack; None if it is not.
    """

    key: CellKey
    images: CellImages
    config: RunConfig
    channels: int
    classes: int
    train_images: int
    judged_images: int
    over_recommended: dict[str, Any] | None = None
    robust: RobustPlan | None = None

    def settings(self) -> dict[str, Any]:
        """Everything that decides the result, as JSON values."""
        parts = {"images": self.images, "model": self.config.model, "train": self.config.train}
        settings: dict[str, Any] = {name: to_dict(part) for name, part in parts.items()}
        if self.robust is not None:
            settings["robust"] = to_dict(self.robust)
        if self.over_recommended is None:
            return settings
        return {**settings, "train": self.over_recommended["train"], "recommended": True}


def expand(recipe: Recipe) -> list[Cell]:
    """All cells, column by column, seed by seed: early seeds of all methods come first."""
    rows = recipe.rows()
    cells: dict[str, Cell] = {}
    for number, column in enumerate(recipe.columns):
        chosen = _chosen(rows, column.methods, f"columns[{number}].methods")
        for regime in column.regimes:
            for seed in column.seeds or recipe.seeds:
                for method in chosen:
                    cell = _cell(recipe, column, regime, method, seed)
                    identity = cell.key.identity
                    if identity in cells:
                        raise ValueError(f"columns[{number}]: {cell.key} occurs twice")
                    cells[identity] = cell
    return list(cells.values())


def select(cells: Sequence[Cell], only: Iterable[str]) -> list[Cell]:
    """The cells that match every condition `field=pattern[,field=pattern...]`, with shell patterns.

    Brackets are ordinary characters, as in the names of the methods.
    """
    known = [f.name for f in fields(CellKey)]
    chosen = list(cells)
    for text in only:
        for condition in text.split(","):
            name, equals, pattern = (part.strip() for part in condition.partition("="))
            if not equals or name not in known:
                raise ValueError(
                    f"--only {condition.strip()!r}: must be FIELD=PATTERN with a field of "
                    f"{', '.join(known)}"
                )
            matching = [cell for cell in chosen if _matches(getattr(cell.key, name), pattern)]
            if not matching:
                there = sorted({str(getattr(cell.key, name)) for cell in chosen})
                raise ValueError(
                    f"--only {condition.strip()!r} matches no cell; {name} must be one of: "
                    f"{'; '.join(there)}"
                )
            chosen = matching
    return chosen


def _matches(value: object, pattern: str) -> bool:
    return fnmatchcase(str(value), pattern.replace("[", "[[]"))


def _chosen(rows: Sequence[Method], patterns: Sequence[str], where: str) -> list[Method]:
    """The rows that match any of the patterns, in the order of the rows; all for no pattern."""
    for pattern in patterns:
        if not any(_matches(row.label, pattern) for row in rows):
            labels = "; ".join(row.label for row in rows)
            raise ValueError(f"{where}: {pattern!r} matches none of: {labels}")
    return [row for row in rows if not patterns or any(_matches(row.label, p) for p in patterns)]


def _cell(recipe: Recipe, column: Column, regime: str, method: Method, seed: int) -> Cell:
    entry = recipe.data_entry(column.data_set)
    protocol = column.protocol or recipe.protocol
    judge_images = column.judge_images or recipe.judge_images
    size, equal_classes = entry.size(regime)
    augment = entry.augment if column.augmentation == "aug" else ()
    if method.recommended:
        # Of these, a recommendation lacks mirror images, which stay in their class where the recipe says so.
        augment = tuple(name for name in augment if name == "reflect")
    images = CellImages(
        source=entry.source,
        file=entry.file,
        options=entry.options,
        classes_kept=entry.classes_kept,
        image_size=entry.image_size,
        train_images=size,
        equal_classes=equal_classes,
        protocol=protocol,
        judge=recipe.judge,
        judge_images=judge_images,
        rotate=column.augmentation == "upright",
        by_group=entry.by_group,
        seed=seed,
        augment=augment,
    )
    images = from_dict(CellImages, {**asdict(images), **method.data}, "data.")
    own = {**method.train, **method.train_on.get(column.data_set, {}), "seed": seed}
    over_recommended = None
    if method.recommended:
        train = {**column.train, **own}
        # What the network is to be invariant to, it may not see where images are upright in training.
        without = () if column.augmentation == "aug" else ("rotate", "reflect")
        data: dict[str, Any] = {"augment": []} if column.augmentation == "noaug" else {}
        over_recommended = {"data": {**data, **method.data}, "train": train}
        over_recommended["augment"] = {"without": without, "further": augment}
    else:
        regime_train = recipe.regimes.get(regime, {})
        train = {**recipe.train, **regime_train, **entry.train, **column.train, **own}
    model = ModelConfig(str(method.model), method.options, method.weights)
    # With the model's own settings of training under those of the recipe. Trained weights are read when the
    # cell is trained.
    untrained = to_dict(replace(model, weights=None))
    config = make_config(
        {"data": to_dict(images.data_config()), "model": untrained, "train": train}
    )
    key = CellKey(
        column.data_set, column.augmentation, regime, method.method, method.group, seed, protocol
    )
    train_images = size if isinstance(size, int) else int(size * entry.images)
    return Cell(
        key=key,
        images=images,
        config=replace(config, model=model),
        channels=entry.channels,
        classes=entry.classes,
        train_images=train_images,
        judged_images=min(judge_images or entry.images, _most_judged(entry, recipe, train_images)),
        over_recommended=over_recommended,
        robust=entry.robust_plan(),
    )


def _most_judged(entry: DataEntry, recipe: Recipe, train_images: int) -> int:
    """About how many images there are to judge on."""
    return entry.images // 5 if recipe.judge == "val" else entry.images - train_images


def _slug(text: str) -> str:
    """A file name that tells the names in a study apart."""
    return re.sub(r"[^a-z0-9+_]+", "-", text.lower()).strip("-")
