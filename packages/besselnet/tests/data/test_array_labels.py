"""`npz`: masks, values and several labels for each image."""

import numpy as np
import pytest
import torch

from besselnet.data import IGNORED, instance_classes, load_data
from hostile import refused

RANDOM = np.random.default_rng(0)
X = np.arange(20, dtype=np.uint8)[:, None, None] * np.ones((6, 9), np.uint8)
MASKS = RANDOM.integers(0, 3, X.shape)


def own(folder, **arrays):
    path = folder / "own.npz"
    np.savez(path, **arrays)
    return path


def order_of(part):
    return part.images[:, 0, 0, 0].long().numpy()


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.uint16, np.float64])
@pytest.mark.parametrize("shape", [(20, 6, 9), (20, 6, 9, 1), (20, 1, 6, 9)])
def test_masks(tmp_path, kind, shape):
    splits = load_data(own(tmp_path, x=X, y=MASKS.astype(kind).reshape(shape)))
    assert splits.provenance.fitted == ""
    for part in splits.parts().values():
        assert part.task == "segment"
        assert part.image_size == (6, 9)
        np.testing.assert_array_equal(part.labels, MASKS[order_of(part)])


def test_masks_with_names_a_field_of_view_and_parts(tmp_path):
    field = RANDOM.integers(0, 2, X.shape)
    path = own(
        tmp_path,
        x_train=X,
        y_train=MASKS,
        fov_train=field,
        x_test=X[:2, :4],
        y_test=MASKS[:2, :4],
        classes=["a", "b", "c", "d"],
    )
    splits = load_data(path)
    assert splits.train.classes == ("a", "b", "c", "d")
    np.testing.assert_array_equal(splits.train.labels, np.where(field, MASKS, IGNORED))
    np.testing.assert_array_equal(splits.test.labels[:, 1:5], MASKS[:2, :4])
    assert bool((splits.test.labels[:, [0, 5]] == IGNORED).all())
    assert "padded to 9 x 6" in splits.provenance.fitted


def test_bool_masks_and_white_ones(tmp_path):
    for y in (MASKS > 0, (MASKS > 0) * np.uint8(255)):
        whole = load_data(own(tmp_path, x=X, y=y)).merged()
        assert whole.classes == ("0", "1")
        np.testing.assert_array_equal(whole.labels, (MASKS > 0)[order_of(whole)])


def test_ignored_numbers_of_masks(tmp_path):
    y = np.where(MASKS == 2, -100, MASKS)
    refused(lambda: load_data(own(tmp_path, x=X, y=y)), "own.npz", "y[0]", "-100")
    whole = load_data(own(tmp_path, x=X, y=y), ignore=-100).merged()
    assert whole.classes == ("0", "1")
    np.testing.assert_array_equal(
        whole.labels, np.where(MASKS == 2, IGNORED, MASKS)[order_of(whole)]
    )


def test_instances(tmp_path):
    objects = np.kron(np.arange(60).reshape(20, 1, 3), np.ones((6, 3), int))
    field = np.ones(X.shape, bool)
    field[:, 0] = False
    path = own(tmp_path, x=X, y=objects, fov=field)
    refused(lambda: load_data(own(tmp_path, x=X, y=objects * 9)), "own.npz", "y[")
    whole = load_data(own(tmp_path, x=X, y=objects, fov=field), masks="instances").merged()
    assert whole.classes == ("background", "object", "border")
    expected = np.where(field, objects, 0)[order_of(whole)]
    np.testing.assert_array_equal(whole.instances, expected)
    for label, numbers in zip(whole.labels.numpy(), expected):
        np.testing.assert_array_equal(label[1:], instance_classes(numbers)[1:])
    small = load_data(path, masks="instances", image_size=4).merged()
    for label, numbers in zip(small.labels.numpy(), small.instances.numpy()):
        known = label != IGNORED
        np.testing.assert_array_equal(label[known], instance_classes(numbers)[known])
    refused(lambda: load_data(path, masks="colours"), "masks='colours'")


@pytest.mark.parametrize("columns", [None, 1, 3])
def test_values(tmp_path, columns):
    y = RANDOM.normal(size=(20,) if columns is None else (20, columns))
    whole = load_data(own(tmp_path, x=X, y=y), image_size=8).merged()
    assert whole.task == "regress"
    assert len(whole.classes) == (columns or 1)
    expected = y.reshape(20, -1).astype(np.float32)[order_of(whole)]
    np.testing.assert_array_equal(whole.labels, expected)


def test_several_labels(tmp_path):
    y = RANDOM.integers(0, 2, (20, 3))
    path = own(tmp_path, x=X, y=y, classes=["a", "b", "c"])
    refused(lambda: load_data(path), "own.npz", "task=multilabel", "regress")
    for whole in (
        load_data(path, task="multilabel").merged(),
        load_data(own(tmp_path, x=X, y=y.astype(bool), classes=["a", "b", "c"])).merged(),
    ):
        assert whole.task == "multilabel"
        assert whole.classes == ("a", "b", "c")
        np.testing.assert_array_equal(whole.labels, y.astype(bool)[order_of(whole)])


def test_whole_numbers_are_classes_unless_the_task_says_otherwise(tmp_path):
    path = own(tmp_path, x=X, y=np.arange(20.0) % 3)
    assert load_data(path).train.task == "classify"
    assert load_data(path, task="regress").train.labels.dtype == torch.float32


@pytest.mark.parametrize(
    ("arrays", "options", "words"),
    [
        ({"y": MASKS[:, :5]}, {}, ("y has shape (20, 5, 9)", "(20, 6, 9)")),
        ({"y": MASKS[:5]}, {}, ("y has shape (5, 6, 9)",)),
        ({"y": MASKS + 0.5}, {}, ("y", "integers")),
        ({"y": MASKS * 2**40}, {}, ("y", "2^31")),
        ({"y": MASKS, "fov": MASKS[0]}, {}, ("fov", "(6, 9)")),
        ({"y": MASKS, "classes": ["a", "b"]}, {}, ("y[0]", "row", "0 to 1")),
        ({"y": MASKS}, {"task": "classify"}, ("task='classify'", "y")),
        ({"y": np.arange(20)}, {"masks": "instances"}, ("task='segment'", "(20,)")),
        ({"y": MASKS * -1}, {"masks": "instances", "ignore": 7}, ("y[0]", "65535")),
        ({"y": np.full((20, 2), np.nan)}, {}, ("finite",)),
        ({"y": np.full((20, 2), 1e300)}, {}, ("finite",)),
        ({"y": np.full((20, 2), "a")}, {"task": "regress"}, ("numbers",)),
        ({"y": np.full((20, 2), 2)}, {"task": "multilabel"}, ("0 or 1",)),
        ({"y": np.ones((19, 2), bool)}, {}, ("(20, 2)",)),
        ({"y": np.arange(20)}, {"task": "guess"}, ("task='guess'",)),
    ],
)
def test_labels_that_do_not_fit_are_named(tmp_path, arrays, options, words):
    path = own(tmp_path, x=X, **arrays)
    line = refused(lambda: load_data(path, **options), *words)
    assert "own.npz" in line


def test_parts_must_have_labels_of_one_kind(tmp_path):
    path = own(tmp_path, x_train=X, y_train=MASKS, x_test=X, y_test=np.arange(20))
    refused(lambda: load_data(path), "own.npz", "same kind")
