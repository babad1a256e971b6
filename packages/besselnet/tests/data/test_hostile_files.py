"""Image files, archives and HDF5 files that are not what they claim: one line each, and no memory."""

import gzip
import struct
import threading
import zipfile

import h5py
import numpy as np
import PIL.Image
import pytest
from PIL import Image

from besselnet.data import decode_image, iter_images, load_data
from hostile import MOST_MEMORY, make_special, peak_memory, png, refused

GREY = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize("found", ["GIF", "BMP", "EPS"])
def test_other_formats_are_refused_whatever_their_name(tmp_path, found):
    path = tmp_path / "a.png"
    if found == "EPS":
        path.write_bytes(EPS)
    else:
        GREY.save(path, found)
    refused(lambda: decode_image(path), "a.png", found, "PNG")
    refused(lambda: decode_image(path.read_bytes(), name="set.zip/a.png"), "set.zip/a.png", found)


def test_documented_formats_are_read_whatever_their_name(tmp_path):
    for found in ("PNG", "TIFF", "JPEG", "MPO", "WEBP"):
        path = tmp_path / f"{found}.png"
        GREY.convert("RGB").save(path, found)
        assert decode_image(path).shape == (3, 8, 8)


@pytest.mark.parametrize("side", [7072, 10_000, 14_000, 65_535])
def test_a_large_image_is_refused_before_it_is_decoded(tmp_path, side):
    """Below, between and above Pillow's own two limits."""
    path = tmp_path / "large.png"
    path.write_bytes(png(side, side))
    refused(lambda: decode_image(path), "large.png", "max_pixels", f"{side}x{side}")


def test_a_large_image_is_read_without_a_warning_where_it_may_be(tmp_path):
    """Pillow warns of these."""
    (tmp_path / "large.png").write_bytes(png(10_000, 9_500, 9_500))
    assert decode_image(tmp_path / "large.png", max_pixels=10**8).shape == (1, 9_500, 10_000)


