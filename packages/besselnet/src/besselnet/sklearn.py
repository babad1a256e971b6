"""A scikit-learn classifier for pipelines, cross-validation and grid search.

Needs the extra `sklearn`: ``pip install 'besselnet[sklearn]'``.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_count
from besselnet.data import ImageSet, Splits, as_floats, resize_images
from besselnet.train import merge_settings, recommend_config, train_network

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"besselnet.sklearn needs scikit-learn 1.6 or later ({error}): pip install 'besselnet[sklearn]'"
    ) from error

__all__ = ["BesselClassifier"]

LAYOUTS = ("NCHW", "NHWC")
# An axis of at most so many entries is one of channels, if the other one that it could be is longer.
MOST_CHANNELS = 4
BATCH = 64
_BYTES = (0.0, 255.0)


class BesselClassifier(ClassifierMixin, BaseEstimator):
    """Rotation-equivariant image classifier with the interface of scikit-learn.

    `X` is an array of one of these shapes:

    | shape | content |
    |---|---|
    | (N, H, W) | grey images |
    | (N, C, H, W) or (N, H, W, C) | images with channels; C is the axis of length at most 4, see `layout` |
    | (N, H * H) | flattened square grey images, as in `sklearn.datasets.load_digits` |

    uint8 arrays, and floats whose training images are in [0, 1], are not rescaled. Others are scaled by the
    minimum and maximum of the training images, and clipped to that range in prediction. Images that are not
    square are cropped at the centre.

    Settings that are not given are chosen from the images, as in `besselnet train` (`recommend_settings`).
    All images are used for training: there are no validation images and no mirror trial.

    Args:
        model: name of a network (`besselnet.models.list_models`).
        epochs: number of epochs. Default: chosen from the number of images.
        image_size: side in pixels to which images are resized. Default: their shorter side.
        layout: "NCHW" or "NHWC", if the array is ambiguous.
        settings: further settings, as in `besselnet.train.make_config`, for example
            ``{"train": {"learning_rate": 0.003}, "model": {"options": {"symmetry": "O(2)"}}}``.
        device: "auto" (a GPU if available), "cpu", "cuda" or "mps".
        random_state: random seed; an integer makes `fit` reproducible.
        verbose: print progress.

    Attributes:
        classes_: the labels, sorted.
        network_: the trained network, in eval mode: (N, C, S, S) in [0, 1] to logits (N, number of classes).
        image_shape_: input shape (C, S, S) of the network.
        value_range_: the values that are scaled to 0 and 1.
        settings_: all training settings, a `besselnet.train.RunConfig`.
        n_features_in_: length of the second axis of `X`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from besselnet.sklearn import BesselClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> classifier = BesselClassifier(epochs=1, random_state=0).fit(X[:64], y[:64])
        >>> classifier.predict_proba(X[64:66]).shape
        (2, 10)
    """

    def __init__(
        self,
        model: str = "besselnet_small",
        *,
        epochs: int | None = None,
        image_size: int | None = None,
        layout: str | None = None,
        settings: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.image_size = image_size
        self.layout = layout
        self.settings = settings
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "BesselClassifier":
        """Train a network on images `X` with labels `y`, (N,) numbers or strings."""
        X, y = validate_data(self, X, y, allow_nd=True, dtype="numeric", ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}: must have at least 2 classes")
        self.value_range_ = _value_range(X)
        images = self._images(X)
        self.image_shape_ = tuple(images.shape[1:])
        names = tuple(map(str, self.classes_))
        splits = Splits(ImageSet(images, torch.as_tensor(labels, dtype=torch.int64), names))
        config, splits, _ = recommend_config(self._given(), images=splits)
        self.settings_ = config
        self.network_: nn.Module = train_network(config, splits, quiet=not self.verbose)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict the label of each image, (N,)."""
        likeliest = self.predict_proba(X).argmax(1)
        found: np.ndarray = self.classes_[likeliest]
        return found

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probability of each label in `classes_`, (N, number of classes) float64."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, allow_nd=True, dtype="numeric")
        images = self._images(X)
        if tuple(images.shape[1:]) != self.image_shape_:
            raise ValueError(
                f"X has images of shape {tuple(images.shape[1:])}: must be {self.image_shape_} as in training"
            )
        device = next(self.network_.parameters()).device
        with torch.no_grad():
            logits = [
                self.network_(as_floats(part).to(device)).double().cpu()
                for part in images.split(BATCH)
            ]
        return torch.cat(logits).softmax(1).numpy()

    def _given(self) -> dict[str, Any]:
        """The nested settings that the arguments decide."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train: dict[str, Any] = {"device": self.device, "seed": seed}
        if self.epochs is not None:
            train["epochs"] = check_count("epochs", self.epochs)
        settings = {} if self.settings is None else self.settings
        if not isinstance(settings, Mapping):
            raise ValueError(
                f"settings={settings!r}: must be a mapping such as {{'train': {{...}}}}"
            )
        return merge_settings({"model": {"name": self.model}, "train": train}, settings)

    def _images(self, X: np.ndarray) -> Tensor:
        """(N, C, S, S) uint8, or float32 in [0, 1]."""
        pixels = self._channels_first(X)
        low, high = self.value_range_
        if pixels.dtype != np.uint8 or (low, high) != _BYTES:
            # In float64: the range may be tiny beside the numbers.
            scaled = (pixels.astype(np.float64) - low) / (high - low)
            pixels = scaled.clip(0, 1).astype(np.float32)
        images = torch.from_numpy(np.ascontiguousarray(pixels))
        size = min(images.shape[2:]) if self.image_size is None else self.image_size
        return resize_images(images, check_count("image_size", size))

    def _channels_first(self, X: np.ndarray) -> np.ndarray:
        """(N, C, H, W) of whatever `X` is."""
        if self.layout is not None:
            check_choice("layout", self.layout, LAYOUTS)
        if X.ndim == 2:
            side = isqrt(X.shape[1])
            if side * side != X.shape[1]:
                raise ValueError(
                    f"X has rows of {X.shape[1]} numbers, which are not square images: pass X as (N, H, W)"
                )
            return X.reshape(len(X), 1, side, side)
        if X.ndim == 3:
            return X[:, None]
        if X.ndim != 4:
            raise ValueError(
                f"X has {X.ndim} dimensions: must be (N, H, W), (N, C, H, W), (N, H, W, C) or (N, H * H)"
            )
        layout = self.layout
        if layout is None:
            few = X.shape[1] <= MOST_CHANNELS, X.shape[3] <= MOST_CHANNELS
            if few[0] == few[1]:
                raise ValueError(
                    f'X has shape {X.shape}: channels may be first or last, set layout="NCHW" or "NHWC"'
                )
            layout = LAYOUTS[few.index(True)]
        return X if layout == "NCHW" else X.transpose(0, 3, 1, 2)


def _value_range(X: np.ndarray) -> tuple[float, float]:
    """The numbers that become 0 and 1."""
    if X.dtype == np.uint8:
        return _BYTES
    low, high = float(X.min()), float(X.max())
    if low >= 0 and high <= 1 and X.dtype.kind == "f":
        return 0.0, 1.0
    # Images of one colour have no contrast, whatever the range.
    return low, high if high > low else low + 1
