"""`BesselClassifier`: scikit-learn's own checks, and images of every shape."""

import importlib.util
import pickle
from math import isqrt

import numpy as np
import pytest

if importlib.util.find_spec("sklearn") is None:
    pytest.skip("scikit-learn is not installed", allow_module_level=True)

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from besselnet.sklearn import BesselClassifier

TINY = {"model": {"options": {"channels": [[4]]}}}


class TableClassifier(BesselClassifier):
    """Rows of any length as images, zeros around them: scikit-learn's checks have tables of a few columns."""

    def _channels_first(self, X):
        if X.ndim != 2:
            return super()._channels_first(X)
        side = max(9, isqrt(X.shape[1] - 1) + 1)
        padded = np.zeros((len(X), side * side), X.dtype)
        padded[:, : X.shape[1]] = X
        return padded.reshape(len(X), 1, side, side)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # A rotated row of a table is another row: what is equivariant cannot tell them apart.
        tags.classifier_tags.poor_score = True
        return tags


# No check is left out.
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([TableClassifier(epochs=1, settings=TINY, device="cpu")])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def tiny(**options):
    given = {"epochs": 1, "settings": TINY, "device": "cpu", "random_state": 0}
    return BesselClassifier(**{**given, **options})


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return images.reshape(-1, 8, 8), labels


def larger(images):
    return images.repeat(2, 1).repeat(2, 2)


def test_all_shapes_and_types_are_the_same_images(digits):
    images, labels = larger(digits[0][:40]), digits[1][:40]
    expected = tiny().fit(images, labels).predict_proba(images)
    assert expected.shape == (40, 10)
    assert np.allclose(expected.sum(1), 1)
    shapes = [images.reshape(40, -1), images[:, None], images[..., None]]
    for same in (*shapes, images.astype(np.int64), 7 * images - 3):
        found = tiny().fit(same, labels).predict_proba(same)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_bytes_and_shares_of_one_stay_as_they_are(digits):
    images = larger(digits[0][:20] * 15).astype(np.uint8)
    labels = digits[1][:20]
    as_bytes, as_shares = tiny().fit(images, labels), tiny().fit(images / 255, labels)
    # Brightness is kept: half as bright is not the same image.
    assert as_bytes.value_range_ == (0, 255)
    assert as_shares.value_range_ == (0, 1)
    found, shares = as_bytes.predict_proba(images), as_shares.predict_proba(images / 255)
    np.testing.assert_allclose(found, shares, atol=1e-5)
    np.testing.assert_array_equal(as_bytes.predict_proba(images.astype(float)), found)
    assert np.abs(as_bytes.predict_proba(images // 2) - found).max() > 1e-4


def test_channels_are_found_or_asked_for():
    chance = np.random.default_rng(0)
    images, labels = chance.random((6, 3, 10, 14)), [0, 1] * 3
    first = tiny().fit(images, labels)
    last = tiny().fit(images.transpose(0, 2, 3, 1), labels)
    assert first.image_shape_ == last.image_shape_ == (3, 10, 10)
    many = chance.random((6, 10, 10, 10))
    with pytest.raises(ValueError, match="layout"):
        tiny().fit(many, labels)
    assert tiny(layout="NHWC", image_size=9).fit(many, labels).image_shape_ == (10, 9, 9)


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((6, 50), {}, "50 numbers"),
        ((6, 1, 1, 9, 9), {}, "5 dimensions"),
        ((6, 9, 9), {"layout": "HWCN"}, "layout='HWCN'"),
        ((6, 9, 9), {"epochs": 0}, "epochs=0"),
        ((6, 9, 9), {"image_size": 0}, "image_size=0"),
        ((6, 9, 9), {"model": "no such"}, "no such"),
        ((6, 9, 9), {"settings": {"train": {"epoch": 3}}}, "epoch"),
        ((6, 9, 9), {"settings": "epochs=3"}, "must be a mapping"),
    ],
)
def test_mistakes_are_named(shape, options, words):
    with pytest.raises(ValueError, match=words):
        tiny(**options).fit(np.random.default_rng(0).random(shape), [0, 1] * 3)


def test_images_of_another_size_are_refused(digits):
    images, labels = larger(digits[0][:20]), digits[1][:20]
    classifier = tiny().fit(images, labels)
    with pytest.raises(ValueError, match="must be"):
        classifier.predict(images[:, :, :9])


def test_quarter_turns_do_not_change_answers_and_it_learns(digits):
    images, labels = larger(digits[0][:300]), digits[1][:300]
    kept = labels < 3
    settings = {"model": {"options": {"channels": [[8]]}}}
    classifier = tiny(epochs=30, settings=settings).fit(images[kept], labels[kept])
    # A guess is right in a third.
    assert classifier.score(images[kept], labels[kept]) > 0.7
    upright = classifier.predict_proba(images)
    turned = classifier.predict_proba(np.rot90(images, 1, (1, 2)))
    np.testing.assert_allclose(turned, upright, atol=1e-4)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(images), upright)


def test_pipelines_folds_and_searches(digits):
    images, labels = larger(digits[0][:40]), np.where(digits[1][:40] < 5, "few", "many")
    rows = images.reshape(40, -1)
    pipeline = make_pipeline(FunctionTransformer(np.sqrt), tiny())
    assert cross_val_score(pipeline, rows, labels, cv=2).shape == (2,)
    search = GridSearchCV(tiny(), {"model": ["besselnet_small", "besselnet_base"]}, cv=2)
    search.fit(images, labels)
    assert set(search.predict(images)) <= {"few", "many"}
