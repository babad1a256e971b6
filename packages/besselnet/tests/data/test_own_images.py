"""`folder` and `npz`: the user's own images, with everything that can be wrong about them."""

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.data import load_data

RANDOM = np.random.default_rng(0)


def grey(size=(8, 8)):
    return Image.fromarray(RANDOM.integers(0, 256, size, dtype=np.uint8))


def rgb(size=(8, 8)):
    return Image.fromarray(RANDOM.integers(0, 256, (*size, 3), dtype=np.uint8))


def fill(folder, classes=("cat", "dog"), count=10, make=grey):
    for name in classes:
        (folder / name).mkdir(parents=True)
        for index in range(count):
            make().save(folder / name / f"{index:02}.png")
    return folder


def test_folder_is_divided(tmp_path):
    splits = load_data(fill(tmp_path / "pets", count=20), seed=1)
    assert {name: len(part) for name, part in splits.parts().items()} == {
        "train": 32,
        "val": 4,
        "test": 4,
    }
    assert splits.train.classes == ("cat", "dog")
    assert splits.train.images.shape == (32, 1, 8, 8)
    assert splits.train.images.dtype == torch.uint8
    assert splits.test.class_counts().tolist() == [2, 2]
    assert str(splits.provenance) == "folder pets; images split 0.8/0.1/0.1, seed 1"


def test_labels_belong_to_their_images(tmp_path):
    for value, name in enumerate(("a", "b", "c")):
        fill(tmp_path, (name,), 10, lambda value=value: Image.new("L", (4, 4), value * 50))
    splits = load_data(tmp_path)
    for part in splits.parts().values():
        assert torch.equal(part.images[:, 0, 0, 0].long(), part.labels * 50)


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
def test_folder_with_its_own_parts(tmp_path, val):
    fill(tmp_path / "train", count=3)
    fill(tmp_path / val, count=2)
    fill(tmp_path / "test", count=1)
    splits = load_data(tmp_path)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [6, 4, 2]


def test_parts_may_lack_but_not_add_classes(tmp_path):
    fill(tmp_path / "train", ("cat", "cow", "dog"), count=2)
    fill(tmp_path / "test", ("cat", "dog"), count=2)
    assert load_data(tmp_path).test.class_counts().tolist() == [2, 0, 2]
    fill(tmp_path / "test", ("emu",), count=1)
    with pytest.raises(ValueError, match=r"test/emu: is not a class of the training folder"):
        load_data(tmp_path)


def test_parts_without_train_are_refused(tmp_path):
    fill(tmp_path / "test")
    with pytest.raises(ValueError, match="has test but no train folder"):
        load_data(tmp_path)


def test_one_colour_image_makes_the_set_rgb(tmp_path):
    fill(tmp_path)
    rgb().save(tmp_path / "dog" / "colour.png")
    splits = load_data(tmp_path, split=(0.8, 0.1, 0.1))
    assert splits.train.channels == 3
    assert load_data(tmp_path, channels=1).train.channels == 1


def test_one_16_bit_image_makes_the_set_float(tmp_path):
    fill(tmp_path, make=lambda: Image.new("L", (4, 4), 153))
    Image.fromarray(np.full((4, 4), 39321, dtype=np.uint16)).save(tmp_path / "dog" / "deep.png")
    images = load_data(tmp_path).merged().images
    assert images.dtype == torch.float32
    torch.testing.assert_close(images, torch.full_like(images, 0.6))


def twelve_bits(size=(8, 8)):
    return Image.fromarray(RANDOM.integers(0, 4000, size).astype(np.uint16))


def test_16_bit_files_that_use_12_bits_are_noticed(tmp_path):
    fill(tmp_path, make=twelve_bits)
    hint = r"largest value is \d{4} of 65535.*12 bits.*--set data\.options\.bits=12\)"
    with pytest.warns(UserWarning, match=hint) as caught:
        dark = load_data(tmp_path)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    bright = load_data(tmp_path, bits=12)
    torch.testing.assert_close(bright.train.images * 4095, dark.train.images * 65535)
    assert bright.train.images.max() > 0.9


