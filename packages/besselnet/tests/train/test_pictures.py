"""The pictures of a run: one width, and nothing that cannot be drawn."""

from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import nn

from besselnet import BesselConv2d
from besselnet.drawing import (
    draw_confusion,
    draw_curves,
    draw_feature_maps,
    draw_filters,
    draw_folds,
    draw_rates,
    draw_robust,
    draw_rotated,
    learned_filters,
    write_figure,
)

ROWS = [
    {
        "epoch": i,
        "learning_rate": 0.1,
        "train_loss": 1 / i,
        "val_loss": 2 / i,
        "train_accuracy": 0.5,
    }
    for i in (1, 2, 3)
]
CURVE = SimpleNamespace(
    angles=(0.0, 90.0, 180.0, 270.0), scores=(1.0, 0.5, 0.0, 0.5), border="disc", score="iou"
)


ROBUST = {
    "images": 9,
    "accuracy": 1.0,
    "corruptions": {name: {"accuracy": [0.9, 0.8, 0.7, 0.6, 0.5]} for name in "abcdefghijk"},
    "attacks": {
        "images": 5,
        "accuracy": 1.0,
        "epsilons": [0.01, 0.1],
        "fgsm": [0.5, 0.2],
        "short_pgd": [0.5, 0.1],
        "epsilon": 0.01,
        "strong": {"ensemble": 0.3},
    },
}


def feature_maps(path):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Dropout(), nn.ReLU()).train()
    figure = draw_feature_maps(
        {"a": model, "b": model}, *(torch.rand(1, 9, 9), 30, torch.rand(1, 9, 9)), [0]
    )
    assert all(layer.training for layer in model)
    write_figure(path, figure)


@pytest.mark.parametrize(
    "draw",
    [
        lambda path: draw_curves(path, ROWS),
        lambda path: draw_confusion(path, torch.tensor([[3, 1], [0, 4]]), ["cats", "dogs"]),
        lambda path: draw_rotated(path, dict.fromkeys("abcdefghij", CURVE)),
        lambda path: draw_robust(path, ROBUST),
        lambda path: draw_filters(path, torch.randn(3, 3, 5, 5)),
        lambda path: draw_rates(path, [1e-4, 1e-3, 1e-2], [2.0, 1.0, 9.0], 1e-3),
        lambda path: draw_folds(path, [0.8, 0.9, 1.0], "accuracy", (0.85, 0.95)),
        feature_maps,
    ],
    ids=["curves", "confusion", "rotated", "robust", "filters", "rates", "folds", "feature maps"],
)
def test_every_picture_is_a_thousand_pixels_wide(tmp_path, draw):
    draw(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        picture.verify()
        assert picture.width == 1000


def test_many_classes_get_a_wider_picture(tmp_path):
    draw_confusion(tmp_path / "a.png", torch.eye(40, dtype=torch.int64), list(map(str, range(40))))
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width == picture.height > 2000


def test_the_filters_shown_are_those_of_the_first_convolution():
    conv, plain = BesselConv2d(2, 3, 5), nn.Conv2d(3, 4, 3)
    assert torch.equal(learned_filters(nn.Sequential(nn.ReLU(), conv, plain)), conv.filters())
    assert torch.equal(learned_filters(nn.Sequential(plain, conv)), plain.weight)
    assert learned_filters(nn.Linear(2, 2)) is None