def test_the_limit_on_pixels_is_a_setting(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(10):
            GREY.save(tmp_path / "images" / name / f"{number}.png")
    assert len(load_data(tmp_path / "images", max_pixels=64).train) == 16
    refused(lambda: load_data(tmp_path / "images", max_pixels=63), "0.png", "max_pixels=63")
    refused(lambda: load_data(tmp_path / "images", max_pixels=0), "max_pixels=0")


def test_pillow_has_its_own_limit_again_also_with_threads(tmp_path):
    path = tmp_path / "a.png"
    GREY.save(path)
    before = PIL.Image.MAX_IMAGE_PIXELS
    threads = [threading.Thread(target=decode_image, args=(path,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert before is not None
    assert before == PIL.Image.MAX_IMAGE_PIXELS


def test_slivers_are_refused_where_resizing_makes_them_huge(tmp_path):
    Image.new("L", (60_000, 1)).save(tmp_path / "sliver.png")
    (tmp_path / "long.png").write_bytes(png(10**6, 1))
    found = dict(iter_images([tmp_path], image_size=64, resize="crop"))
    for path, error in found.items():
        assert path.name in str(error)
    sizes = [
        image.shape
        for _, image in iter_images([tmp_path / "sliver.png"], image_size=64, resize="fit")
    ]
    assert sizes == [(1, 64, 64)]
    refused(lambda: decode_image(tmp_path / "long.png"), "long.png", "65535")


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_what_is_no_file_is_an_error_and_the_work_goes_on(tmp_path, kind):
    make_special(tmp_path / "a.png", kind)
    GREY.save(tmp_path / "b.png")
    (_, error), (_, image) = iter_images([tmp_path])
    assert kind in str(error)
    assert image.shape == (1, 8, 8)
    for name, file in {
        "npz": "own.npz",
        "mnist": "mnist.npz",
        "mnist-rot": "mnist_rotation_new.zip",
        "galaxy10": "Galaxy10_DECals.h5",
        "malaria": "cell_images.zip",
        "radio-galaxies": "galaxy_data_h5.h5",
    }.items():
        path = make_special(tmp_path / file, kind)
        source = (path,) if name == "npz" else (name,)
        options = {} if name == "npz" else {"root": tmp_path}
        refused(lambda s=source, o=options: load_data(*s, **o), file, kind)


def test_a_large_image_in_an_archive_is_named(tmp_path):
    path = tmp_path / "cell_images.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cell_images/Parasitized/C1P1_a.png", png(10**4, 10**4))
    refused(
        lambda: load_data("malaria", root=tmp_path), "cell_images.zip", "C1P1_a.png", "max_pixels"
    )


def claim(path, name, size):
    """Let the directory of a zip file claim that the member `name` unpacks to `size` bytes."""
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\x01\x02")
    while data[start + 46 :][: len(name)] != name.encode():
        start = data.index(b"PK\x01\x02", start + 1)
    data[start + 24 : start + 28] = struct.pack("<I", size)
    path.write_bytes(data)


def test_members_that_claim_gigabytes_are_refused(tmp_path):
    path = tmp_path / "cell_images.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cell_images/Parasitized/C1P1_a.png", png(8, 8))
    claim(path, "cell_images/Parasitized/C1P1_a.png", 4_000_000_000)
    refused(lambda: load_data("malaria", root=tmp_path), path.name, "C1P1_a.png", "4,000,000,000")

    path = tmp_path / "own.npz"
    np.savez_compressed(path, x=np.zeros((4, 2, 2), np.uint8), y=np.arange(4) % 2)
    claim(path, "x.npy", 4_000_000_000)
    refused(lambda: load_data(path), "own.npz", "max_bytes")


def npy_header(shape, kind="|u1"):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text = text.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize("shape", [(10**9, 7), (2**62, 2**62), (0, -5), (3,)])
def test_arrays_that_claim_what_is_not_there_are_refused(tmp_path, shape):
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy_header(shape) + bytes(16))
        archive.writestr("y.npy", npy_header((4,)) + bytes(4))
    refused(lambda: load_data(path), "own.npz", "x.npy")


def test_pixels_that_changed_in_an_archive_are_noticed(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, x=np.full((10, 8, 8), 77, np.uint8), y=np.arange(10) % 2)
    path.write_bytes(path.read_bytes().replace(bytes([77] * 640), bytes([77] * 639 + [78])))
    refused(lambda: load_data(path), "own.npz", "x.npy")


def test_an_unpacked_archive_may_be_as_large_as_is_said(tmp_path):
    path = tmp_path / "own.npz"
    x = np.zeros((200, 16, 16), np.uint8)
    np.savez_compressed(path, x=x, y=np.arange(200) % 2)
    assert len(load_data(path).train) == 160
    refused(lambda: load_data(path, max_bytes=50_000), "own.npz", "max_bytes")
    # What is not compressed is as large as the file.
    np.savez(path, x=x, y=np.arange(200) % 2)
    assert len(load_data(path, max_bytes=1).train) == 160


@pytest.mark.parametrize("label", [10**9, 2.0**62, np.inf])
def test_absurd_labels_are_refused(tmp_path, label):
    np.savez(tmp_path / "own.npz", x=np.zeros((4, 2, 2)), y=np.array([0, 1, 1, label]))
    refused(lambda: load_data(tmp_path / "own.npz"), "own.npz")


def test_gzipped_files_that_unpack_to_gigabytes_are_refused(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(bytes(1_000_000))
    refused(lambda: load_data("mnist", root=tmp_path), path.name, "250,000,000")


def write_h5(path, shape=(40, 8, 8, 3)):
    with h5py.File(path, "w") as file:
        file["images"] = np.zeros(shape, np.uint8)
        file["ans"] = (np.arange(40) % 10).astype(np.uint8)
    return path


def linked(file, folder):
    file["images"] = h5py.ExternalLink(str(folder / "other.h5"), "/images")


def soft(file, folder):
    file["place"] = h5py.ExternalLink(str(folder / "other.h5"), "/")
    file["images"] = h5py.SoftLink("/place/images")


def stored_elsewhere(file, folder):
    shape = (40, 8, 8, 3)
    file.create_dataset("images", shape, np.uint8, external=[(folder / "other.h5", 0, 7680)])


def virtual(file, folder):
    layout = h5py.VirtualLayout((40, 8, 8, 3), np.uint8)
    layout[:] = h5py.VirtualSource(folder / "other.h5", "images", (40, 8, 8, 3))
    file.create_virtual_dataset("images", layout)


@pytest.mark.parametrize("elsewhere", [linked, soft, stored_elsewhere, virtual])
def test_hdf5_files_that_read_other_files_are_refused(tmp_path, elsewhere):
    write_h5(tmp_path / "other.h5")
    path = write_h5(tmp_path / "Galaxy10_DECals.h5")
    assert len(load_data("galaxy10", root=tmp_path, split=(0.5, 0.25, 0.25)).train) == 20
    with h5py.File(path, "a") as file:
        del file["images"]
        elsewhere(file, tmp_path)
    refused(lambda: load_data("galaxy10", root=tmp_path), path.name, "'images'")


@pytest.mark.parametrize("shape", [(10**9, 256, 256, 3), (40, 10**5, 10**5, 3)])
def test_hdf5_files_that_claim_huge_shapes_are_refused(tmp_path, shape):
    path = write_h5(tmp_path / "Galaxy10_DECals.h5")
    with h5py.File(path, "a") as file:
        del file["images"]
        file.create_dataset("images", shape, np.uint8, chunks=(1, 256, 256, 3), compression="gzip")
    refused(lambda: load_data("galaxy10", root=tmp_path), path.name, "'images'")


def test_many_tiny_images_do_not_become_huge_ones(tmp_path):
    path = tmp_path / "Galaxy10_DECals.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (30_000_000, 1, 1, 3), np.uint8, chunks=(1000, 1, 1, 3))
        file.create_dataset("ans", (30_000_000,), np.uint8, chunks=(1000,))
    refused(lambda: load_data("galaxy10", root=tmp_path), path.name, "30000000")


def test_refusing_takes_no_memory(tmp_path):
    with zipfile.ZipFile(tmp_path / "own.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
        with out.open("x.npy", "w", force_zip64=True) as member:
            member.write(npy_header((1500, 1000, 1000)))
            for _ in range(1500):
                member.write(bytes(1_000_000))
        out.writestr("y.npy", npy_header((1500,)) + bytes(1500))
    (tmp_path / "large.png").write_bytes(png(60_000, 60_000))
    program = f"""
from besselnet.data import decode_image, load_data
for call, name in ((load_data, "own.npz"), (decode_image, "large.png")):
    try:
        call({str(tmp_path)!r} + "/" + name)
    except ValueError as error:
        assert name in str(error)
    else:
        raise SystemExit(name + " was read")
"""
    assert peak_memory(program) < MOST_MEMORY
