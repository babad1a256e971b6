"""`masks`: folders of images and masks, with everything that can be wrong about them."""

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.data import IGNORED, instance_classes, load_data, resize_masks
from hostile import make_special, png, refused

RANDOM = np.random.default_rng(0)


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


def fill(folder, masks, suffix=".png"):
    """An image whose value is the sum of its mask, modulo 251, for each mask."""
    for number, mask in enumerate(masks):
        value = int(mask.astype(int).sum()) % 251
        image = np.full(mask.shape[:2], value, np.uint8)
        save(folder / "images" / f"{number:02}.png", image)
        save(folder / "masks" / f"{number:02}{suffix}", mask)
    return folder


def class_numbers(count=10, size=(6, 8), most=3):
    masks = RANDOM.integers(0, most, (count, *size)).astype(np.uint8)
    masks[:, 0, :most] = np.arange(most)
    return masks


def paint(masks, colours):
    return np.array(colours, np.uint8)[masks]


def test_masks_belong_to_their_images_and_are_divided(tmp_path):
    masks = class_numbers(20)
    splits = load_data(fill(tmp_path / "cells", masks), seed=1)
    assert [len(part) for part in splits.parts().values()] == [16, 2, 2]
    assert str(splits.provenance) == (
        "folder cells, images and masks; images split 0.8/0.1/0.1, seed 1"
    )
    for part in splits.parts().values():
        assert part.task == "segment"
        assert part.classes == ("0", "1", "2")
        assert part.instances is None
        assert torch.equal(part.labels.long().sum((1, 2)) % 251, part.images[:, 0, 0, 0].long())
    found = {bytes(mask) for mask in splits.merged().labels.numpy()}
    assert found == {bytes(mask) for mask in masks}


def test_folders_with_their_own_parts_and_below(tmp_path):
    fill(tmp_path / "train", class_numbers(4))
    fill(tmp_path / "test", class_numbers(2, most=2))
    save(tmp_path / "test/images/slide/a.jpg", np.zeros((6, 8), np.uint8))
    save(tmp_path / "test/masks/slide/a.tif", np.zeros((6, 8), np.uint8))
    splits = load_data(tmp_path)
    assert [len(part) for part in splits.parts().values()] == [4, 3]
    assert splits.test.classes == splits.train.classes == ("0", "1", "2")


@pytest.mark.parametrize("kind", ["grey", "16-bit", "palette", "rgb", "tiff", "float tiff"])
def test_class_numbers_are_read_from_every_kind_of_file(tmp_path, kind):
    masks = class_numbers(10)
    masks[:, -1, -1] = IGNORED
    for number, mask in enumerate(masks):
        picture = Image.fromarray(mask)
        if kind == "16-bit":
            picture = Image.fromarray(mask.astype(np.uint16))
        elif kind == "palette":
            picture.putpalette(RANDOM.integers(0, 256, 768).tolist())
        elif kind == "rgb":
            picture = picture.convert("RGB")
        elif kind == "float tiff":
            picture = Image.fromarray(mask.astype(np.float32))
        suffix = ".tif" if "tiff" in kind else ".png"
        save(tmp_path / "images" / f"{number}.png", np.full(mask.shape, number, np.uint8))
        (tmp_path / "masks").mkdir(exist_ok=True)
        picture.save(tmp_path / "masks" / f"{number}{suffix}")
    found = load_data(tmp_path).merged()
    assert torch.equal(found.labels, torch.from_numpy(masks)[found.images[:, 0, 0, 0].long()])
    assert found.classes == ("0", "1", "2")


@pytest.mark.parametrize("white", [1, 255, "bits"])
def test_masks_of_two_classes(tmp_path, white):
    masks = class_numbers(10, most=2)
    stored = masks.astype(bool) if white == "bits" else masks * np.uint8(white)
    found = load_data(fill(tmp_path, stored)).merged()
    assert found.classes == ("0", "1")
    assert sorted(map(bytes, found.labels.numpy())) == sorted(map(bytes, masks))


def test_ignored_numbers(tmp_path):
    masks = class_numbers(10, most=4)
    fill(tmp_path, masks)
    found = load_data(tmp_path, ignore=3).merged()
    assert found.classes == ("0", "1", "2")
    assert int((found.labels == IGNORED).sum()) == int((masks == 3).sum())
    counts = np.bincount(masks.ravel()).tolist()
    assert found.class_counts().tolist() == counts[:3]
    refused(lambda: load_data(tmp_path, ignore="border"), "ignore='border'")
    # 255 is then the second class, and what is ignored stays so.
    fill(tmp_path / "white", np.where(masks == 3, 7, 255 * (masks > 0)).astype(np.uint8))
    white = load_data(tmp_path / "white", ignore=[7]).merged()
    assert white.classes == ("0", "1")
    assert white.class_counts().tolist() == [counts[0], counts[1] + counts[2]]