def test_the_largest_value_is_that_before_resizing(tmp_path):
    # The overshoot of bicubic resizing would look like a 13th bit.
    edge = np.zeros((16, 16), dtype=np.uint16)
    edge[:, 8:] = 4095
    fill(tmp_path, make=lambda: Image.fromarray(edge))
    with pytest.warns(UserWarning, match="largest value is 4095 of 65535"):
        load_data(tmp_path, image_size=24)


def test_bits_are_refused_where_values_are_larger(tmp_path):
    fill(tmp_path, make=twelve_bits)
    with pytest.raises(ValueError, match=r"00\.png: has the value \d+, but bits=10 allows 0..1023"):
        load_data(tmp_path, bits=10)


@pytest.mark.parametrize(("top", "bits"), [(200, 8), (600, 10), (2000, 12), (9000, 14)])
def test_the_bits_of_arrays_are_noticed(tmp_path, top, bits):
    x = np.full((40, 2, 2), top, dtype=np.uint16)
    path = save_npz(tmp_path, x=x, y=LABELS)
    with pytest.warns(UserWarning, match=f"bits={bits}"):
        load_data(path)
    images = load_data(path, bits=bits).train.images
    torch.testing.assert_close(images, torch.full_like(images, top / (2**bits - 1)))


def pages(folder, values=(50, 100, 150)):
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for index in range(10):
            first, *rest = [Image.new("L", (8, 8), value) for value in values]
            path = folder / name / f"{index}.tif"
            first.save(path, save_all=True, append_images=rest)
    return folder


def test_files_of_several_pages_need_a_page(tmp_path):
    pages(tmp_path)
    with pytest.raises(ValueError, match=r"has 3 pages .*page=0 .*--set data\.options\.page=0\)"):
        load_data(tmp_path)
    assert load_data(tmp_path, page=0).train.images.unique().tolist() == [50]
    assert load_data(tmp_path, page=2).train.images.unique().tolist() == [150]
    with pytest.raises(ValueError, match=r"has 3 pages: page=3 must be less than 3"):
        load_data(tmp_path, page=3)


def test_single_pages_beside_several(tmp_path):
    pages(tmp_path)
    grey().save(tmp_path / "cat" / "single.tif")
    assert len(load_data(tmp_path, page=0).merged()) == 21
    with pytest.raises(ValueError, match=r"single\.tif: has 1 page: page=1"):
        load_data(tmp_path, page=1)


@pytest.mark.parametrize("mode", ["P", "RGBA", "CMYK", "1"])
def test_other_pixel_formats_are_converted(tmp_path, mode):
    fill(tmp_path)
    suffix = "tif" if mode == "CMYK" else "png"
    rgb().convert(mode).save(tmp_path / "cat" / f"other.{suffix}")
    merged = load_data(tmp_path).merged()
    assert len(merged) == 21
    assert merged.channels == (1 if mode == "1" else 3)


@pytest.mark.parametrize(
    ("sizes", "side", "said"),
    [
        # (height, width), and the side that they get.
        ([(8, 8)], 8, ""),
        ([(256, 256)], 256, ""),
        ([(260, 260)], 224, "260 x 260 pixels: "),
        ([(40, 60)], 40, "60 x 40 pixels: "),
        ([(20, 30), (20, 30), (90, 24), (60, 60)], 22, "30 x 20 pixels and others: "),
        ([(6, 12), (8, 8)], 16, "pixels and others: "),
        ([(300, 400), (500, 280)], 224, "pixels and others: "),
    ],
)
def test_sizes_need_no_option(tmp_path, sizes, side, said):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(12):
            grey(sizes[number % len(sizes)]).save(tmp_path / name / f"{number}.png")
    splits = load_data(tmp_path)
    assert splits.train.image_size == (side, side)
    fitted = splits.provenance.fitted
    assert bool(fitted) == bool(said)
    assert said in fitted
    assert fitted in str(splits.provenance)
    # Given, the size that was chosen makes the same images: what prediction relies on.
    given = load_data(tmp_path, image_size=side)
    assert torch.equal(given.merged().images, splits.merged().images)
    assert given.provenance.fitted == ""


