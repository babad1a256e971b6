"""A recipe: which trainings make up a study, read from a TOML file and checked.

title, seeds, protocol, judge, judge_images     of the whole study
[train]                 settings of every training (`TrainConfig`)
[regimes.NAME]          further settings of a regime, such as its epochs
[data."NAME"]           a data set: `DataEntry`
[[methods]]             a row of the tables: `Method`; or methods = "paper" for all its rows
[[columns]]             a data set, how it is augmented, and in which regimes: `Column`
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from besselnet.data import AugmentName
from besselnet.models import model_info
from besselnet.train import DataConfig, TrainConfig, from_dict, override, read_config
from besselnet_lab.paper import PaperRow, paper_models
from besselnet_lab.study.images import Judge, Protocol
from besselnet_lab.study.robustness import RobustPlan

__all__ = ["Column", "DataEntry", "Method", "Recipe", "read_recipe"]

T = TypeVar("T")


@dataclass(frozen=True)
class DataEntry:
    """A data set of a study.

    Attributes:
        source: its name for `besselnet.data.load_data`; with `file`, the kind of file ("npz").
        file: name of one file in the data root that holds it, where it is not a published set.
        image_size: side in pixels. Unset, images with masks keep their size, and others get one that suits.
        options: further options of the source.
        channels, classes, images: what it is, for estimates of time.
        train_images: how many images train in each regime: a number, a share of all images, or
            `{ per_class = 10 }` for so many of each class, or all of a class that has fewer.
        classes_kept: names of the classes that are used; empty for all.
        augment: what augmentation "aug" does to the training images.
        by_group: keep whole groups (slides, patients) on one side of the division.
        train: training settings for this set, such as its batch size.
        robust: `RobustPlan`, if networks trained on it are to be tested with corrupted images and under
            attack; empty if not.
    """

    source: str
    channels: int
    classes: int
    images: int
    train_images: dict[str, Any]
    file: str | None = None
    image_size: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    classes_kept: tuple[str, ...] = ()
    augment: tuple[AugmentName, ...] = ("rotate",)
    by_group: bool = False
    train: dict[str, Any] = field(default_factory=dict)
    robust: dict[str, Any] = field(default_factory=dict)

    def robust_plan(self) -> RobustPlan | None:
        """How robustness is tested, where it is."""
        return from_dict(RobustPlan, self.robust, "robust.") if self.robust else None

    def size(self, regime: str) -> tuple[int | float, bool]:
        """(how many images train, as a number or a share; whether the classes share them equally)."""
        size = self.train_images[regime]
        if isinstance(size, Mapping):
            return size["per_class"] * self.classes, True
        return size, False


@dataclass(frozen=True)
class Method:
    """A row of the tables, or a variant of a network in an ablation.

    Attributes:
        method, group: what the row is called. A row of the paper has a model of its own.
        model: name of the model, for all other rows.
        options: of the model.
        weights: the trained network to start from, as for `besselnet train --weights`; it sets the options.
        train: training settings of this row; where nothing is said, the model's own.
        train_on: further ones by the name of a data set, such as a learning rate chosen for it.
        data: settings of the images, such as `interpolation` or `augment`.
        recommended: train with the settings that `besselnet train` gives to these images, in place of
            those of recipe, regime and data set; those of the column, and `options`, `train`, `train_on` and
            `data`, go over them.
            In "noaug" and "upright" columns the training images still stay as they are.
    """

    method: str
    group: str = ""
    model: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    train: dict[str, Any] = field(default_factory=dict)
    train_on: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    recommended: bool = False

    @property
    def label(self) -> str:
        return f"{self.method} {self.group}".strip()


@dataclass(frozen=True)
class Column:
    """Columns of a table: one data set and augmentation, one column for each regime.

    Attributes:
        data_set: a name in `[data]`.
        augmentation: "aug" rotates the training images at random; "noaug" does not; "upright" does
            not either, but rotates the images that are judged.
        regimes: names in `train_images` of the data set.
        methods: shell patterns of "METHOD GROUP"; empty for all methods.
        seeds, protocol, judge_images: in place of the recipe's.
        train: training settings of this column.
    """

    data_set: str
    augmentation: Literal["aug", "noaug", "upright"]
    regimes: tuple[str, ...]
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    protocol: Protocol | None = None
    judge_images: int | None = None
    train: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """A study.

    Attributes:
        seeds: one training for each; a seed fixes the division of the images, too.
        protocol: "paper" merges all images and divides them anew; "standard" keeps the published
            training and test images.
        judge: which images decide; "val" never touches a test image.
        judge_images: judge on so many of them, drawn with the proportions of the classes; unset: all.
        mapping: for the rows of the paper, the model that the row's name means ("name") or the one
            that the published experiment code ran under it ("code").
    """

    title: str
    seeds: tuple[int, ...]
    columns: tuple[Column, ...]
    methods: Literal["paper"] | tuple[Method, ...]
    data: dict[str, Any]
    regimes: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    protocol: Protocol = "paper"
    judge: Judge = "test"
    judge_images: int | None = None
    mapping: Literal["name", "code"] = "name"

    def data_entry(self, name: str) -> DataEntry:
        entry: DataEntry = self.data[name]
        return entry

    def rows(self) -> tuple[Method, ...]:
        """The methods, each with its model."""
        if isinstance(self.methods, tuple):
            given = self.methods
        else:
            given = tuple(Method(*row) for row in paper_models())
        return tuple(self._with_model(method) for method in given)

    def _with_model(self, method: Method) -> Method:
        if method.model is not None:
            return method
        models = paper_models().get(PaperRow(method.method, method.group))
        if models is not None:
            by_code = models.by_code if self.mapping == "code" else None
            return replace(method, model=by_code or models.by_name)
        raise ValueError(f'methods: {method.label!r} is not a row of the paper: add model = "..."')


def read_recipe(path: str | Path, settings: Iterable[str] = ()) -> Recipe:
    """The recipe in a TOML file, with each `key=value` of `settings` in place of what it says.

    Every mistake is a `ValueError` that names the file and the key.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such recipe")
    values = override(read_config(path), settings)
    try:
        return _check(_parse(values))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parse(values: Mapping[str, Any]) -> Recipe:
    values = dict(values)
    for key in ("columns", "methods"):
        kind: Any = Column if key == "columns" else Method
        tables = values.get(key)
        if isinstance(tables, list):
            values[key] = tuple(
                _section(kind, table, f"{key}[{i}]") for i, table in enumerate(tables)
            )
        elif not (key == "methods" and tables == "paper"):
            raise ValueError(f"{key}={tables!r}: must be a list of tables [[{key}]]")
    data = values.get("data")
    if not isinstance(data, dict) or not data:
        raise ValueError(f'data={data!r}: must be tables such as [data."MNIST"]')
    values["data"] = {
        name: _section(DataEntry, table, f"data.{name}") for name, table in data.items()
    }
    columns, methods = values.pop("columns"), values.pop("methods")
    checked: Recipe = _section(Recipe, {**values, "columns": (), "methods": ()}, "")
    return replace(checked, columns=columns, methods=methods)


