"""Columns that the paper does not have, such as those of an ablation: methods against one of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from besselnet.train import changed_settings, in_words
from besselnet_lab.report.collect import ColumnKey, Entry, Table, compare
from besselnet_lab.report.summaries import Line, TextTable

__all__ = ["first_row", "variants"]

# What tells runs apart that does not make another variant.
_PASSING = ("seed", "root", "device", "devices", "nodes", "tensorboard", "checkpoint_steps")


def variants(table: Table, column: ColumnKey) -> TextTable:
    """The methods of a column: the first is what the others vary, then the best come first."""
    ran = [entry for entry in table.column(column) if entry.ours is not None]
    first = first_row(ran)
    others = [entry for entry in ran if entry is not first]
    others.sort(key=lambda e: -e.ours.mean if e.ours else 0.0)
    lines = [_line(entry, first) for entry in ([first] if first else []) + others]
    judged = "validation" if column.judge == "val" else "test"
    images = {entry.train_images for entry in ran}
    count = f", {images.pop():,} training images" if len(images) == 1 else ""
    return TextTable(
        f"{column.data_set} {column.augmentation} {column.regime}, protocol {column.protocol}{count}",
        f"Evaluated on {judged} images. The first row shares the most settings with the others, which "
        "follow from best to worst. The difference is that from the first row, in points, with the marks "
        "explained above.",
        (
            *("method", "accuracy", "runs", "difference", "changes from the first row"),
            *("parameters", "multiply-adds per image", "training"),
        ),
        lines,
    )


def first_row(entries: Sequence[Entry]) -> Entry | None:
    """The entry whose settings differ least from those of the others; of equals, the first."""

    def distance(entry: Entry) -> int:
        return sum(len(_changes(entry, other)) + len(_changes(other, entry)) for other in entries)

    return min(entries, key=distance, default=None)


def _line(entry: Entry, first: Entry | None) -> Line:
    assert entry.ours is not None
    difference = what = ""
    if first is not None and first.ours is not None and entry is not first:
        compared = compare(entry.ours, first.ours)
        difference = f"{compared.difference:+.2f} {compared.mark}"
        what = ", ".join(_changes(first, entry))
    cells = [
        entry.row.title,
        str(entry.ours),
        str(entry.ours.n),
        difference,
        what,
        f"{entry.parameters:,}",
        f"{entry.multiply_adds:,}",
        in_words(entry.seconds or 0.0),
    ]
    return Line(cells, entry.column, entry.row)


def _changes(before: Entry, after: Entry) -> list[str]:
    """Settings of `after` that `before` has otherwise: `["learning_rate 0.003", ...]`.

    A setting that only one of them records is newer than the other, and no change. Of another model, the
    options that the recipe names count.
    """
    old, new = _lasting(before.settings), _lasting(after.settings)
    shown = []
    model = new.get("model", {}).get("name")
    if old.get("model", {}).get("name") != model:
        shown = [f"model {model}", *(f"{key} {value}" for key, value in after.options.items())]
        old, new = ({**settings, "model": {}} for settings in (old, new))
    for change in changed_settings(_of_both(old, new), _of_both(new, old)):
        key, _, values = change.partition(": ")
        value = values.rpartition(" -> ")[2].strip("'")
        shown.append(f"{key.rpartition('.')[2]} {value}")
    return shown


def _of_both(settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the other has, too."""
    return {
        key: _of_both(value, other[key]) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key in other
    }


def _lasting(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _lasting(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key not in _PASSING
    }