def test_a_chosen_size_is_cropped_unless_told_otherwise(tmp_path):
    white = Image.new("L", (60, 20), 255)
    fill(tmp_path, make=lambda: white)
    assert load_data(tmp_path).train.images.min() == 255
    fitted = load_data(tmp_path, resize="fit")
    assert fitted.train.image_size == (20, 20)
    assert fitted.train.images.min() == 0


def test_unreadable_files_do_not_decide_the_size(tmp_path):
    fill(tmp_path)
    (tmp_path / "dog" / "bad.png").write_bytes(b"\x89PNG broken")
    grey((200, 300)).save(tmp_path / "dog" / "large.png")
    with pytest.warns(UserWarning, match="2 of 22 files"):
        splits = load_data(tmp_path, on_error="skip", max_pixels=1000)
    assert splits.train.image_size == (8, 8)


def test_pages_decide_the_size(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(6):
            path = tmp_path / name / f"{number}.tif"
            grey((20, 20)).save(path, save_all=True, append_images=[grey((32, 32))])
    assert load_data(tmp_path, page=0).train.image_size == (20, 20)
    assert load_data(tmp_path, page=1).train.image_size == (32, 32)


def test_files_that_are_no_images_are_ignored(tmp_path):
    fill(tmp_path)
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "cat" / ".hidden.png").write_bytes(b"x")
    (tmp_path / ".cache").mkdir()
    assert len(load_data(tmp_path).merged()) == 20


def test_an_unreadable_image_is_named_or_skipped(tmp_path):
    fill(tmp_path)
    (tmp_path / "dog" / "bad.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(ValueError, match=r"1 of 21 files cannot be read.*options\.on_error=skip\)"):
        load_data(tmp_path)
    with pytest.warns(UserWarning, match=r"skipped: .*bad\.png") as caught:
        splits = load_data(tmp_path, on_error="skip")
    assert len(splits.merged()) == 20
    assert len(caught) == 1


def test_an_empty_class_is_named(tmp_path):
    fill(tmp_path)
    (tmp_path / "emu").mkdir()
    with pytest.raises(ValueError, match="emu: class folder without images"):
        load_data(tmp_path)


def test_one_class_is_refused(tmp_path):
    fill(tmp_path, ("cat",))
    with pytest.raises(ValueError, match=r"only one class \(cat\)"):
        load_data(tmp_path)


def test_no_class_folders_are_refused(tmp_path):
    grey().save(tmp_path / "loose.png")
    with pytest.raises(ValueError, match="has no class folders"):
        load_data(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 2}, "channels=2: must be"),
        ({"on_error": "ignore"}, "on_error='ignore': must be"),
        ({"resize": "squash", "image_size": 4}, "resize='squash': must be"),
        ({"bits": 7}, "bits=7: must be an integer >= 8"),
        ({"bits": 17}, "bits=17: must be an integer from 8 to 16"),
        ({"page": -1}, "page=-1: must be an integer >= 0"),
        ({"split": (0.5, 0.5)}, "three fractions"),
        ({"colour": True}, "folder has no option 'colour'"),
        ({"image_size": 0}, "image_size"),
        ({"seed": -1}, "seed"),
        ({"root": "."}, "root must be unset"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        load_data(fill(tmp_path / "pets"), **options)


def save_npz(folder, name="own.npz", **arrays):
    path = folder / name
    np.savez(path, **arrays)
    return path


LABELS = np.arange(40) % 2


@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((40, 7, 7), 1),
        ((40, 7, 7, 3), 3),
        ((40, 3, 7, 7), 3),
        ((40, 5, 12, 12), 5),
        ((40, 12, 12, 5), 5),
    ],
)
def test_npz_layouts(tmp_path, shape, channels):
    x = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    merged = load_data(save_npz(tmp_path, x=x, y=LABELS)).merged()
    side = max(shape[2:])
    assert merged.images.shape == (40, channels, side, side)
    as_given = torch.from_numpy(x.reshape(40, -1)).long().sum()
    assert merged.images.long().sum() == as_given


