"""What else a run does with its images: the same for images on disk and in memory."""

from dataclasses import replace

import pytest
import torch

from besselnet.data import StoredImages, _cache
from besselnet.drawing import contact_sheet
from besselnet.train import (
    RobustSettings,
    evaluate_robust,
    evaluate_run,
    load_images,
    predict_shards,
    train_run,
    try_mirror_images,
)
from train.toy_run import make_images, quick_config
from train.toys import same

QUICK = RobustSettings(
    epsilons=(0.1,), attacked=4, placed=4, angles=2, curve_steps=1, steps=1, queries=1, tries=1
)


@pytest.fixture(scope="module", autouse=True)
def small_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BESSELNET_DATA", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(_cache, "_PIECE_BYTES", 7 * 3 * 10 * 10)
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


def config_of(source, cache, **train):
    found = quick_config(source)
    return replace(
        found, data=replace(found.data, cache=cache), train=replace(found.train, **train)
    )


@pytest.fixture(scope="module")
def runs(source, tmp_path_factory):
    """The same training from memory and from disk."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        train_run(config_of(source, cache), folder / cache, quiet=True)
        for cache in ("never", "always")
    ]


@pytest.fixture(scope="module")
def images(source):
    found = [load_images(config_of(source, cache).data) for cache in ("never", "always")]
    assert isinstance(found[1].train.images, StoredImages)
    return found


def test_trust_is_the_same(runs):
    first, second = (run.trust.tensors() for run in runs)
    assert len(first) > 0
    assert same(first, second)


def test_evaluation_is_the_same(runs):
    found = [evaluate_run(run) for run in runs]
    for results in found:
        results["trust"].pop("picture")
    assert found[0]["trust"] == found[1]["trust"]
    assert found[0]["accuracy"] == found[1]["accuracy"]


def test_robustness_is_the_same_and_continues_with_images_elsewhere(runs, images, tmp_path):
    kept = tmp_path / "robust.json"
    first = evaluate_robust(runs[0].model, images[0].test, settings=QUICK)
    assert first == evaluate_robust(runs[1].model, images[1].test, settings=QUICK, kept=kept)
    # All is done: the network is not asked again.
    asked = []
    hook = runs[0].model.register_forward_pre_hook(lambda *_: asked.append(1))
    assert first == evaluate_robust(runs[0].model, images[0].test, settings=QUICK, kept=kept)
    hook.remove()
    assert asked == []


def test_another_image_is_measured_anew(runs, images, tmp_path):
    kept = tmp_path / "robust.json"
    evaluate_robust(runs[0].model, images[1].test, settings=QUICK, kept=kept)
    before = kept.read_text()
    pixels = images[1].test.images[:]
    pixels[0] = 255 - pixels[0]
    evaluate_robust(
        runs[0].model, replace(images[1].test, images=pixels), settings=QUICK, kept=kept
    )
    assert kept.read_text() != before


def test_adversarial_training_is_the_same(source, tmp_path):
    models = [
        train_run(
            config_of(source, cache, adversarial=0.05, epochs=1), tmp_path / cache, quiet=True
        ).model
        for cache in ("never", "always")
    ]
    assert same(models[0].state_dict(), models[1].state_dict())


def test_contact_sheets_are_the_same(images, tmp_path):
    for number, splits in enumerate(images):
        contact_sheet(splits.train, tmp_path / f"{number}.png")
    assert (tmp_path / "0.png").read_bytes() == (tmp_path / "1.png").read_bytes()


def test_the_mirror_trial_is_the_same(source, images):
    # More images than there are: each of them several times.
    many = torch.arange(24).repeat(9)
    config = config_of(source, None)
    trials = [
        try_mirror_images(config, replace(splits, train=splits.train.select(many)), quiet=True)
        for splits in images
    ]
    assert trials[0] is not None
    assert trials[0] == trials[1]


def test_the_playground_shows_the_same(runs):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")
    from besselnet.play import run_files

    first, second = (run_files(run) for run in runs)
    assert first["images.bin"] == second["images.bin"]
    assert first["run.json"] == second["run.json"].replace(b'"always"', b'"never"')


def test_predict_answers_as_training_saw(runs, source, tmp_path):
    for run in runs:
        predict_shards(run, [source / "test"], tmp_path / run.folder.name, workers=0)
    rows = [(tmp_path / run.folder.name / "rows-00000-000000.csv").read_text() for run in runs]
    assert rows[0] == rows[1]
    assert rows[0].count("\n") == 13
