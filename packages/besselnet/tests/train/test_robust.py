"""`evaluate_robust`: its figures, and that it goes on where it was stopped."""

import io
import json
import logging
from dataclasses import replace

import pytest
import torch
from torch import nn

from besselnet.data import ImageSet
from besselnet.robust import CORRUPTIONS, corrupt
from besselnet.train import RobustSettings, evaluate_robust
from robust.patterns import pattern_images, trained_network

QUICK = RobustSettings(
    epsilons=(0.02, 0.04),
    attacked=12,
    placed=9,
    angles=3,
    curve_steps=3,
    steps=4,
    restarts=2,
    queries=6,
    tries=3,
)


def patterns(count=24, seed=1):
    images, labels = pattern_images(count, seed)
    return ImageSet((255 * images).round().to(torch.uint8), labels, ("across", "down", "blob"))


class Counted(nn.Module):
    """The trained network; counts its forward passes, and is interrupted after `most` of them."""

    def __init__(self, most=10**9):
        super().__init__()
        self.network, self.most, self.passes = trained_network(), most, 0

    def forward(self, images):
        self.passes += 1
        if self.passes > self.most:
            raise KeyboardInterrupt
        return self.network(images)


def test_the_figures_are_what_they_say():
    network, images = trained_network(), patterns()
    found = evaluate_robust(network, images, settings=QUICK, border="reflect")
    json.dumps(found, allow_nan=False)
    pixels, labels = images.images / 255, images.labels
    network.eval()
    with torch.no_grad():
        right = (network(pixels).argmax(1) == labels).float().mean().item()
        noisy = network(corrupt(pixels, "shift", 2, border="reflect")).argmax(1) == labels
    network.train()
    assert found["images"] == 24
    assert found["accuracy"] == pytest.approx(right)
    assert found["corruptions"].keys() == CORRUPTIONS.keys()
    assert found["corruptions"]["shift"]["accuracy"][1] == pytest.approx(
        noisy.float().mean().item()
    )
    spatial, attacks = found["spatial"], found["attacks"]
    assert (spatial["images"], attacks["images"]) == (9, 12)
    assert spatial["worst_accuracy"] <= spatial["worst_rotated_accuracy"] <= spatial["accuracy"]
    # A share of the side, in whole pixels.
    assert spatial["shift_pixels"] == 1
    assert attacks["epsilon"] in attacks["epsilons"] == [0.02, 0.04]
    strong = attacks["strong"]
    assert strong["ensemble"] <= min(strong[name] for name in ("apgd_ce", "apgd_dlr", "square"))
    assert strong["fgsm"] == attacks["fgsm"][attacks["epsilons"].index(attacks["epsilon"])]
    assert max(strong.values()) <= attacks["accuracy"]
    verdict = found["gradient_masking"]
    assert verdict["pgd"] == strong["pgd"]
    assert verdict["zero_gradients"] == 0


def test_strong_attacks_take_the_epsilon_that_is_named():
    found = {
        epsilon: evaluate_robust(
            trained_network(), patterns(), settings=replace(QUICK, strong_epsilon=epsilon)
        )["attacks"]
        for epsilon in (None, 0.02, 0.04)
    }
    for number, epsilon in enumerate((0.02, 0.04)):
        attacks = found[epsilon]
        assert attacks["epsilon"] == epsilon
        assert attacks["strong"]["fgsm"] == attacks["fgsm"][number]
    assert found[None] == found[found[None]["epsilon"]]


class Rounding(nn.Module):
    """The trained network behind rounded pixels: right as often, with a gradient of zero."""

    def __init__(self):
        super().__init__()
        self.network = trained_network()

    def forward(self, images):
        return self.network(torch.round(images * 40) / 40)


def test_masked_gradients_are_suspicious_in_the_report_and_real_ones_are_not():
    settings = replace(QUICK, strong_epsilon=0.04, attacked=60, curve_steps=10, queries=100)
    masked, real = (
        evaluate_robust(network, patterns(60), settings=settings)["gradient_masking"]
        for network in (Rounding(), trained_network())
    )
    assert masked["suspicious"]
    assert masked["zero_gradients"] > 0.9
    assert masked["square"] < masked["pgd"]
    assert not real["suspicious"], real["reasons"]


