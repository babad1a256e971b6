"""Tasks: scores and results of each kind of labels, and whole runs of them."""

import csv
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from besselnet import convert, drawing
from besselnet.data import IGNORED, Batches, ImageSet, Splits
from besselnet.masks import mask_agreement
from besselnet.models import read_network_config
from besselnet.train import (
    Classify,
    DataConfig,
    Interrupted,
    ModelConfig,
    Multilabel,
    Segment,
    TrainConfig,
    evaluate,
    evaluate_rotated,
    evaluate_run,
    find_learning_rate,
    fit,
    load_images,
    load_run,
    task_of,
    train_folds,
    train_run,
    try_mirror_images,
)
from besselnet.train._evaluate import with_objects
from besselnet.train._fit import CHECKPOINT_NAME
from besselnet.train._images import make_batches
from besselnet.train._losses import ValueLoss
from besselnet.train._optimise import learning_rate
from besselnet.train._tasks import read_task
from train.toy_tasks import make_splits, particles, task_config
from train.toys import ToyBatches, same, toy_model, weights_of
from unet import UNet

TASKS = ("segment", "regress", "multilabel")
# Scores that only a network reaches that has learned.
LEARNED = {"segment": 0.75, "regress": 0.8, "multilabel": 0.9}


def outputs_for(task, labels):
    """What a network gives that is always right."""
    if task.name == "segment":
        shown = labels.clamp(max=len(task.classes) - 1)
        return 9.0 * F.one_hot(shown, len(task.classes)).movedim(-1, 1).float()
    if task.name == "regress":
        return (labels - task.mean) / task.deviation
    if task.name == "multilabel":
        return 9 * (2 * labels - 1)
    return 9.0 * F.one_hot(labels, len(task.classes)).float()


