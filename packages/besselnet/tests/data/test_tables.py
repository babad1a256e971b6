"""`table`: images listed in a CSV file, with everything that can be wrong about it."""

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.data import load_data
from hostile import make_special, png, refused


def write(folder, labels, header="file,size", count=20):
    """Image i has the grey value i; `labels(i)` is the rest of its row."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    rows = [header]
    for number in range(count):
        name = f"pictures/{number:02}.png"
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(folder / name)
        rows.append(f"{name},{labels(number)}")
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    return folder / "table.csv"


def numbers_of(part):
    return part.images[:, 0, 0, 0].tolist()


def test_values(tmp_path):
    path = write(tmp_path, lambda i: f"{i / 4},{-i}e3", "file,size,charge")
    splits = load_data(path)
    assert [len(part) for part in splits.parts().values()] == [16, 2, 2]
    assert str(splits.provenance).startswith("table table.csv; images split")
    for part in splits.parts().values():
        assert part.task == "regress"
        assert part.classes == ("size", "charge")
        assert part.labels.tolist() == [[i / 4, -1000.0 * i] for i in numbers_of(part)]


def test_a_folder_with_one_table_is_that_table(tmp_path):
    write(tmp_path, lambda i: i + 0.5)
    found = load_data(tmp_path).merged()
    assert found.labels[:, 0].tolist() == [i + 0.5 for i in numbers_of(found)]
    # Where there are folders of classes, a table is another file.
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("L", (4, 4)).save(tmp_path / "pets" / name / f"{number}.png")
    (tmp_path / "pets" / "notes.csv").write_text("a,b\n1,2\n")
    assert load_data(tmp_path / "pets").train.classes == ("cat", "dog")


def test_classes(tmp_path):
    path = write(tmp_path, lambda i: "cat" if i % 2 else '"dog, small"', "file,kind")
    splits = load_data(path)
    assert splits.train.task == "classify"
    assert splits.train.classes == ("cat", "dog, small")
    assert splits.test.class_counts().tolist() == [1, 1]
    for part in splits.parts().values():
        assert part.labels.tolist() == [1 - i % 2 for i in numbers_of(part)]


@pytest.mark.parametrize(("name", "classes"), [("label", "9 10"), ("Class", "9 10")])
def test_numbers_that_are_called_labels_are_classes(tmp_path, name, classes):
    found = load_data(write(tmp_path, lambda i: 9 + i % 2, f"file,{name}")).merged()
    assert found.task == "classify"
    assert found.classes == tuple(classes.split())
    assert found.labels.tolist() == [i % 2 for i in numbers_of(found)]


def test_the_task_decides_in_doubt(tmp_path):
    path = write(tmp_path, lambda i: i % 3)
    refused(lambda: load_data(path), "table.csv", "'size'", "task=classify", "regress")
    assert load_data(path, task="classify").train.classes == ("0", "1", "2")
    values = load_data(path, task="regress").merged()
    assert values.labels[:, 0].tolist() == [float(i % 3) for i in numbers_of(values)]
    path = write(tmp_path, lambda i: f"{i % 2},{int(i > 4)}", "file,odd,large")
    refused(lambda: load_data(path), "table.csv", "task=multilabel", "regress")
    several = load_data(path, task="multilabel").merged()
    assert several.classes == ("odd", "large")
    assert several.labels.tolist() == [[i % 2 == 1, i > 4] for i in numbers_of(several)]
    assert load_data(path, task="regress").train.task == "regress"
    refused(lambda: load_data(path, task="classify"), "table.csv", "one column")
    refused(lambda: load_data(path, task="segment"), "task='segment'")


def test_several_labels(tmp_path):
    texts = ["", "red", "red; round", "round;red ;small"]
    path = write(tmp_path, lambda i: texts[i % 4], "file,what", count=40)
    splits = load_data(path)
    names = ("red", "round", "small")
    for part in splits.parts().values():
        assert part.task == "multilabel"
        assert part.classes == names
        for number, label in zip(numbers_of(part), part.labels.tolist()):
            assert label == [name in texts[number % 4] for name in names]


def test_splits_and_groups_of_a_table(tmp_path):
    parts = ["train", "Valid", "test", "train"]
    path = write(tmp_path, lambda i: f"{parts[i % 4]},s{i // 4},{i / 8}", "Image,split,group,size")
    splits = load_data(path)
    assert str(splits.provenance) == "table table.csv, its own parts"
    assert sorted(numbers_of(splits.val)) == list(range(1, 20, 4))
    assert sorted(numbers_of(splits.test)) == list(range(2, 20, 4))
    assert splits.train.groups.tolist() == [i // 4 for i in numbers_of(splits.train)]
    assert splits.train.classes == ("size",)
    path = write(tmp_path, lambda i: f"s{i // 2},{i / 8}", "file,group,size")
    splits = load_data(path)
    seen = [set(part.groups.tolist()) for part in splits.parts().values()]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 10
    assert "images split" in str(load_data(path, by_group=False).provenance)


ROW = "pictures/00.png,1.5\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("must have a header line",)),
        ("file,size\n", ("must have a header line",)),
        ("name,size\n" + ROW, ("line 1", "'file'")),
        ("file;size\n" + ROW, ("line 1", "commas")),
        ("file\npictures/00.png\n", ("line 1", "labels or values")),
        ("file,size,size\n", ("must have a header line",)),
        ("file,size,size\npictures/00.png,1,2\n", ("line 1", "'size'")),
        ("file,size\n" + ROW + "pictures/01.png,2,3\n", ("line 3", "3 columns")),
        ("file,size\n" + ROW + "\n\npictures/99.png,2\n", ("line 5", "pictures/99.png")),
        ("file,size\n" + ROW + "pictures,2\n", ("line 3", "pictures")),
        ("file,size\n" + ROW + ",2\n", ("line 3",)),
        ("file,size\n" + ROW + ROW, ("line 3", "line 2")),
        ("file,size\n" + ROW + "pictures/01.png,n/a\n", ("line 3", "'n/a'", "'size'")),
        ("file,size\n" + ROW + "pictures/01.png,inf\n", ("line 3", "'inf'", "finite")),
        ("file,size\n" + ROW + "pictures/01.png,1e39\n", ("line 3", "'1e39'", "finite")),
        ("file,a,b\npictures/00.png,1.5,\n", ("line 2", "'b'")),
        ("file,kind\npictures/00.png,cat\npictures/01.png,\n", ("line 3", "no label")),
        ("file,kind\npictures/00.png,cat\npictures/01.png,cat\n", ("only one class",)),
        ("file,split,size\npictures/00.png,trian,1.5\n", ("line 2", "trian")),
        ("file,split,size\npictures/00.png,val,1.5\n", ("'train'",)),
        ("file,size\n" + ROW + "pic\0tures/01.png,1\n", ()),
        ("file,size\n" + ROW + "x" * 9999 + ",1\n", ("line 3",)),
        ('file,size\n"' + "x" * 200_000 + '",1\n', ()),
    ],
)
def test_tables_that_do_not_fit_are_named_with_the_line(tmp_path, text, words):
    path = write(tmp_path, lambda i: i / 4)
    path.write_text(text)
    refused(lambda: load_data(path), "table.csv", *words)


def test_a_table_of_a_spreadsheet(tmp_path):
    """With a byte-order mark and Windows line ends."""
    path = write(tmp_path, lambda i: i / 4)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_data(path).train.classes == ("size",)
    path.write_bytes("file,Größe\n".encode("utf-16"))
    refused(lambda: load_data(path), "table.csv")


def test_bad_images_of_a_table(tmp_path):
    path = write(tmp_path, lambda i: i / 4)
    (tmp_path / "pictures" / "03.png").write_bytes(png(10_000, 10_000))
    refused(lambda: load_data(path), "03.png", "max_pixels", "on_error=skip")
    with pytest.warns(UserWarning, match=r"03\.png") as caught:
        kept = load_data(path, on_error="skip").merged()
    assert caught[0].filename == __file__
    assert kept.labels[:, 0].tolist() == [i / 4 for i in numbers_of(kept)]
    assert 3 not in numbers_of(kept)


@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_what_is_no_table_is_refused(tmp_path, kind):
    refused(lambda: load_data(make_special(tmp_path / "table.csv", kind)), "table.csv", kind)
    write(tmp_path / "own", lambda i: i / 4)
    (tmp_path / "own" / "pictures" / "03.png").unlink()
    make_special(tmp_path / "own" / "pictures" / "03.png", kind)
    refused(lambda: load_data(tmp_path / "own"), "03.png", kind)


def test_a_table_by_name(tmp_path):
    write(tmp_path, lambda i: i / 4)
    assert len(load_data("table", root=tmp_path).merged()) == 20
    refused(lambda: load_data("table"), "CSV")
    (tmp_path / "second.csv").write_text("file,size\n")
    refused(lambda: load_data("table", root=tmp_path), "CSV")


def test_one_seed_gives_one_division(tmp_path):
    path = write(tmp_path, lambda i: i / 4)
    first, again, other = (load_data(path, seed=seed).train for seed in (1, 1, 2))
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)
