"""Image files in, masks out."""

import csv
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from besselnet.masks import (
    IGNORED,
    _files,
    class_colour,
    label_instances,
    mask_columns,
    output_names,
    overlay_mask,
    predict_files,
)
from besselnet.masks._png import png_file

PROGRAM = Path(__file__).with_name("memory_program.py")
CLASSES = ("background", "cell", "border")


def brightness(image):
    """A network of one pixel: dark, middle and bright grey are the three classes."""
    centres = np.array([0.0, 0.5, 1.0], np.float32)[:, None, None]
    near = np.exp(-50 * (image - centres) ** 2)
    return near / near.sum(0)


def picture(size=(40, 50), objects=((5, 5), (20, 30))):
    pixels = np.zeros(size, np.uint8)
    for row, column in objects:
        pixels[row : row + 10, column : column + 12] = 128
    return pixels


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "new"
    (place / "deep").mkdir(parents=True)
    Image.fromarray(picture()).save(place / "a.png")
    Image.fromarray(picture((300, 700), ((100, 250), (100, 505)))).save(place / "deep" / "b.tif")
    (place / "broken.png").write_bytes(b"nonsense")
    return place


def write(folder, out, **options):
    return list(predict_files(brightness, [folder], out, classes=CLASSES, channels=1, **options))


def read(path):
    with Image.open(path) as image:
        return np.asarray(image)