class Lookup(torch.nn.Module):
    """Answers with the next of some outputs."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = iter(outputs)

    def forward(self, images):
        return next(self.outputs)


def batch_of(imageset):
    labels = imageset.labels
    wanted = {torch.uint8: torch.int64, torch.bool: torch.float32}.get(labels.dtype, labels.dtype)
    return imageset.images, labels.to(wanted)


def metrics(folder):
    return list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))


def test_values_are_learned_in_deviations_from_their_mean():
    images = particles("regress", 40, 5)
    task = task_of(images)
    right = outputs_for(task, images.labels)
    torch.testing.assert_close(right.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(right.std(0, correction=0), torch.ones(2))
    assert ValueLoss(task.mean, task.deviation)(right, images.labels)[0] < 1e-5
    torch.testing.assert_close(task.answer(right), images.labels)


@pytest.mark.parametrize("name", TASKS)
def test_scores_while_training_are_those_of_evaluation(name):
    images, labels = batch_of(particles(name, 30, 1))
    task = task_of(particles(name, 30, 1))
    generator = torch.Generator().manual_seed(2)
    right = outputs_for(task, labels)
    outputs = right + 0.5 * right.abs().max() * torch.randn(right.shape, generator=generator)
    parts = [(images[i : i + 7], labels[i : i + 7]) for i in range(0, 30, 7)]
    result = evaluate(Lookup(outputs.split(7)), parts, task=task)
    tally = sum(task.tally(o, y).double() for o, (_, y) in zip(outputs.split(7), parts))
    assert task.score_of(tally, 30) == pytest.approx(result.score, abs=1e-4)
    assert 0 < result.score < 1
    assert len(tally) == task.tally_size
    assert result.to_dict()["images"] == 30
    assert result.to_dict()[task.score] == result.score


@pytest.mark.parametrize("name", [*TASKS, "classify"])
def test_right_answers_have_the_best_score(name):
    imageset = (
        ImageSet(torch.rand(9, 1, 4, 4), torch.arange(9) % 3, ("a", "b", "c"))
        if name == "classify"
        else particles(name, 9, 3)
    )
    task, (images, labels) = task_of(imageset), batch_of(imageset)
    outputs = outputs_for(task, labels)
    found = evaluate(Lookup([outputs]), [(images, labels)], task=task)
    assert found.score == pytest.approx(1, abs=1e-5)
    assert json.loads(json.dumps(found.to_dict(task.classes), allow_nan=False))[
        task.table
    ].keys() == set(task.classes)
    rows = task.rows(outputs)
    assert len(rows) == 9
    if name == "regress":
        assert rows[0]["area"] == pytest.approx(labels[0, 0].item(), rel=1e-4)
    if name == "segment":
        assert sum(rows[0].values()) == pytest.approx(1)


def test_iou_and_dice_of_a_known_mask():
    truth = torch.tensor([[[0, 0, 1, 1, IGNORED]]])
    logits = 9.0 * F.one_hot(torch.tensor([[[0, 1, 1, 1, 0]]]), 3).movedim(-1, 1).float()
    found = evaluate(Lookup([logits]), [(torch.zeros(1, 1, 1, 5), truth)], task=Segment("abc"))
    # Class c is in neither, and is left out of the means.
    assert found.iou == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found.dice == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert found.accuracy == 3 / 4


@pytest.mark.parametrize("name", TASKS)
def test_a_run_learns_and_comes_back(tmp_path, name):
    config = task_config(name)
    run = train_run(config, tmp_path / "run", quiet=True)
    task = run.learned
    assert run.task == name
    assert run.results()["test"][task.score] > LEARNED[name]
    rows = metrics(tmp_path / "run")
    for column in (f"train_{task.score}", f"val_{task.score}"):
        assert float(rows[-1][column]) > float(rows[0][column])
    again = load_run(tmp_path / "run")
    assert again.learned.about() == task.about()
    with pytest.raises(ValueError, match=f"robust=True: must be False for {task.labels}"):
        evaluate_run(again, robust=True)
    report = evaluate_run(again, rotated=True, angles=4)
    assert report[task.score] == run.results()["test"][task.score]
    assert (tmp_path / "run" / "rotated.png").exists()
    assert (tmp_path / "run" / "confusion.png").exists() == (name == "segment")
    pictures = {"segment": "overlays.png", "regress": "values.png"}
    for kind, picture in pictures.items():
        assert (tmp_path / "run" / picture).exists() == (name == kind)


@pytest.mark.parametrize("name", ["regress", "multilabel"])
def test_quarter_turns_of_a_network_that_commutes_with_them_change_nothing(name):
    class Commutes(torch.nn.Module):
        """The mean of all pixels: the same for rotated images."""

        def forward(self, images):
            return torch.cat([images - 0.5, 0.5 - images], dim=1).mean((2, 3))

    imageset = particles(name, 12, 4, (20, 20))
    found = evaluate_rotated(
        Commutes(), [batch_of(imageset)], angles=4, border="black", task=task_of(imageset)
    )
    assert found.agreement == pytest.approx([1, 1, 1, 1], abs=1e-4)
    assert found.scores == pytest.approx([found.scores[0]] * 4, abs=1e-4)
    assert max(found.drift) < 1e-4
    assert f"rotated_{task_of(imageset).score}" in found.to_dict()


def test_rotated_masks_are_compared_in_one_place():
    with pytest.raises(ValueError, match="mask_agreement"):
        evaluate_rotated(torch.nn.Identity(), [], task=Segment(("a", "b")))


def test_boundaries_of_all_images_are_counted_together():
    truth = torch.zeros(2, 1, 9, dtype=torch.int64)
    truth[0, :, 3:] = truth[1, :, 1:] = 1
    # Three pixels off in one image, and none in the other: a quarter of each boundary is right.
    guess = truth.roll(3, dims=2)
    guess[0, :, :3], guess[1] = 0, truth[1]
    logits = 9.0 * F.one_hot(guess, 2).movedim(-1, 1).float()
    batches = [(torch.zeros(1, 1, 1, 9), mask[None]) for mask in truth]
    found = evaluate(Lookup(logits.split(1)), batches, task=Segment("ab"))
    assert found.boundary_f1 == 0.5
    assert [row["boundary_f1"] for row in found.per_class()] == [0.5, 0.5]


def test_single_objects_are_scored_where_the_images_have_their_numbers():
    """Two touching objects, a border between them: one is found, one is too small."""
    classes = ("background", "object", "border")
    labels = torch.zeros(2, 8, 12, dtype=torch.uint8)
    labels[:, 2:6, 1:9] = 1
    labels[:, 2:6, 4:6] = 2
    instances = torch.zeros(2, 8, 12, dtype=torch.int32)
    instances[:, 2:6, 1:5], instances[:, 2:6, 5:9] = 1, 2
    imageset = ImageSet(torch.rand(2, 1, 8, 12), labels, classes, instances=instances)
    guess = labels.clone()
    guess[1, :, 6:] = 0
    batches = Batches(imageset, 1)
    logits = 9.0 * F.one_hot(guess.long(), 3).movedim(-1, 1).float()
    result = evaluate(Lookup(logits.split(1)), batches, task=Segment(classes))
    found = with_objects(result, Lookup(logits.split(1)), batches).objects
    assert (found.true, found.predicted, found.matched) == (4, 3, 3)
    without = Batches(replace(imageset, instances=None), 1)
    assert with_objects(result, Lookup([]), without) is result


@pytest.mark.parametrize("name", TASKS)
def test_stopped_and_resumed_runs_end_with_the_same_weights(tmp_path, monkeypatch, name):
    config = task_config(name, epochs=3, checkpoint_steps=1, ema_decay=0.9)
    if name == "segment":
        config = replace(config, data=replace(config.data, patch=12, patches_per_image=2))
    splits = make_splits(name)
    whole = train_run(config, tmp_path / "whole", images=splits, quiet=True)
    task = task_of(splits.train)
    steps = len(make_batches(config, splits.train, training=True))
    calls = iter(range(10**6))
    tally = type(task).tally

    def stop(self, outputs, labels):
        # In the middle of the second epoch.
        if next(calls) == steps + 2:
            raise Interrupted("stopped", 2)
        return tally(self, outputs, labels)

    with monkeypatch.context() as patch:
        patch.setattr(type(task), "tally", stop)
        with pytest.raises(Interrupted):
            train_run(config, tmp_path / "run", images=splits, quiet=True)
    assert (tmp_path / "run" / CHECKPOINT_NAME).exists()
    resumed = train_run(config, tmp_path / "run", images=splits, resume=True, quiet=True)
    assert same(weights_of(whole.model), weights_of(resumed.model))
    rows = [
        [(key, value) for key, value in row.items() if "second" not in key]
        for folder in ("whole", "run")
        for row in metrics(tmp_path / folder)
    ]
    assert rows[:3] == rows[3:]


KILLED = """
import sys
from train.test_tasks import patched_config
from besselnet.train import train_run
train_run(patched_config(sys.argv[2]), sys.argv[1], quiet=True)
"""


SMALL = {"toy_pixels": {}, "besselnet_unet": {"channels": [[3], [4], [4]]}}


def patched_config(name, checkpoint_steps=1):
    config = task_config("segment", epochs=8, checkpoint_steps=checkpoint_steps)
    return replace(
        config,
        data=replace(config.data, patch=16, patches_per_image=2),
        model=ModelConfig(name, SMALL[name]),
    )


@pytest.mark.parametrize("name", SMALL)
def test_a_segmentation_killed_at_random_moments_ends_with_the_same_weights(tmp_path, name):
    place, chance = tmp_path / "run", random.Random(0)
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{os.environ.get('PYTHONPATH', '')}"}
    program = [sys.executable, "-c", KILLED, place, name]
    with subprocess.Popen(program, env=environment) as training:
        started = time.monotonic()
        while not (place / CHECKPOINT_NAME).exists() and time.monotonic() < started + 60:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        training.kill()
    assert training.returncode == -signal.SIGKILL
    assert not (place / "model").exists()
    resumed = train_run(patched_config(name), place, resume=True, quiet=True)
    whole = train_run(patched_config(name, None), tmp_path / "whole", quiet=True)
    assert same(weights_of(whole.model), weights_of(resumed.model))


@pytest.mark.parametrize("name", TASKS)
def test_changed_labels_are_noticed(tmp_path, name):
    config, splits = task_config(name, epochs=1), make_splits(name)
    train_run(config, tmp_path / "run", images=splits, quiet=True)
    labels = splits.train.labels.clone()
    labels[3] = labels[4]
    other = Splits(replace(splits.train, labels=labels), splits.val, splits.test)
    with pytest.raises(ValueError, match="labels of 1 image"):
        train_run(config, tmp_path / "run", images=other, resume=True, quiet=True)


def test_mean_and_deviation_are_in_the_folder_of_the_network(tmp_path):
    run = train_run(task_config("regress", epochs=1), tmp_path / "run", quiet=True)
    config = read_network_config(tmp_path / "run" / "model")
    values = run.load_images().train.labels
    assert config["about"]["mean"] == pytest.approx(values.mean(0).tolist(), rel=1e-5)
    spread = values.std(0, correction=0).tolist()
    assert config["about"]["deviation"] == pytest.approx(spread, rel=1e-4)


@pytest.mark.parametrize(
    "about",
    [
        {"task": "paint"},
        {"task": ["regress"]},
        {"task": "regress"},
        {"task": "regress", "mean": [0.0], "deviation": [1.0, 1.0]},
        {"task": "regress", "mean": [0.0, "a"], "deviation": [1.0, 1.0]},
        {"task": "regress", "mean": [0.0, 1.0], "deviation": [1.0, 0.0]},
        {"task": "regress", "mean": [0.0, math.nan], "deviation": [1.0, 1.0]},
    ],
)
def test_a_folder_that_tells_nonsense_of_its_task_is_refused(about):
    with pytest.raises(ValueError, match=r"^there"):
        read_task("there", ("a", "b"), about)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (
            "segment",
            {"model": "toy_pooled"},
            "has masks, but toy_pooled returns one prediction per image",
        ),
        (
            "regress",
            {"model": "toy_pixels"},
            "has values, but toy_pixels returns one prediction per pixel",
        ),
        ("segment", {"task": "regress"}, "data.task='regress': toy-particles has masks"),
        ("regress", {"monitor": "val_iou"}, "monitor='val_iou': must be 'val_loss' or 'val_r2'"),
        ("regress", {"class_weights": "balanced"}, "class_weights='balanced': must be unset"),
        ("regress", {"label_smoothing": 0.1}, "label_smoothing=0.1"),
        ("multilabel", {"class_weights": (1.0, 1.0)}, "must be unset for several labels"),
        ("multilabel", {"patch": 8}, "patch=.* without masks"),
        ("segment", {"balance": True}, "balance=True"),
    ],
)
def test_a_wrong_pairing_is_one_clear_line(tmp_path, task, changes, message):
    config = task_config(task)
    for key, value in changes.items():
        if key == "model":
            config = replace(config, model=replace(config.model, name=value))
        elif hasattr(config.data, key):
            config = replace(config, data=replace(config.data, **{key: value}))
        else:
            config = replace(config, train=replace(config.train, **{key: value}))
    with pytest.raises(ValueError, match=message) as caught:
        train_run(config, tmp_path / "run", quiet=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", TASKS)
def test_mirror_images_are_tried_for_classes_only(name):
    images = Splits(particles(name, 240, 0))
    assert try_mirror_images(task_config(name), images, quiet=True) is None


@pytest.mark.parametrize("name", TASKS)
def test_the_task_is_told_to_sources_that_ask(name):
    assert load_images(DataConfig(source="toy-particles", task=name)).train.task == name


@pytest.mark.parametrize("name", TASKS)
def test_folds_test_every_image_once_and_have_the_scores_of_their_runs(tmp_path, name):
    config = task_config(name, epochs=2)
    config = replace(config, data=replace(config.data, folds=3))
    found = train_folds(config, tmp_path, quiet=True)
    assert sum(found.images) == len(make_splits(name).merged())
    score = found.task.score
    for number, expected in enumerate(found.scores, 1):
        report = evaluate_run(load_run(tmp_path / f"fold-{number}"))
        assert report[score] == pytest.approx(expected)
    written = json.loads((tmp_path / "folds.json").read_text())
    assert written == found.to_dict()
    assert written[f"mean_{score}"] == pytest.approx(sum(found.scores) / 3)
    assert found.accuracy is found.interval is None


def test_a_converted_unet_of_ones_own_learns_masks_and_rotates_them():
    splits = make_splits("segment")
    torch.manual_seed(0)
    model = convert(UNet(), image_size=20, repair="all")
    config = TrainConfig(epochs=6, batch_size=8, learning_rate=0.01, device="cpu")
    batches = Batches(splits.train, 8, shuffle=True)
    fit(model, batches, None, config, task=task_of(splits.train), quiet=True)
    test = Batches(splits.test, 8)
    assert evaluate(model, test, task=task_of(splits.train)).score > 0.75
    cut = slice(4, 24)
    images, labels = splits.test.images[..., cut], splits.test.labels[..., cut]
    square = replace(splits.test, images=images, labels=labels)
    found = mask_agreement(model, Batches(square, 8), angles=8).agreement
    assert found[::2].min() > 0.999
    assert found.min() > 0.85


def test_images_smaller_than_the_network_takes_are_named(tmp_path):
    config = replace(task_config("segment"), model=ModelConfig("besselnet_unet"))
    with pytest.raises(ValueError, match=r"toy-particles: images are 15 x 40 pixels"):
        train_run(config, tmp_path / "run", images=make_splits("segment", (15, 40)), quiet=True)


def test_a_picture_shows_no_prediction_for_pixels_without_a_label(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(drawing, "draw_overlays", lambda *given: drawn.append(given))
    images = particles("segment", 3, 0)
    model = nn.Conv2d(1, 2, 1)
    Segment(images.classes).draw(tmp_path, None, model, images)
    ((_, _, masks, truths, _),) = drawn
    unlabelled = truths == IGNORED
    assert unlabelled.any()
    assert ((masks == IGNORED) == unlabelled).all()


def test_a_wide_image_is_learned_from_patches_and_tested_whole(tmp_path):
    config = task_config("segment", epochs=4)
    config = replace(config, data=replace(config.data, patch=16, patches_per_image=3))
    splits = make_splits("segment", (24, 40))
    assert len(make_batches(config, splits.train, training=True)) == 48 * 3 // 8
    assert make_batches(config, splits.test)[0][0].shape[1:] == (1, 24, 40)
    run = train_run(config, tmp_path / "run", images=splits, quiet=True)
    assert run.image_size == 16
    assert run.results()["test"]["images"] == 16
    assert run.results()["test"]["iou"] > 0.5


def test_classes_are_learned_bit_for_bit_as_in_a_plain_loop():
    config, batches = TrainConfig(epochs=3, learning_rate=0.01, device="cpu"), ToyBatches(61)
    plain, default, named = (toy_model(dropout=0) for _ in range(3))
    fit(default, batches, None, config, quiet=True)
    fit(named, batches, None, config, task=Classify(("a", "b")), quiet=True)
    optimizer = torch.optim.Adam(plain.parameters())
    for epoch in range(3):
        batches.set_epoch(epoch)
        for index, (images, labels) in enumerate(batches):
            optimizer.param_groups[0]["lr"] = learning_rate(config, 4 * epoch + index, 12)
            optimizer.zero_grad()
            loss = F.cross_entropy(plain(images), labels, reduction="sum") * (1 / len(labels))
            loss.backward()
            optimizer.step()
    assert same(weights_of(plain), weights_of(default))
    assert same(weights_of(plain), weights_of(named))


def test_own_batches_need_a_task_only_for_other_labels_than_classes():
    imageset = particles("multilabel", 16, 0)
    batches = [batch_of(imageset)]
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(400, 2))
    settings = TrainConfig(epochs=2, device="cpu")
    history = fit(model, batches, batches, settings, task=Multilabel(("a", "b")), quiet=True)
    assert {"train_f1", "val_f1"} <= history.rows[-1].keys()
    curve = find_learning_rate(model, batches, settings, task=Multilabel(("a", "b")), steps=20)
    assert curve.suggestion > 0
    assert Classify().about() == {}