LEGENDS = {
    "legend.csv": "colour,class\n#000000, ground\n#ff0000, cell\n#00ff00, ignore\n#0000ff, cell\n",
    "legend.toml": '"#000000" = "ground"\n"#ff0000" = "cell"\n"0 255 0" = "ignore"\n"#0000ff" = "cell"\n',
}
COLOURS = [(0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 255)]


@pytest.mark.parametrize("legend", ["legend.csv", "legend.toml", "columns", "option", "path"])
def test_colours_with_a_legend(tmp_path, legend):
    masks = class_numbers(10, most=4)
    fill(tmp_path, paint(masks, COLOURS))
    options = {}
    if legend in LEGENDS:
        (tmp_path / legend).write_text(LEGENDS[legend])
    elif legend == "columns":
        names = ("ground", "cell", "ignore", "cell")
        rows = [f"{r},{g},{b},{name}\n" for (r, g, b), name in zip(COLOURS, names)]
        (tmp_path / "legend.csv").write_text("".join(rows))
    elif legend == "option":
        names = ("ground", "cell", "ignore", "cell")
        options["legend"] = {f"#{r:02X}{g:02x}{b:02x}": n for (r, g, b), n in zip(COLOURS, names)}
    else:
        (tmp_path / "other.csv").write_text(LEGENDS["legend.csv"])
        options["legend"] = str(tmp_path / "other.csv")
    found = load_data(tmp_path, **options).merged()
    assert found.classes == ("ground", "cell")
    counts = np.bincount(masks.ravel())
    assert found.class_counts().tolist() == [counts[0], counts[1] + counts[3]]
    assert int((found.labels == IGNORED).sum()) == counts[2]


def test_numbers_with_a_legend(tmp_path):
    masks = class_numbers(10)
    fill(tmp_path, np.array([0, 128, 255], np.uint8)[masks])
    refused(lambda: load_data(tmp_path), "masks/00.png", "128", "legend")
    (tmp_path / "legend.csv").write_text("0,ground\n128,cell\n255,ignore\n")
    found = load_data(tmp_path).merged()
    assert found.classes == ("ground", "cell")
    assert found.class_counts().tolist() == np.bincount(masks.ravel())[:2].tolist()


def test_a_legend_whose_second_class_is_absent_keeps_ignored_pixels(tmp_path):
    fill(tmp_path, np.array([0, 255], np.uint8)[class_numbers(10, most=2)])
    (tmp_path / "legend.csv").write_text("0,ground\n1,cell\n255,ignore\n")
    assert load_data(tmp_path).merged().class_counts()[1] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#000000,a\n#00zz00,b\n", ("line 2", "#00zz00")),
        ("#000000,a\n#000000,b\n", ("line 2", "twice")),
        ("#000000,a\n1,b\n", ("colours and numbers",)),
        ("#000000,\n", ("line 1", "name of a class")),
        ("#000000,ignore\n", ("has no class",)),
        ("1,2,a\n", ("line 1", "3 columns")),
        ("0,0,300,a\n", ("line 1", "0,0,300")),
        ("99999999999999999999999,a\n", ("line 1",)),
        ("\0,a\n", ()),
        ("", ("has no class",)),
    ],
)
def test_legends_that_cannot_be_read(tmp_path, text, words):
    fill(tmp_path, class_numbers())
    (tmp_path / "legend.csv").write_text(text)
    refused(lambda: load_data(tmp_path), "legend.csv", *words)


def test_unfit_legends(tmp_path):
    fill(tmp_path, paint(class_numbers(), COLOURS))
    refused(lambda: load_data(tmp_path), "masks/00.png", "3 colours", "#00ff00", "legend.csv")
    refused(lambda: load_data(tmp_path, masks="colours"), "legend.csv")
    refused(lambda: load_data(tmp_path, masks="coulours"), "masks='coulours'")
    refused(lambda: load_data(tmp_path, legend={"0": "a"}), "masks/00.png", "numbers")
    refused(lambda: load_data(tmp_path, legend={"#000000": 1}), "#000000", "name of a class")
    refused(lambda: load_data(tmp_path, legend=["a"]), "legend=['a']")
    for name, text in LEGENDS.items():
        (tmp_path / name).write_text(text)
    refused(lambda: load_data(tmp_path), "legend.csv", "legend.toml")
    (tmp_path / "legend.csv").unlink()
    (tmp_path / "legend.toml").write_text("[" * 9999)
    refused(lambda: load_data(tmp_path), "legend.toml")


