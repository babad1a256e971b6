"""The trial of mirror images: it tells classes that a mirror swaps from those that it leaves alone."""

import pytest
import torch
from torch import nn

from besselnet.data import ImageSet, Splits
from besselnet.models import _registry, register_model
from besselnet.train import (
    MirrorTrial,
    _recommend,
    make_config,
    recommend_config,
    try_mirror_images,
)
from besselnet.train._mirror import FEWEST, HANDED, HELD_OUT, MOST_STEPS
from places import DOCS

NAME = "mirror-toy"


@pytest.fixture(autouse=True)
def network():
    """A network that can learn where the light is."""

    @register_model(NAME, symmetry="none", exactness="none", sizes="8", smallest_size=8)
    def build(*, in_channels, num_classes, image_size):
        return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * image_size**2, num_classes))

    yield
    del _registry._MODELS[NAME]


def lights(count: int, handed: bool) -> Splits:
    """Light on the left or on the right half; or in the upper or the lower."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 100, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
    labels = torch.arange(count) % 2
    for image, label in zip(images, labels):
        half = slice(0, 4) if label else slice(4, 8)
        image[0][(slice(None), half) if handed else (half, slice(None))] += 150
    return Splits(ImageSet(images, labels, ("a", "b")))


CONFIG = {"model": {"name": NAME}, "train": {"epochs": 20, "learning_rate": 0.01}}


@pytest.mark.parametrize("handed", [True, False])
def test_a_mirror_that_swaps_classes_is_found_out(handed):
    found = try_mirror_images(make_config(CONFIG), lights(240, handed), quiet=True)
    assert found.accuracy > 0.9
    assert found.same is not handed
    assert (found.mirrored_accuracy < 0.1) is handed


def test_nothing_is_said_of_few_images_or_of_noise():
    assert try_mirror_images(make_config(CONFIG), lights(190, False), quiet=True) is None
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (240, 1, 8, 8), generator=generator, dtype=torch.uint8)
    labels = torch.arange(240) % 2
    splits = Splits(ImageSet(noise, labels, ("a", "b")))
    assert try_mirror_images(make_config(CONFIG), splits, quiet=True) is None


@pytest.mark.parametrize("handed", [True, False])
def test_the_settings_follow_the_trial_unless_they_are_given(handed, monkeypatch):
    result = MirrorTrial(60, 0.9, 0.1 if handed else 0.9, same=not handed)
    monkeypatch.setattr(_recommend, "try_mirror_images", lambda config, images: result)
    images = lights(240, handed)
    config, _, found = recommend_config(CONFIG, images=images, trial=True)
    assert ("reflect" in config.data.augment) is not handed
    assert "mirror images" in found.reason
    given = {"data": {"augment": ["shift"]}}
    config, _, found = recommend_config(CONFIG, given, images=images, trial=True)
    assert config.data.augment == ("shift",)
    assert "mirror" not in found.reason


def test_the_trial_is_a_function_of_the_settings_and_leaves_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    config, images = make_config(CONFIG), lights(240, True)
    first = try_mirror_images(config, images, quiet=True)
    assert torch.rand(1) == expected
    assert try_mirror_images(config, images, quiet=True) == first


def test_the_page_on_training_has_these_numbers():
    section = (
        (DOCS / "training.md").read_text().split("\n## The mirror trial\n")[1].split("\n## ")[0]
    )
    assert f"fewer than {FEWEST / HELD_OUT:.0f} training images" in section
    assert f"at most {MOST_STEPS:,} steps".replace(",", " ") in section
    assert f"p < {HANDED:g}" in section
