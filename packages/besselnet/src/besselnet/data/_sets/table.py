"""`table`: images listed in a CSV file, with classes, values or several labels."""

from collections.abc import Sequence
from pathlib import Path

from besselnet._pixels import RESIZE
from besselnet.data._cache import Cache
from besselnet.data._decode import Resize
from besselnet.data._image_files import read_files
from besselnet.data._imageset import ImageSet, Splits
from besselnet.data._parts import ALL, PART_NAMES, assemble
from besselnet.data._registry import register_data
from besselnet.data._stored import select_rows
from besselnet.data._table import read_table, table_in


@register_data(
    "table",
    summary="your own images in a CSV table: file, and label, label;label or values",
    obtain="use the path of your .csv file or of its folder",
)
def load_table(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    task: str | None = None,
    channels: int | None = None,
    resize: Resize = RESIZE,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
    on_error: str = "raise",
    cache: Cache | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    val: float | None = None,
    by_group: bool | None = None,
) -> Splits:
    """The images that a CSV file names, one in each line after the names of the columns.

    - Columns: `file`, relative to the table; labels or values (see `read_table`); optionally `split` (train,
      val or test) and `group` (slide, patient, field of view).
    - `task`: "classify", "regress" or "multilabel", where the table can be read in more than one way.
    - `split`, `by_group`: how a table without `split` is divided; groups stay together by default. `val`: the
      share of the training images that becomes the validation part of a table that has none.
    - The other options are those of `folder`.
    """
    path = table_in(root) if root is not None and root.is_dir() else root
    if path is None:
        raise ValueError(f"table requires the path of a CSV file or of its folder, got {root}")
    table = read_table(path, task)
    found = read_files(
        path,
        table.files,
        image_size,
        resize,
        on_error,
        cache,
        channels=channels,
        bits=bits,
        page=page,
        max_pixels=max_pixels,
    )
    part_of = table.parts or [ALL] * len(table.files)
    sets = {}
    for part in (*PART_NAMES, ALL):
        if part not in part_of:
            continue
        rows = [row for row, number in enumerate(found.places.tolist()) if part_of[number] == part]
        if not rows:
            raise ValueError(f"{path}: has no readable image for {part!r}")
        numbers, images = found.places[rows], select_rows(found.images, rows)
        groups = None if table.groups is None else table.groups[numbers]
        sets[part] = ImageSet(images, table.labels[numbers], table.classes, groups)
    return assemble(
        sets,
        f"table {path.name}",
        split,
        seed,
        val=val,
        by_group=by_group,
        fitted=found.fitted,
        stored=found.stored,
    )