def test_interpolated_masks_are_noticed(tmp_path):
    """By a colour that the legend lacks, or by more values than there are classes."""
    blocks = np.kron(class_numbers(10, (3, 3), 2), np.ones((8, 8), np.uint8)) * 255
    fill(tmp_path / "jpeg", blocks, ".jpg")
    refused(lambda: load_data(tmp_path / "jpeg"), "masks/00.jpg", "JPEG")
    small = [np.array(Image.fromarray(mask).resize((12, 12), 2)) for mask in blocks]
    fill(tmp_path / "scaled", small)
    refused(lambda: load_data(tmp_path / "scaled"), "masks/00.png", "row", "nearest")
    (tmp_path / "scaled" / "legend.csv").write_text("#000000,ground\n#ffffff,cell\n")
    refused(lambda: load_data(tmp_path / "scaled"), "masks/00.png", "row", "nearest", "other")
    fractions = fill(tmp_path / "float", class_numbers(2))
    Image.fromarray(np.full((6, 8), 0.5, np.float32)).save(fractions / "masks" / "02.tif")
    save(fractions / "images" / "02.png", np.zeros((6, 8), np.uint8))
    refused(lambda: load_data(fractions), "masks/02.tif", "integers")


def slow_border(instances, reach=2):
    """Every pair of pixels: in an object, and near a pixel of another object."""
    found = (instances > 0).astype(np.uint8)
    for r, c in np.argwhere(instances):
        for y, x in np.argwhere(instances):
            near = (y - r) ** 2 + (x - c) ** 2 <= reach**2
            if near and instances[y, x] != instances[r, c]:
                found[r, c] = 2
    return found


def test_borders_are_where_objects_meet():
    instances = np.zeros((9, 12), np.int32)
    instances[1:6, 1:5], instances[2:8, 5:9], instances[6:, :3] = 7, 65535, 1
    found = instance_classes(instances)
    np.testing.assert_array_equal(found, slow_border(instances))
    assert set(found.ravel()) == {0, 1, 2}
    for turns in range(4):
        np.testing.assert_array_equal(
            instance_classes(np.rot90(instances, turns)), np.rot90(found, turns)
        )
    alone = np.where(instances == 7, 7, 0)
    np.testing.assert_array_equal(instance_classes(alone), alone > 0)


def object_numbers(count=10):
    masks = np.zeros((count, 16, 12), np.uint16)
    for number, mask in enumerate(masks):
        mask[2:8, 2:6], mask[2:8, 6:10], mask[12:, :3] = 300 + number, 2, 40_000
    return masks


def test_instances_give_classes_and_keep_their_numbers(tmp_path):
    masks = object_numbers()
    masks[:, 0, 0] = 65535
    found = load_data(fill(tmp_path, masks), masks="instances", ignore=65535).merged()
    assert found.classes == ("background", "object", "border")
    order = [int(numbers.numpy()[3, 3]) - 300 for numbers in found.instances]
    assert sorted(order) == list(range(10))
    objects = np.where(masks == 65535, 0, masks)[order]
    np.testing.assert_array_equal(found.instances, objects.astype(np.int32))
    for label, numbers in zip(found.labels.numpy(), objects.astype(np.int32)):
        expected = instance_classes(numbers)
        expected[0, 0] = IGNORED
        np.testing.assert_array_equal(label, expected)


def test_instances_are_not_guessed(tmp_path):
    fill(tmp_path, np.arange(10 * 192, dtype=np.uint16).reshape(10, 16, 12))
    refused(lambda: load_data(tmp_path), "masks/00.png", "masks=instances")
    (tmp_path / "legend.csv").write_text("0,a\n1,b\n")
    refused(lambda: load_data(tmp_path, masks="instances"), "legend")


def test_images_of_other_sizes_are_padded(tmp_path):
    sizes = [(6, 8)] * 9 + [(9, 5)]
    masks = [class_numbers(1, size)[0] for size in sizes]
    fill(tmp_path, masks)
    splits = load_data(tmp_path)
    whole = splits.merged()
    assert whole.image_size == (9, 8)
    assert splits.provenance.fitted.startswith("8 x 6 pixels and others: padded to 8 x 9")
    labelled = (whole.labels != IGNORED).sum((1, 2)).tolist()
    assert sorted(labelled) == [45] + [48] * 9
    # Each image is of one grey value, which reflection leaves alone.
    assert torch.equal(whole.images.amin((1, 2, 3)), whole.images.amax((1, 2, 3)))
    for mask in masks[:9]:
        assert any(np.array_equal(label[1:7], mask) for label in whole.labels.numpy())