def test_passes_are_counted_for_images_that_no_attack_breaks():
    class Unbreakable(nn.Module):
        """Always the class "across"; counts the images that it sees, with and without gradient."""

        def __init__(self):
            super().__init__()
            self.seen = {True: 0, False: 0}

        def forward(self, images):
            self.seen[torch.is_grad_enabled()] += len(images)
            return torch.tensor([1.0, 0.0, 0.0]) + 0 * images.sum((1, 2, 3))[:, None]

    images = patterns()
    images = images.select((images.labels == 0).nonzero()[:, 0])
    network = Unbreakable()
    settings = replace(QUICK, shift=0.2)
    evaluate_robust(network, images, settings=settings)
    forwards, gradients = settings.passes(len(images))
    assert network.seen[True] == pytest.approx(gradients, rel=0.2)
    # The answers for what an attack gives are looked at again.
    assert forwards < network.seen[False] < 2 * forwards


def test_images_drawn_for_attacks_have_all_classes():
    images = patterns(60)
    sorted_by_class = images.select(images.labels.argsort())
    found = evaluate_robust(trained_network(), sorted_by_class, settings=QUICK)
    # One class alone would be answered right or wrong together.
    assert 0 < found["attacks"]["short_pgd"][-1] < 1


@pytest.fixture(scope="module")
def passes():
    """Forward passes of a whole measurement."""
    network = Counted()
    evaluate_robust(network, patterns(), settings=QUICK)
    return network.passes


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_what_was_stopped_goes_on_and_ends_the_same(tmp_path, passes, share):
    kept = tmp_path / "robust.json"
    network = Counted(int(share * passes))
    with pytest.raises(KeyboardInterrupt):
        evaluate_robust(network, patterns(), settings=QUICK, kept=kept)
    again = Counted()
    resumed = evaluate_robust(again, patterns(), settings=QUICK, kept=kept)
    assert again.passes < passes
    assert resumed == evaluate_robust(Counted(), patterns(), settings=QUICK)
    finished = Counted()
    assert evaluate_robust(finished, patterns(), settings=QUICK, kept=kept) == resumed
    assert finished.passes == 0
    assert [path.name for path in tmp_path.iterdir()] == ["robust.json"]


@pytest.mark.parametrize("changed", ["weights", "images", "settings", "border"])
def test_what_is_kept_of_something_else_does_not_count(tmp_path, passes, changed):
    kept = tmp_path / "robust.json"
    how = {"settings": QUICK, "kept": kept}
    evaluate_robust(Counted(), patterns(), **how)
    network, images = Counted(), patterns()
    if changed == "weights":
        network.network = nn.Sequential(*network.network[:-1], nn.Linear(8 * 36, 3))
    elif changed == "images":
        images = patterns(seed=2)
    elif changed == "settings":
        how["settings"] = replace(QUICK, seed=1)
    else:
        how["border"] = "reflect"
    evaluate_robust(network, images, **how)
    assert network.passes > passes / 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"digest": 1, "parts": {}}',
        '{"digest": "DIGEST", "parts": []}',
        '{"digest": "DIGEST", "parts": {"blur": 3}}',
        '{"digest": "DIGEST", "parts": {"blur": ["much"]}}',
        '{"digest": "DIGEST", "parts": {"blur": [NaN]}}',
        '{"digest": "DIGEST", "parts": {"blur": [-1]}}',
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, content):
    kept = tmp_path / "robust.json"
    with pytest.raises(KeyboardInterrupt):
        evaluate_robust(Counted(2), patterns(), settings=QUICK, kept=kept)
    digest = json.loads(kept.read_text())["digest"]
    kept.write_text(content.replace("DIGEST", digest))
    with pytest.raises(ValueError, match=r"robust\.json") as refused:
        evaluate_robust(Counted(), patterns(), settings=QUICK, kept=kept)
    assert len(str(refused.value).splitlines()) == 1


def test_a_place_that_cannot_be_written_costs_a_line(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        found = evaluate_robust(
            trained_network(), patterns(), settings=QUICK, kept=tmp_path / "gone" / "robust.json"
        )
    assert found["images"] == 24
    assert len(caplog.records) == 1


def test_progress_says_what_and_how_long(tmp_path):
    how = {"settings": QUICK, "kept": tmp_path / "robust.json"}
    for shown in (True, False):
        stream = io.StringIO()
        evaluate_robust(trained_network(), patterns(), stream=stream, **how)
        assert ("24 images" in stream.getvalue()) == shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilons": ()},
        {"epsilons": (0.2, 0.1)},
        {"epsilons": (0.0,)},
        {"strong_epsilon": 0.5},
        {"attacked": 0},
        {"shift": 2.0},
        {"queries": -1},
        {"seed": -1},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RobustSettings(**wrong)


def test_it_is_for_classes():
    images = patterns()
    values = ImageSet(images.images, torch.rand(24, 1), ("size",))
    with pytest.raises(ValueError, match="classes"):
        evaluate_robust(trained_network(), values, settings=QUICK)
