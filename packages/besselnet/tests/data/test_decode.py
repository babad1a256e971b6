"""Image files of every kind, good and bad."""

import struct
import weakref
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.data import decode_image, image_files, iter_images, resize_images

RAMP = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
COLOUR = np.stack([RAMP, RAMP[::-1], RAMP[:, ::-1]], axis=-1)


def saved(folder, image, name="image.png", **options):
    path = folder / name
    image.save(path, **options)
    return path


@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
@pytest.mark.parametrize("array", [RAMP, COLOUR], ids=["grey", "rgb"])
def test_lossless_formats_give_the_pixels(tmp_path, suffix, array):
    options = {"lossless": True} if suffix == "webp" else {}
    path = saved(tmp_path, Image.fromarray(array), f"image.{suffix}", **options)
    expected = array if array.ndim == 3 else array[..., None]
    if suffix == "webp" and array.ndim == 2:
        expected = expected.repeat(3, axis=-1)  # WebP has no grey images
    pixels = decode_image(path)
    assert pixels.dtype == torch.uint8
    np.testing.assert_array_equal(pixels.permute(1, 2, 0).numpy(), expected)


def test_jpeg(tmp_path):
    smooth = np.full((16, 16, 3), (200, 100, 50), dtype=np.uint8)
    pixels = decode_image(saved(tmp_path, Image.fromarray(smooth), "image.jpeg", quality=95))
    # One flat colour survives JPEG up to the rounding of YCbCr.
    assert (pixels.float().mean((1, 2)) - torch.tensor([200.0, 100, 50])).abs().max() <= 2


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bit_grey_becomes_float(tmp_path, suffix):
    deep = np.array([[0, 1, 65535], [256, 40000, 32768]], dtype=np.uint16)
    pixels = decode_image(saved(tmp_path, Image.fromarray(deep), f"deep.{suffix}"))
    assert pixels.dtype == torch.float32
    np.testing.assert_allclose(pixels[0].numpy(), deep / 65535, rtol=1e-6)


def test_16_bit_rgb_keeps_the_upper_byte(tmp_path):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    deep = np.array([[[0x12FF, 0xAB00, 0x0180], [0xFFFF, 0, 0x80FF]]], dtype=">u2")
    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    body = zlib.compress(b"\0" + deep.tobytes())
    path = tmp_path / "deep.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )
    pixels = decode_image(path)
    assert pixels.dtype == torch.uint8
    np.testing.assert_array_equal(pixels.permute(1, 2, 0).numpy(), deep >> 8)


def test_float_tiff_in_range_and_out_of_it(tmp_path):
    values = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    pixels = decode_image(saved(tmp_path, Image.fromarray(values), "a.tif"))
    np.testing.assert_array_equal(pixels[0].numpy(), values)
    path = saved(tmp_path, Image.fromarray(values * 300), "b.tif")
    with pytest.raises(ValueError, match=r"b\.tif: float pixels must be in \[0, 1\]"):
        decode_image(path)


def test_palette_becomes_rgb(tmp_path):
    flat = np.zeros((4, 4, 3), dtype=np.uint8)
    flat[:2] = (255, 0, 0)
    flat[2:] = (0, 0, 255)
    path = saved(tmp_path, Image.fromarray(flat).convert("P", palette=Image.Palette.ADAPTIVE))
    with Image.open(path) as stored:
        assert stored.mode == "P"
    np.testing.assert_array_equal(decode_image(path).permute(1, 2, 0).numpy(), flat)


def test_transparency_is_laid_on_black(tmp_path):
    layers = np.full((1, 3, 4), 200, dtype=np.uint8)
    layers[0, :, 3] = (0, 128, 255)
    pixels = decode_image(saved(tmp_path, Image.fromarray(layers)))
    assert pixels[:, 0].tolist() == [[0, 100, 200]] * 3
    grey = Image.fromarray(layers[..., [0, 3]])
    assert decode_image(saved(tmp_path, grey, "la.png"))[:, 0].tolist() == [[0, 100, 200]]


def test_cmyk_becomes_rgb(tmp_path):
    image = Image.new("CMYK", (2, 2), (0, 255, 255, 0))
    assert decode_image(saved(tmp_path, image, "ink.tif"))[:, 0, 0].tolist() == [255, 0, 0]


def test_black_and_white(tmp_path):
    path = saved(tmp_path, Image.fromarray(RAMP > 100))
    assert set(decode_image(path).unique().tolist()) == {0, 255}


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to display
    path = saved(tmp_path, Image.fromarray(RAMP), exif=exif)
    np.testing.assert_array_equal(decode_image(path)[0].numpy(), np.rot90(RAMP, -1))