@pytest.mark.parametrize("resize", ["crop", "fit", "stretch"])
def test_masks_are_resized_with_their_images(tmp_path, resize):
    blocks = np.kron(class_numbers(10, (4, 6)), np.ones((8, 8), np.uint8))
    for number, mask in enumerate(blocks):
        save(tmp_path / "images" / f"{number}.png", (mask + 1) * np.uint8(60))
        save(tmp_path / "masks" / f"{number}.png", mask)
    found = load_data(tmp_path, image_size=16, resize=resize).merged()
    assert found.image_size == (16, 16)
    assert found.classes == ("0", "1", "2")
    outside = found.labels == IGNORED
    assert bool(outside.any()) == (resize == "fit")
    grey = found.images[:, 0]
    assert bool((grey[outside] == 0).all())
    # Away from edges of the blocks the grey value is that of the class.
    right = (grey.int() - (found.labels.int() + 1) * 60).abs() < 30
    assert right[~outside].float().mean() > 0.8


def test_resized_masks_have_no_new_numbers_and_keep_quarter_turns():
    masks = torch.randint(0, 60_000, (3, 20, 20), dtype=torch.int32)
    for size in (8, 13, 40):
        resized = resize_masks(masks, size)
        assert set(resized.unique().tolist()) <= set(masks.unique().tolist())
    halved = resize_masks(masks[:, ::2, ::2].repeat_interleave(3, 1).repeat_interleave(3, 2), 10)
    assert torch.equal(halved, masks[:, ::2, ::2])


def test_missing_and_superfluous_files_are_named(tmp_path):
    fill(tmp_path, class_numbers())
    (tmp_path / "masks" / "03.png").rename(tmp_path / "masks" / "33.png")
    refused(lambda: load_data(tmp_path), "images/03.png", "masks/03")
    (tmp_path / "images" / "03.png").unlink()
    refused(lambda: load_data(tmp_path), "masks/33.png", "without an image")
    (tmp_path / "masks" / "33.png").unlink()
    save(tmp_path / "images" / "04.jpg", np.zeros((6, 8), np.uint8))
    refused(lambda: load_data(tmp_path), "images/04.png", "04.jpg")
    (tmp_path / "images" / "04.jpg").unlink()
    save(tmp_path / "masks" / "04.png", np.zeros((8, 6), np.uint8))
    refused(lambda: load_data(tmp_path), "masks/04.png", "6x8", "images/04.png", "8x6")
    for path in (tmp_path / "masks").iterdir():
        path.unlink()
    refused(lambda: load_data(tmp_path), "masks", "no images")
    fill(tmp_path / "parts" / "train", class_numbers())
    (tmp_path / "parts" / "test").mkdir()
    refused(lambda: load_data(tmp_path / "parts"), "test", "'images'")


def test_files_that_cannot_be_read_are_an_error_or_left_out(tmp_path):
    fill(tmp_path, class_numbers(12))
    (tmp_path / "masks" / "03.png").write_bytes(b"no image")
    (tmp_path / "images" / "05.png").write_bytes(b"no image")
    refused(lambda: load_data(tmp_path), "masks/03.png", "2 of 12", "on_error=skip")
    with pytest.warns(UserWarning, match="skipped") as caught:
        assert len(load_data(tmp_path, on_error="skip").merged()) == 10
    assert caught[0].filename == __file__


@pytest.mark.parametrize("where", ["images", "masks"])
def test_hostile_files(tmp_path, where):
    fill(tmp_path, class_numbers())
    path = tmp_path / where / "00.png"
    path.write_bytes(png(10_000, 10_000))
    refused(lambda: load_data(tmp_path), f"{where}/00.png", "max_pixels")
    path.unlink()
    make_special(path, "FIFO")
    refused(lambda: load_data(tmp_path), f"{where}/00.png", "FIFO")
    path.unlink()
    Image.new("L", (8, 6)).save(path, "GIF")
    refused(lambda: load_data(tmp_path), f"{where}/00.png", "GIF")


def test_folders_that_unpack_to_gigabytes_are_refused(tmp_path):
    for number in range(30):
        for kind in ("images", "masks"):
            (tmp_path / kind).mkdir(exist_ok=True)
            (tmp_path / kind / f"{number}.png").write_bytes(png(7_000, 7_000))
    refused(lambda: load_data(tmp_path), "images", "7000x7000", "image_size")


def test_masks_of_one_class_are_refused(tmp_path):
    fill(tmp_path, class_numbers(most=1))
    refused(lambda: load_data(tmp_path), "masks/00.png", "one class")


def test_a_hostile_legend(tmp_path):
    fill(tmp_path, class_numbers())
    make_special(tmp_path / "legend.csv", "FIFO")
    refused(lambda: load_data(tmp_path), "legend.csv", "FIFO")


def test_images_without_a_folder_of_masks_are_told_what_is_missing(tmp_path):
    save(tmp_path / "cells/images/a.png", np.zeros((6, 8), np.uint8))
    with pytest.raises(ValueError, match="no folder masks"):
        load_data(tmp_path / "cells")
