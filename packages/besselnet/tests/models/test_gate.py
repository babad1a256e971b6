"""The gate's rule, what it learns from a training loop, and what remains after pruning."""

import doctest
import json
from dataclasses import asdict

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from besselnet.data import Batches, Compose, ImageSet, Reflect, Rotate
from besselnet.models import GatedNetwork, create_model
from besselnet.models._gated import (
    BRANCHES,
    WINDOW,
    SymmetryGate,
    held_out_share,
    image_keys,
    index_keys,
)
from besselnet.train import TrainConfig, fit
from models.probes import smooth_images, turn_error
from places import DOCS

TASK = {"in_channels": 1, "num_classes": 2, "image_size": 12, "width": 0.3, "kernel_size": 3}


class Stubborn(nn.Module):
    """Always the same answer, whatever the image."""

    def __init__(self, answer: int, classes: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(5 * F.one_hot(torch.tensor(answer), classes).float())

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def gate_with(errors, images=200, prices=(0.0, 0.02, 0.04), seed=0):
    """A gate that saw branches be wrong on given shares of images, independently of each other."""
    gate = SymmetryGate(["large", "middle", "none"], prices)
    generator = torch.Generator().manual_seed(seed)
    # The first three quarters are not looked at.
    wrong = torch.rand(4 * images, 3, generator=generator) < torch.tensor(errors)
    gate.observe(torch.arange(4 * images), wrong)
    return gate


@pytest.mark.parametrize(
    ("errors", "chosen"),
    [
        ((0.05, 0.05, 0.05), "large"),
        ((0.5, 0.05, 0.05), "middle"),
        ((0.5, 0.5, 0.05), "none"),
        ((0.05, 0.5, 0.05), "large"),
        # Less than its price, or than 200 images can show.
        ((0.02, 0.01, 0.0), "large"),
        ((0.30, 0.28, 0.28), "large"),
    ],
)
def test_the_largest_symmetry_that_fits_as_well_is_chosen(errors, chosen):
    report = gate_with(errors).report()
    assert report.chosen == chosen
    assert sum(report.weights) == pytest.approx(1)
    assert report.images == 200


def test_without_images_the_largest_symmetry_is_chosen():
    report = SymmetryGate(["none", "large"], [0.04, 0.0]).report()
    assert report.chosen == "large"
    assert report.weights == (0, 1)
    assert report.images == 0
    assert json.loads(json.dumps(asdict(report), allow_nan=False))["errors"] == [None, None]
    assert "evaluated on 0 held-out images" in str(report)


def test_the_gate_forgets_what_the_branches_did_early():
    gate = SymmetryGate(["large", "none"], [0.0, 0.02])
    images = torch.arange(100)
    for epoch in range(8):
        learned = torch.full((100,), epoch < 5)
        gate.observe(images, torch.stack([torch.ones(100).bool(), learned], 1))
    assert gate.report().errors == (1, 0)
    assert gate.report().chosen == "none"


def test_answers_to_one_image_count_as_one():
    gate = SymmetryGate(["large", "none"], [0.0, 0.02])
    wrong = torch.tensor([[1, 0], [0, 0]]).bool().repeat(100, 1)
    gate.observe(torch.arange(2).repeat(100), wrong)
    assert gate.report().images == 2
    assert gate.report().errors == (0.5, 0)
    assert gate.report().chosen == "large"


def test_more_answers_than_the_window_holds():
    gate = SymmetryGate(["large", "none"], [0.0, 0.02])
    for _ in range(3):
        count = 3 * WINDOW
        gate.observe(
            torch.arange(count), (torch.arange(count) < count - WINDOW)[:, None].expand(-1, 2)
        )
    assert gate.report().images == WINDOW
    assert gate.report().errors == (0, 0)


def test_an_image_is_on_the_same_side_in_every_order():
    images = torch.rand(2000, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    keys = image_keys(images)
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(1))
    assert torch.equal(image_keys(images[order]), keys[order])
    assert len(keys.unique()) == 2000
    # 2000 draws of 0.2: one standard deviation is 0.009.
    assert held_out_share(keys, 0.2).float().mean() == pytest.approx(0.2, abs=0.03)


def test_black_and_white_images_are_split_too():
    images = torch.randint(2, (2000, 1, 5, 5), generator=torch.Generator().manual_seed(0)).float()
    share = held_out_share(image_keys(images.unique(dim=0)), 0.2).float().mean()
    assert share == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("class_weights", [None, (0.2, 1.0, 5.0)])
def test_the_loss_tells_the_gate_the_labels(label_smoothing, class_weights):
    model = GatedNetwork({str(i): Stubborn(i, 3) for i in range(3)}, [0.0, 0.1, 0.2], held_out=0.5)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(400, 1, 4, 4, generator=generator)
    labels = torch.randint(3, (400,), generator=generator)
    config = TrainConfig(
        epochs=1, label_smoothing=label_smoothing, class_weights=class_weights, device="cpu"
    )
    fit(model, list(zip(images.split(50), labels.split(50))), None, config, quiet=True)

    held_out = held_out_share(image_keys(images), 0.5)
    assert model.gate.seen == held_out.sum()
    wrong = labels[held_out][:, None] != torch.arange(3)
    assert torch.equal(model.gate.wrong[: len(wrong)], wrong)
    assert not model.gate.wrong[len(wrong) :].any()


def test_the_gate_can_be_shown_images_with_their_labels():
    model = GatedNetwork({str(i): Stubborn(i, 3) for i in range(3)}, [0.0, 0.1, 0.2], held_out=0)
    labels = torch.tensor([2, 2, 2, 1]).repeat(25)
    images = torch.rand(100, 1, 4, 4)
    fit(model, [(images, labels)], None, TrainConfig(epochs=1, device="cpu"), quiet=True)
    assert model.gate.seen == 0
    for _ in range(4):
        model.judge(images, labels)
    assert model.gate_report().errors == (1, 0.75, 0.25)
    assert model.chosen() == "2"


def test_branches_learn_from_the_other_images_alone():
    torch.manual_seed(0)
    model = create_model("besselnet_gated", **TASK).train()
    images = smooth_images(100, 1, 12)
    held_out = held_out_share(image_keys(images), 0.2)
    F.cross_entropy(model(images[held_out]), torch.ones(int(held_out.sum())).long()).backward()
    assert not any(p.grad.any() for p in model.parameters())
    assert model.gate.seen == held_out.sum()

    F.cross_entropy(model(images[~held_out]), torch.ones(int((~held_out).sum())).long()).backward()
    assert all(p.grad.any() for p in model.parameters() if p.numel() > 10)
    assert model.gate.seen == held_out.sum()


def test_numbers_of_images_hold_out_a_share_of_every_kind():
    indices = torch.arange(4000)
    held_out = held_out_share(index_keys(indices), 0.2)
    assert len(index_keys(indices).unique()) == 4000
    for step in (1, 2, 5, 10):
        # Data sets repeat their classes; 400 draws of 0.2 have a standard deviation of 0.02.
        for start in range(step):
            assert held_out[start::step].float().mean() == pytest.approx(0.2, abs=0.06)


class Witness(nn.Module):
    """A branch that notes which images it learns from: each has a brightness of its own at its centre."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.learned = count, set()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        centre = x[:, 0, 6:9, 6:9].mean((-2, -1))
        if self.training:
            self.learned |= set((centre * self.count).round().int().tolist())
        return centre[:, None] * self.scale


def test_augmentation_leaks_no_held_out_image():
    count = 60
    y, x = torch.meshgrid(torch.arange(15.0) - 7, torch.arange(15.0) - 7, indexing="ij")
    disc = ((x**2 + y**2) < 36).float()
    # Rotated, mirrored and interpolated, the middle of a disc keeps its brightness.
    images = torch.arange(count)[:, None, None, None] / count * disc
    data = ImageSet(images, torch.arange(count) % 2, ("even", "odd"))
    model = GatedNetwork({"a": Witness(count), "b": Witness(count)}, [0.0, 0.1], held_out=0.3)
    augment = Compose([Rotate("bilinear"), Reflect()])
    batches = Batches(data, 10, shuffle=True, augment=augment)
    fit(model, batches, None, TrainConfig(epochs=8, device="cpu"), quiet=True)

    held_out = held_out_share(index_keys(torch.arange(count)), 0.3)
    learned = model.branches[0].learned | model.branches[1].learned
    assert learned == set((~held_out).nonzero().flatten().tolist())
    assert model.gate.seen == 8 * held_out.sum()
    assert model.gate_report().images == held_out.sum()


def test_numbers_of_images_hold_for_one_batch_and_must_be_as_many():
    model = GatedNetwork({str(i): Stubborn(i, 3) for i in range(3)}, [0.0, 0.1, 0.2], held_out=0.5)
    images = torch.rand(40, 1, 4, 4)
    by_number, by_pixels = (
        held_out_share(f, 0.5) for f in (index_keys(torch.arange(40)), image_keys(images))
    )
    assert not torch.equal(by_number, by_pixels)
    model.begin_batch(torch.arange(40))
    assert torch.equal(model(images).abs().amax(1) < 0.01, by_number)
    assert torch.equal(model(images).abs().amax(1) < 0.01, by_pixels)
    model.begin_batch(torch.arange(39))
    with pytest.raises(ValueError, match=r"shape \(39,\): must be \(40,\)"):
        model(images)


def test_a_fresh_last_layer_makes_the_gate_forget():
    model = create_model("besselnet_gated", **TASK)
    model.gate.observe(torch.arange(100), torch.tensor([1, 1, 1, 1, 0]).bool().expand(100, -1))
    assert model.chosen() == "plain"
    assert model.get_classifier() is model.branches[4].head
    assert model.num_features == model.branches[4].num_features
    model.reset_classifier(5)
    assert model.chosen() == "O(2)"
    assert model.eval()(torch.rand(2, 1, 12, 12)).shape == (2, 5)


def test_each_image_is_answered_by_one_branch():
    model = GatedNetwork({str(i): Stubborn(i, 3) for i in range(3)}, [0.0, 0.1, 0.2], held_out=0.3)
    images = torch.rand(90, 1, 4, 4)
    held_out = held_out_share(image_keys(images), 0.3)
    logits = model(images)
    counts = logits[~held_out].argmax(1).bincount(minlength=3)
    assert (counts - (~held_out).sum() / 3).abs().max() < 1
    # Held-out images are answered by the chosen branch, in a whisper.
    assert (logits[held_out].argmax(1) == 0).all()
    assert logits[held_out].abs().max() < 0.01


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_small_batches_train_with_batch_normalisation(count):
    torch.manual_seed(0)
    model = create_model("besselnet_gated", **TASK, held_out=0).train()
    images = smooth_images(count, 1, 12)
    F.cross_entropy(model(images), torch.arange(count) % 2).backward()
    # In training with several processes every parameter needs a gradient.
    assert all(p.grad is not None for p in model.parameters())


def test_pruned_is_the_chosen_branch_with_the_same_logits():
    torch.manual_seed(0)
    model = create_model("besselnet_gated", **TASK).eval()
    images = smooth_images(2, 1, 12)
    seen = set()
    for number, name in enumerate(BRANCHES):
        keys = torch.arange(number * WINDOW, (number + 1) * WINDOW * 4)
        model.gate.observe(keys, (torch.arange(5) != number).expand(len(keys), -1))
        assert model.chosen() == name
        pruned = model.pruned().eval()
        with torch.no_grad():
            logits = model(images)
            assert torch.equal(pruned(images), logits)
        seen.add(tuple(logits.flatten().tolist()))
        assert not [key for key in pruned.state_dict() if "gate" in key or "branches" in key]
        assert model.forward_features(images).shape[0] == 2
        if name != "plain":
            assert turn_error(pruned.double(), images.double()) < 1e-11
    assert len(seen) == len(BRANCHES)


def test_branches_have_about_equally_many_parameters():
    model = create_model("besselnet_gated", in_channels=1, num_classes=10, image_size=28)
    counts = [sum(p.numel() for p in branch.parameters()) for branch in model.branches]
    assert max(counts) / min(counts) < 1.1


def test_saved_weights_keep_the_choice():
    model = create_model("besselnet_gated", **TASK)
    model.gate.observe(torch.arange(100), torch.tensor([1, 1, 1, 1, 0]).bool().expand(100, -1))
    again = create_model("besselnet_gated", **TASK)
    again.load_state_dict(model.state_dict())
    assert model.chosen() == again.chosen() == "plain"


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("branches", (), "one or more of O\\(2\\)"),
        ("branches", ("SO(2)", "C4"), "SO\\(2\\)\\+, plain"),
        ("branches", ("SO(2)", "SO(2)"), "each once"),
        ("branches", "plain", "one or more"),
        ("held_out", 1.0, ">= 0 and < 1"),
        ("held_out", "half", ">= 0 and < 1"),
        ("price", -0.1, "a finite number >= 0"),
        ("price", float("nan"), "a finite number >= 0"),
    ],
)
def test_wrong_options_tell_what_is_allowed(option, value, allowed):
    with pytest.raises(ValueError, match=f"{option}=.*{allowed}"):
        create_model("besselnet_gated", **TASK, **{option: value})


def test_the_guide_tells_the_truth():
    guide = DOCS / "gate.md"
    results = doctest.testfile(str(guide), module_relative=False)
    assert results.attempted > 8
    assert results.failed == 0