def test_channels_can_be_asked_for(tmp_path):
    grey = decode_image(saved(tmp_path, Image.fromarray(RAMP)), channels=3)
    assert grey.shape == (3, 6, 8)
    assert torch.equal(grey[0], grey[2])
    path = saved(tmp_path, Image.fromarray(COLOUR), "c.png")
    luma = decode_image(path, channels=1)
    expected = np.asarray(Image.fromarray(COLOUR).convert("L"))
    # Pillow computes the same weights in fixed point: one grey level.
    assert np.abs(luma[0].numpy().astype(int) - expected).max() <= 1


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "webp"])
def test_truncated_files_are_named(tmp_path, suffix):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = saved(tmp_path, Image.fromarray(noise), f"cut.{suffix}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=rf"cut\.{suffix}") as error:
        decode_image(path)
    assert "\n" not in str(error.value)


def test_several_pages_are_refused(tmp_path):
    page = Image.fromarray(RAMP)
    path = saved(tmp_path, page, "pages.tif", save_all=True, append_images=[page, page])
    with pytest.raises(ValueError, match=r"pages\.tif: has 3 pages or frames: .*page=0"):
        decode_image(path)


def test_the_bits_of_a_file_can_be_given(tmp_path):
    deep = np.array([[0, 1, 4095]], dtype=np.uint16)
    path = saved(tmp_path, Image.fromarray(deep))
    np.testing.assert_allclose(decode_image(path, bits=12)[0].numpy(), deep / 4095, rtol=1e-6)
    flat = decode_image(saved(tmp_path, Image.fromarray(RAMP), "flat.png"), bits=12)
    assert flat.dtype == torch.uint8
    np.testing.assert_array_equal(flat[0].numpy(), RAMP)
    assert decode_image(path, bits=12, channels=3).shape == (3, 1, 3)


def test_a_lab_image_is_refused(tmp_path):
    path = saved(tmp_path, Image.new("LAB", (4, 4)), "lab.tif")
    with pytest.raises(ValueError, match="'LAB' is not supported"):
        decode_image(path)


def test_streaming_goes_on_past_bad_files(tmp_path):
    good = [saved(tmp_path, Image.fromarray(COLOUR), f"{i}.png") for i in (1, 3)]
    bad = tmp_path / "2.png"
    bad.write_text("no image")
    gone = tmp_path / "gone.png"
    found = list(iter_images([good[0], bad, gone, good[1]], image_size=4, channels=3))
    assert [path for path, _ in found] == [good[0], bad, gone, good[1]]
    assert found[0][1].shape == (3, 4, 4)
    assert isinstance(found[1][1], ValueError)
    assert isinstance(found[2][1], FileNotFoundError)
    assert torch.equal(found[0][1], found[3][1])


def test_streaming_lets_go_of_what_it_gave(tmp_path):
    path = saved(tmp_path, Image.fromarray(COLOUR))
    given = []
    for _, image in iter_images(path for _ in range(20)):
        given.append(weakref.ref(image))
        # The loop variable still holds the newest image.
        assert sum(reference() is not None for reference in given) == 1


def test_folders_in_the_stream_stand_for_their_files(tmp_path):
    (tmp_path / "deeper").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("b.png", "deeper/a.JPG", ".hidden/c.png"):
        saved(tmp_path, Image.fromarray(COLOUR), name)
    (tmp_path / "notes.txt").write_text("")
    expected = [tmp_path / "b.png", tmp_path / "deeper" / "a.JPG"]
    assert image_files(tmp_path) == expected
    assert [path for path, _ in iter_images([tmp_path])] == expected


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_fit_loses_nothing_and_pads_with_zeros(dtype):
    top = 255 if dtype == torch.uint8 else 1
    wide = torch.full((1, 1, 10, 20), top, dtype=dtype)
    fitted = resize_images(wide, 8, "fit")
    assert fitted.dtype == dtype
    # The weights of the filter sum to one up to rounding.
    torch.testing.assert_close(fitted[0, 0, 2:6], torch.full_like(fitted[0, 0, 2:6], top))
    assert (fitted[0, 0, :2] == 0).all()
    assert (fitted[0, 0, 6:] == 0).all()
    for how in ("crop", "stretch"):
        torch.testing.assert_close(
            resize_images(wide, 8, how), torch.full((1, 1, 8, 8), top, dtype=dtype)
        )


def test_shrinking_filters_what_the_smaller_size_cannot_show():
    board = torch.zeros(1, 1, 64, 64)
    board[..., ::2, ::2] = board[..., 1::2, 1::2] = 1
    inner = resize_images(board, 16)[..., 2:-2, 2:-2]
    torch.testing.assert_close(inner, torch.full_like(inner, 0.5), atol=0.02, rtol=0)


@pytest.mark.parametrize(("size", "how"), [(0, "fit"), (8, "squash")])
def test_unknown_resizing_is_refused(size, how):
    with pytest.raises(ValueError, match="must be"):
        resize_images(torch.zeros(1, 1, 4, 4), size, how)