def test_masks_and_rows(folder, tmp_path):
    rows = write(folder, tmp_path / "out", tile=256, margin=32)
    assert [list(row) for row in rows] == [mask_columns(CLASSES)] * 3
    first, broken, second = rows
    assert broken["mask"] is None
    assert "broken.png" in broken["error"]
    for row, source in ((first, "a.png"), (second, "deep/b.tif")):
        assert row["error"] is None
        mask = read(row["mask"])
        expected = (read(folder / source) == 128).astype(np.uint8)
        np.testing.assert_array_equal(mask, expected)
        assert row["share_cell"] == pytest.approx(expected.mean())
        assert sum(row[f"share_{name}"] for name in CLASSES) == pytest.approx(1)
    assert second["mask"] == str(tmp_path / "out" / "masks" / "deep" / "b.png")
    assert not list((tmp_path / "out").rglob("*.partial"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["masks"]


def test_overlays_and_probabilities_of_tiles_are_those_of_one_piece(folder, tmp_path):
    for out, tile in (("tiles", 256), ("whole", 1024)):
        write(folder, tmp_path / out, tile=tile, margin=32, overlays=True, probabilities=True)
    for kind, name in (("overlays", "b.png"), ("masks", "b.png"), ("probabilities", "b.1.png")):
        tiles, whole = (read(tmp_path / out / kind / "deep" / name) for out in ("tiles", "whole"))
        np.testing.assert_array_equal(tiles, whole)
    likely = read(tmp_path / "whole" / "probabilities" / "a.1.png")
    assert likely.max() == 65535
    image = unit = read(folder / "a.png")[None] / np.float32(255)
    np.testing.assert_allclose(likely / 65535, brightness(image)[1], atol=1e-5)
    shown = read(tmp_path / "whole" / "overlays" / "a.png")
    np.testing.assert_array_equal(
        shown, overlay_mask(unit, read(tmp_path / "whole" / "masks" / "a.png"))
    )


def test_overlays_drawn_in_strips_are_those_of_one_piece(folder, tmp_path, monkeypatch):
    # Strips of seven rows, and of less where a tile ends.
    monkeypatch.setattr(_files, "_STRIP", 7 * 700)
    write(folder, tmp_path / "out", tile=256, margin=32, overlays=True)
    for name, source in (("a.png", "a.png"), ("deep/b.png", "deep/b.tif")):
        mask = read(tmp_path / "out" / "masks" / name)
        expected = overlay_mask(read(folder / source)[None], mask)
        np.testing.assert_array_equal(read(tmp_path / "out" / "overlays" / name), expected)


def test_objects_are_numbered_and_measured(folder, tmp_path):
    out = tmp_path / "out"
    rows = write(folder, out, tile=256, margin=32, instances="components")
    assert [row["objects"] for row in rows] == [2, None, 2]
    numbers = read(out / "instances" / "deep" / "b.png")
    np.testing.assert_array_equal(numbers, label_instances(read(out / "masks/deep/b.png")))
    with (out / "measures.csv").open() as file:
        measures = list(csv.DictReader(file))
    assert len(measures) == 4
    assert [row["image"] for row in measures] == [str(folder / "a.png")] * 2 + [
        str(folder / "deep" / "b.tif")
    ] * 2
    assert {(row["class"], row["area"]) for row in measures} == {("cell", "120")}
    assert all(float(row["probability"]) > 0.99 for row in measures)
    assert measures[3]["left"] == "505"


def test_what_is_not_finished_does_not_appear(folder, tmp_path):
    calls = []

    def fails(image):
        calls.append(image)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return brightness(image)

    out = tmp_path / "out"
    rows = predict_files(
        fails,
        [folder],
        out,
        classes=CLASSES,
        channels=1,
        tile=256,
        margin=32,
        instances="components",
    )
    with pytest.raises(KeyboardInterrupt):
        list(rows)
    assert [path for path in out.rglob("*") if path.is_file() and path.name != "a.png"] == []


def test_a_network_that_refuses_an_image_gives_a_row(folder, tmp_path):
    def picky(image):
        if image.shape[1] < 100:
            raise ValueError("the image is too small")
        return brightness(image)

    rows = list(
        predict_files(picky, [folder], tmp_path / "out", classes=CLASSES, channels=1, tile=1024)
    )
    assert [row["error"] for row in rows][::2] == ["the image is too small", None]
    assert not (tmp_path / "out" / "masks" / "a.png").exists()


def test_how_far_the_network_sees_is_measured_for_large_images_alone(folder, tmp_path):
    def corner(image):
        share = np.full_like(image[0], image[0, 0, 0])
        return np.stack([share, 1 - share, 0 * share])

    how = {"classes": CLASSES, "channels": 1, "tile": 256}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(predict_files(corner, [folder / "a.png"], tmp_path / "out", **how))
        write(folder, tmp_path / "out", tile=256)
    with pytest.warns(UserWarning, match="larger than 64 pixels"):
        list(predict_files(corner, [folder / "deep"], tmp_path / "out", **how))


def test_two_files_of_one_name_are_refused(folder):
    with pytest.raises(ValueError, match=r"would both be written as a\.png"):
        output_names([folder, folder / "a.png"])


def test_deep_grey_images_are_read_as_in_the_training(tmp_path):
    Image.fromarray(picture().astype(np.uint16) * 16).save(tmp_path / "a.png")
    (row,) = predict_files(
        brightness,
        [tmp_path / "a.png"],
        tmp_path / "out",
        classes=CLASSES,
        channels=1,
        reading={"bits": 12},
        overlays=True,
    )
    assert row["share_cell"] == pytest.approx(240 / 2000)
    assert read(tmp_path / "out" / "overlays" / "a.png").max() > 100


@pytest.mark.parametrize(("channels", "bits"), [(1, 8), (3, 8), (1, 16)])
def test_png_files_of_rows_are_read_back(tmp_path, channels, bits):
    shape = (37, 23) if channels == 1 else (37, 23, 3)
    kind = np.uint8 if bits == 8 else np.uint16
    pixels = np.random.default_rng(0).integers(0, 2**bits, shape).astype(kind)
    with png_file(tmp_path / "a.png", 37, 23, channels=channels, bits=bits) as png:
        for part in np.array_split(pixels, 5):
            png.write(part)
    np.testing.assert_array_equal(read(tmp_path / "a.png"), pixels)
    with pytest.raises(ValueError, match="rows are missing"), png_file(tmp_path / "b.png", 9, 9):
        pass
    assert not (tmp_path / "b.png").exists()


def test_overlays_tint_classes_and_leave_the_rest():
    image = np.full((1, 8, 8), 100, np.uint8)
    mask = np.zeros((8, 8), np.uint8)
    mask[2:6, 2:6], mask[7] = 1, IGNORED
    shown = overlay_mask(image, mask)
    assert (shown[mask != 1] == 100).all()
    assert tuple(shown[2, 2]) == class_colour(1)
    assert tuple(shown[5, 5]) == class_colour(1)
    expected = np.rint(100 + 0.4 * (np.array(class_colour(1)) - 100.0))
    assert (shown[3:5, 3:5] == expected).all()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_image():
    """Colour images of 12 and 48 MB; the probabilities of the larger one would take 192 MB."""
    peaks = []
    for side in (2000, 4000):
        program = [sys.executable, PROGRAM, str(side)]
        done = subprocess.run(program, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 48e6