@pytest.mark.parametrize("shape", [(40, 6, 9, 5), (40, 34, 90, 90), (40, 16, 16, 8)])
def test_npz_ambiguous_layout_must_be_given(tmp_path, shape):
    x = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    path = save_npz(tmp_path, x=x, y=LABELS)
    with pytest.raises(ValueError, match="set the data option layout=NHWC"):
        load_data(path)
    assert load_data(path, layout="NHWC").train.channels == shape[3]
    assert load_data(path, layout="NCHW").train.channels == shape[1]


@pytest.mark.parametrize(
    ("shapes", "side"),
    [
        ({"train": (6, 20, 30), "test": (4, 20, 30)}, 20),
        ({"train": (6, 300, 300, 3), "test": (4, 300, 300, 3)}, 224),
        ({"train": (6, 20, 20), "test": (4, 40, 40)}, 20),
    ],
)
def test_npz_sizes_need_no_option(tmp_path, shapes, side):
    arrays = {}
    for part, shape in shapes.items():
        arrays[f"x_{part}"] = RANDOM.integers(0, 256, shape, dtype=np.uint8)
        arrays[f"y_{part}"] = LABELS[: shape[0]]
    splits = load_data(save_npz(tmp_path, **arrays))
    assert splits.train.image_size == splits.test.image_size == (side, side)
    assert f"shorter side scaled to {side}" in splits.provenance.fitted


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (np.full((40, 2, 2), 51, dtype=np.int64), torch.tensor(51, dtype=torch.uint8)),
        (np.full((40, 2, 2), 39321, dtype=np.uint16), torch.tensor(0.6)),
        (np.full((40, 2, 2), 0.25), torch.tensor(0.25)),
        (np.full((40, 2, 2), True), torch.tensor(255, dtype=torch.uint8)),
    ],
)
def test_npz_types(tmp_path, x, expected):
    images = load_data(save_npz(tmp_path, x=x, y=LABELS)).train.images
    torch.testing.assert_close(images, expected.expand_as(images))


def test_npz_names_groups_and_parts(tmp_path):
    x = np.zeros((4, 2, 2), dtype=np.uint8)
    path = save_npz(
        tmp_path,
        x_train=x,
        y_train=np.array(["b", "a", "b", "a"]),
        slide_train=np.array(["s2", "s1", "s2", "s3"]),
        x_test=x[:2],
        y_test=np.array(["a", "b"]),
        slide_test=np.array(["s1", "s9"]),
    )
    splits = load_data(path)
    assert splits.train.classes == ("a", "b")
    assert splits.train.labels.tolist() == [1, 0, 1, 0]
    assert splits.train.groups.tolist() == [1, 0, 1, 2]
    assert splits.test.groups.tolist() == [0, 3]
    assert splits.val is None


def test_npz_groups_stay_together(tmp_path):
    x = np.zeros((40, 2, 2), dtype=np.uint8)
    splits = load_data(save_npz(tmp_path, x=x, y=LABELS, groups=np.arange(40) // 4))
    assert not set(splits.train.groups.tolist()) & set(splits.test.groups.tolist())
    assert "groups split" in str(splits.provenance)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.zeros((4, 2, 2))}, "has neither x nor x_train; its keys are"),
        ({"x": np.zeros((4, 2, 2))}, "has no 'y'"),
        ({"x": np.zeros((4, 2, 2)), "y": np.zeros(3, int)}, "one per image"),
        ({"x": np.full((4, 2, 2), 7.0), "y": np.zeros(4, int)}, r"in \[0, 1\]"),
        ({"x": np.full((4, 2, 2), 300), "y": np.zeros(4, int)}, r"in 0\.\.255"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(4, int)}, "3 or 4 dimensions"),
        ({"x": np.zeros((4, 2, 2)), "y": np.array([0, 1, 2, -1])}, "image 3 has label -1"),
        (
            {"x": np.zeros((4, 2, 2)), "y": np.array([0, 1, 2, 0]), "classes": ["a", "b"]},
            "image 2 has label 2, but there are 2 classes",
        ),
        (
            {"x": np.zeros((4, 2, 2)), "y": np.array(list("abca")), "classes": ["a", "b"]},
            "label 'c' is not one of the classes",
        ),
        ({"x": np.zeros((4, 2, 2)), "y": np.full(4, 1j)}, "integers or names"),
        ({"x": np.array(list("abcd")).reshape(4, 1, 1), "y": np.zeros(4, int)}, "numbers"),
    ],
)
def test_npz_that_does_not_fit_is_named(tmp_path, arrays, message):
    path = save_npz(tmp_path, **arrays)
    with pytest.raises(ValueError, match=rf"own\.npz: .*{message}"):
        load_data(path)