def _section(kind: type[T], table: Any, where: str) -> T:
    """The table as dataclass `kind`, with unknown, missing and wrong keys refused."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}={table!r}: must be a table of settings")
    prefix = f"{where}." if where else ""
    try:
        return from_dict(kind, table, prefix)
    except TypeError:
        required = [
            f.name
            for f in fields(kind)  # type: ignore[arg-type]
            if f.default is f.default_factory  # both are dataclasses.MISSING
        ]
        missing = next(name for name in required if name not in table)
        raise ValueError(f"{prefix}{missing} is missing") from None


def _check(recipe: Recipe) -> Recipe:
    if not recipe.seeds:
        raise ValueError("seeds=[]: must have at least one seed")
    if not recipe.columns:
        raise ValueError("columns=[]: must have at least one table [[columns]]")
    from_dict(TrainConfig, recipe.train, "train.")
    for name, table in recipe.regimes.items():
        _check_train(table, f"regimes.{name}")
    for name in recipe.data:
        _check_data(name, recipe.data_entry(name))
    for i, method in enumerate(recipe.rows()):
        where = f"methods[{i}]" if recipe.methods != "paper" else method.label
        info = model_info(str(method.model))
        unknown = sorted(set(method.options) - set(info.options))
        if unknown:
            raise ValueError(
                f"{where}.options: {info.name!r} has no option {unknown[0]!r}; "
                f"its options: {', '.join(info.options) or 'none'}"
            )
        if method.weights is not None and not method.recommended:
            raise ValueError(f"{where}.weights: must be unset without `recommended = true`")
        _check_train(method.train, f"{where}.train")
        for name, table in method.train_on.items():
            _check_train(table, f"{where}.train_on.{name}")
            if name not in recipe.data:
                known = ", ".join(recipe.data)
                raise ValueError(f"{where}.train_on: no [data.{name!r}]; known: {known}")
        from_dict(DataConfig, method.data, f"{where}.data.")
        for key in ("source", "root", "seed", "options"):
            if key in method.data:
                raise ValueError(f"{where}.data.{key}: must be unset, because the column sets it")
    for i, column in enumerate(recipe.columns):
        _check_column(recipe, column, f"columns[{i}]")
    return recipe


def _check_train(table: Any, where: str) -> None:
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}={table!r}: must be a table of training settings")
    from_dict(TrainConfig, table, f"{where}.")
    if "seed" in table:
        raise ValueError(f"{where}.seed: must be unset; the seeds of a study are in `seeds`")


def _check_data(name: str, entry: DataEntry) -> None:
    where = f"data.{name}"
    _check_train(entry.train, f"{where}.train")
    from_dict(RobustPlan, entry.robust, f"{where}.robust.")
    for regime, size in entry.train_images.items():
        equal = isinstance(size, Mapping) and size.keys() == {"per_class"}
        number = size["per_class"] if equal else size
        whole = isinstance(number, int) and not isinstance(number, bool) and number >= 1
        share = isinstance(size, float) and 0 < size < 1
        if not (whole or share):
            raise ValueError(
                f"{where}.train_images.{regime}={size!r}: must be a number of images, a fraction in "
                "(0, 1) or { per_class = number }"
            )
    if entry.classes_kept and entry.classes != len(entry.classes_kept):
        raise ValueError(
            f"{where}.classes={entry.classes}: must be {len(entry.classes_kept)}, as many as classes_kept"
        )


def _check_column(recipe: Recipe, column: Column, where: str) -> None:
    if column.data_set not in recipe.data:
        known = ", ".join(recipe.data)
        raise ValueError(f"{where}.data_set: no [data.{column.data_set!r}]; known: {known}")
    if not column.regimes:
        raise ValueError(f"{where}.regimes=[]: must have at least one regime")
    for regime in column.regimes:
        sizes = recipe.data_entry(column.data_set).train_images
        if regime not in sizes:
            raise ValueError(
                f"{where}.regimes: {regime!r} is not in data.{column.data_set}.train_images "
                f"({', '.join(sizes)})"
            )
    _check_train(column.train, f"{where}.train")
