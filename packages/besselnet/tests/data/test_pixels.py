"""Reading images without torch gives what the data room gives."""

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet._pixels import list_images, read_image
from besselnet.data import decode_image, image_files, iter_images, reading_options
from besselnet.train import Classify, DataConfig, Run, RunConfig, predict

CHANCE = np.random.default_rng(0)


def picture(mode: str, height: int = 21, width: int = 16) -> Image.Image:
    bands = {"RGB": 3, "RGBA": 4, "LA": 2, "CMYK": 4, "HSV": 3, "YCbCr": 3}.get(mode)
    if mode == "I;16":
        return Image.fromarray(CHANCE.integers(0, 65536, (height, width)).astype(np.uint16))
    if mode == "F":
        return Image.fromarray(CHANCE.random((height, width), dtype=np.float32))
    if mode in ("1", "P"):
        return picture("RGB", height, width).convert(mode)
    shape = (height, width) if bands is None else (height, width, bands)
    values = CHANCE.integers(0, 256, shape).astype(np.uint8)
    # A part of the picture is smooth: noise alone would hide a shift.
    ramp = (np.linspace(2, 15, width) ** 2).astype(np.uint8)
    values[: height // 2] = ramp.reshape(width, *[1] * (len(shape) - 2))
    return Image.frombytes(mode, (width, height), values.tobytes())


KINDS = {
    "grey.png": "L",
    "grey-alpha.png": "LA",
    "colour.png": "RGB",
    "transparent.png": "RGBA",
    "palette.png": "P",
    "bits.png": "1",
    "deep.png": "I;16",
    "float.tif": "F",
    "print.tif": "CMYK",
    "photo.jpg": "RGB",
    "web.webp": "RGB",
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("how", ["fit", "crop", "stretch"])
@pytest.mark.parametrize("size", [9, 16, 30])
def test_every_kind_of_file(name, how, size, tmp_path):
    path = tmp_path / name
    picture(KINDS[name]).save(path)
    for channels in (1, 3):
        ((_, expected),) = iter_images([path], image_size=size, channels=channels, resize=how)
        whole = expected.dtype.is_floating_point is False
        expected = expected.float().numpy() / (255 if whole else 1)
        # Half a grey value may be rounded up by one and down by the other.
        tolerance = 1.01 / 255 if whole else 1e-5
        found = read_image(path, channels=channels, image_size=size, resize=how)
        assert found.shape == (channels, size, size)
        assert np.abs(found - expected).max() <= tolerance
        assert np.mean(np.abs(found - expected) > 1e-5) < 0.01


def test_orientation_of_a_camera(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture("RGB").save(tmp_path / "turned.png", exif=exif)
    expected = decode_image(tmp_path / "turned.png").numpy()
    assert expected.shape == (3, 16, 21)
    found = read_image(tmp_path / "turned.png", channels=3, image_size=21, resize="fit")
    assert np.allclose(found[:, 2:18], expected / 255)


def test_bits_and_pages_are_those_of_the_data_room(tmp_path):
    first, second = (
        Image.fromarray(CHANCE.integers(0, 4096, (9, 9)).astype(np.uint16)) for _ in "ab"
    )
    path = tmp_path / "stack.tif"
    first.save(path, save_all=True, append_images=[second])
    options = reading_options({"bits": 12, "page": 1, "resize": "crop", "on_error": "skip"})
    assert options == {"bits": 12, "page": 1, "resize": "crop"}
    found = read_image(path, channels=1, image_size=9, **options)
    ((_, expected),) = iter_images([path], image_size=9, channels=1, **options)
    assert np.array_equal(found, expected.numpy())
    np.testing.assert_allclose(found[0], np.asarray(second) / 4095, rtol=1e-6)


class Brightness(torch.nn.Linear):
    """Logits of the mean of an image, so that the answers tell how it was read."""

    def __init__(self):
        super().__init__(1, 2)
        self.seen = []

    def __deepcopy__(self, memo):
        # A copy would see the images in its place.
        return self

    def forward(self, images):
        self.seen.append(images)
        return super().forward(images.mean((1, 2, 3))[:, None])


def test_prediction_reads_files_as_the_training_did(tmp_path):
    values = np.full((6, 6), 2048, dtype=np.uint16)
    path = tmp_path / "camera.tif"
    Image.fromarray(values * 0).save(path, save_all=True, append_images=[Image.fromarray(values)])
    config = RunConfig(DataConfig(options={"bits": 12, "page": 1, "on_error": "skip"}))
    classes = ("a", "b")
    run = Run(tmp_path, config, Brightness(), 1, 6, classes, Classify(classes))
    (answer,) = predict(run, [path])
    assert answer.error is None
    (images,) = run.model.seen
    torch.testing.assert_close(images, torch.full((1, 1, 6, 6), 2048 / 4095))


def damaged(folder):
    (folder / "nonsense.png").write_bytes(b"nonsense")
    picture("RGB").save(folder / "cut.png")
    (folder / "cut.png").write_bytes((folder / "cut.png").read_bytes()[:200])
    Image.fromarray(np.full((4, 4), 3.0, np.float32)).save(folder / "bright.tif")
    pages = [picture("L"), picture("L")]
    pages[0].save(folder / "pages.tif", save_all=True, append_images=pages[1:])
    return sorted(folder.iterdir())


def test_files_that_cannot_be_read_say_the_same(tmp_path):
    for path in damaged(tmp_path):
        ((_, expected),) = iter_images([path], image_size=8, channels=1)
        assert isinstance(expected, ValueError)
        with pytest.raises(ValueError) as found:
            read_image(path, channels=1, image_size=8)
        assert str(found.value) == str(expected)


def test_files_of_a_folder(tmp_path):
    for name in (
        "b/2.png",
        "b/10.JPG",
        "a.tif",
        ".hidden/3.png",
        "b/.4.png",
        "notes.txt",
        "c.png/x.webp",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert list(list_images([tmp_path])) == image_files(tmp_path)
    single = tmp_path / "notes.txt"
    assert list(list_images([single, tmp_path / "b"])) == [single, *image_files(tmp_path / "b")]