def test_npz_with_pickled_objects_is_refused(tmp_path):
    path = save_npz(tmp_path, x=np.array([{"a": 1}], dtype=object), y=np.zeros(1))
    with pytest.raises(ValueError, match=r"own\.npz: .*pickle"):
        load_data(path)


@pytest.mark.parametrize("keep", [0.5, 0.01])
def test_truncated_npz_is_named(tmp_path, keep):
    x = RANDOM.integers(0, 256, (40, 9, 9), dtype=np.uint8)
    path = save_npz(tmp_path, x=x, y=LABELS)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(ValueError, match=r"own\.npz"):
        load_data(path)


def test_other_files_and_unknown_names_are_refused(tmp_path):
    (tmp_path / "table.txt").write_text("1,2")
    with pytest.raises(ValueError, match=r"table\.txt: is neither a folder"):
        load_data(tmp_path / "table.txt")
    with pytest.raises(ValueError, match="did you mean 'mnist-rot'"):
        load_data("mnist-rto")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_data("mnist", root=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="folder: requires the path of a folder"):
        load_data("folder")


def test_training_images_are_held_out_where_there_are_no_validation_images(tmp_path):
    fill(tmp_path / "pets" / "train", count=20)
    fill(tmp_path / "pets" / "test", count=5)
    whole = load_data(tmp_path / "pets")
    assert whole.val is None
    splits = load_data(tmp_path / "pets", val=0.2, seed=3)
    assert splits.val.class_counts().tolist() == [4, 4]
    assert splits.train.class_counts().tolist() == [16, 16]
    torch.testing.assert_close(splits.test.images, whole.test.images)
    together = torch.cat([splits.train.images, splits.val.images]).flatten(1).unique(dim=0)
    torch.testing.assert_close(together, whole.train.images.flatten(1).unique(dim=0))
    again, other = (load_data(tmp_path / "pets", val=0.2, seed=seed).val for seed in (3, 4))
    assert torch.equal(again.images, splits.val.images)
    assert not torch.equal(other.images, splits.val.images)
    assert "0.2 of the training images for validation, seed 3" in str(splits.provenance)


def test_groups_of_arrays_are_held_out_together(tmp_path):
    arrays = {"x_train": np.zeros((12, 8, 8), np.uint8), "y_train": np.arange(12) % 2}
    arrays |= {"x_test": arrays["x_train"], "y_test": arrays["y_train"]}
    path = save_npz(tmp_path, groups_train=np.arange(12) // 3, **arrays)
    splits = load_data(path, val=0.25)
    assert len(splits.val) == 3
    assert not set(splits.val.groups.tolist()) & set(splits.train.groups.tolist())


@pytest.mark.parametrize(
    ("parts", "val", "message"),
    [
        (("train", "test"), 0, "val=0: must be a finite number > 0 and < 1"),
        (("train", "test"), 1, "val=1: must be a finite number > 0 and < 1"),
        (
            ("train", "val"),
            0.2,
            "val=0.2: must be unset, because folder pets has its own validation",
        ),
        ((".",), 0.2, "val=0.2: must be unset, because folder pets has no splits"),
        (("train", "test"), 0.01, "would be empty"),
    ],
)
def test_impossible_validation_shares_are_refused(tmp_path, parts, val, message):
    for part in parts:
        fill(tmp_path / "pets" / part, count=4)
    with pytest.raises(ValueError, match=message):
        load_data(tmp_path / "pets", val=val)
