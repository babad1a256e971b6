"""What is recommended follows from the images, and gives way to what is given."""

import re

import pytest
import torch

from besselnet.data import ImageSet, Splits
from besselnet.models import _registry, model_info, register_model
from besselnet.train import (
    make_config,
    merge_settings,
    recommend_config,
    recommend_settings,
    train_run,
)
from besselnet.train._recommend import (
    BATCH_SIZES,
    COLOUR_CHANNELS,
    DARK,
    DETAIL,
    EMA_DECAY,
    FEWEST_EPOCHS,
    LABEL_SMOOTHING,
    LIGHT,
    LIGHT_ON_GROUND,
    MOST_EPOCHS,
    MOVES,
    MOVES_OF_MASKS,
    MOVES_OF_VALUES,
    MOVES_ON_GROUND,
    PATCH,
    PATCHES_IN_BATCH,
    RATES,
    SKEW,
    SMOOTHED_CLASSES,
    STEPS,
    _steps,
)
from places import DOCS
from train.toy_run import make_images, toy_network
from train.toy_tasks import particles

SIZES = [2, 60, 100, 500, 900, 5000, 5001, 18000, 20000, 60000, 200000]


def some(count: int = 40, classes: int = 2, channels: int = 1, black: bool = False) -> Splits:
    """Noise, or a bright square on black."""
    images = torch.randint(0, 256, (1, channels, 8, 8), dtype=torch.uint8)
    if black:
        images = torch.zeros(1, channels, 8, 8, dtype=torch.uint8)
        images[:, :, 3:5, 3:5] = 200
    labels = torch.arange(count) % classes
    names = tuple(map(str, range(classes)))
    return Splits(ImageSet(images.expand(count, -1, -1, -1), labels, names))


def recommended(splits: Splits, model: str = "toy", **given) -> dict:
    return make_config(
        recommend_settings(splits, model, given).settings, {"model": {"name": model}}
    )


def test_more_images_get_more_steps_and_no_smaller_batches():
    found = [recommended(some(count)).train for count in SIZES]
    steps = [_steps(count) for count in SIZES]
    assert steps == sorted(steps)
    batches = [train.batch_size for train in found]
    assert batches == sorted(batches)
    for count, train in zip(SIZES, found):
        assert FEWEST_EPOCHS <= train.epochs <= MOST_EPOCHS
        if FEWEST_EPOCHS < train.epochs < MOST_EPOCHS:
            taken = train.epochs * count / train.batch_size
            assert taken == pytest.approx(_steps(count), rel=0.5 / FEWEST_EPOCHS)


def test_the_table_of_steps_is_met_and_bounded():
    for images, steps in STEPS.items():
        assert _steps(images) == pytest.approx(steps)
    assert _steps(1) == pytest.approx(min(STEPS.values()))
    assert _steps(10**7) == pytest.approx(max(STEPS.values()))
    for least, size in BATCH_SIZES.items():
        assert recommended(some(max(least, 1))).train.batch_size == size


def test_a_given_batch_size_keeps_the_number_of_steps():
    usual = recommended(some(1000)).train
    given = recommended(some(1000), train={"batch_size": usual.batch_size * 2}).train
    assert given.epochs == pytest.approx(2 * usual.epochs, abs=1)


def test_augmentation_follows_channels_symmetry_and_ground():
    grey, colour = recommended(some()).data, recommended(some(channels=3)).data
    assert set(colour.augment) - set(grey.augment) == {"colour"}
    assert "reflect" not in colour.augment
    mirrored = recommend_settings(
        some(), "besselnet_small", {"model": {"options": {"symmetry": "O(2)"}}}
    )
    assert "reflect" in mirrored.settings["data"]["augment"]
    assert "reflect" in recommended(some(), "bcnn_o2").data.augment
    # Rotated images would answer what this network asks of the data.
    assert not {"rotate", "reflect", "scale"} & {
        *recommended(some(), "besselnet_gated").data.augment
    }
    assert grey.border == "reflect"
    assert recommended(some(black=True)).data.border == "zeros"


def test_objects_cut_out_as_large_as_the_frame_are_seen_whole():
    y, x = torch.meshgrid(*(torch.linspace(-1, 1, 32),) * 2, indexing="ij")
    shown = (y.square() + x.square() < 1.15**2) * torch.randint(50, 256, (40, 1, 32, 32))
    cells = Splits(ImageSet(shown.to(torch.uint8), torch.arange(40) % 2, ("a", "b")))
    found = recommended(cells, "besselnet_small")
    assert found.model.options["field"] == "square"
    # Cells next to each other may come in from outside, and textures are seen in many places.
    assert (found.data.border, found.model.options["last_padding"]) == ("reflect", "same")
    assert recommended(some(), "besselnet_small").model.options["field"] == "disc"


def test_small_textures_keep_fine_detail():
    texture = recommended(some(), "besselnet_small").model.options
    assert [texture[option] for option in DETAIL] == list(DETAIL.values())
    object_on_black = recommended(some(black=True), "besselnet_small").model.options
    defaults = model_info("besselnet_small").options
    for option in DETAIL:
        assert object_on_black[option] == defaults[option] != texture[option]
    given = recommend_settings(
        some(), "besselnet_small", {"model": {"options": {"kernel_size": 9}}}
    )
    assert "kernel_size" not in given.settings["model"]["options"]
    assert given.settings["model"]["options"]["low_pass"] == 0
    assert "small kernels" not in given.reason


def test_skewed_classes_are_balanced_and_the_reason_says_so():
    labels = torch.arange(40) >= 8  # 8 of one class, 32 of the other
    skewed = Splits(ImageSet(some().train.images, labels.long(), ("a", "b")))
    found = recommend_settings(skewed, "toy")
    assert SKEW < 4
    assert found.settings["data"]["balance"]
    assert "4.0 times" in found.reason
    assert "balance" not in recommend_settings(some(), "toy").settings["data"]
    weighted = recommend_settings(skewed, "toy", {"train": {"class_weights": "balanced"}})
    assert "balance" not in weighted.settings["data"]


def test_a_model_keeps_its_own_rate_and_others_get_the_usual_one():
    own = model_info("besselnet_small").training
    found = recommended(some(), "besselnet_small").train
    for key in ("learning_rate", "weight_decay", "optimizer"):
        assert getattr(found, key) == own[key]
    assert recommended(some(), "resnet18").train.optimizer == "adamw"
    # A rate of AdamW is none of SGD.
    given = recommend_settings(some(), "resnet18", {"train": {"optimizer": "sgd"}})
    assert "learning_rate" not in given.settings["train"]


@pytest.mark.parametrize("black", [True, False])
def test_a_model_with_a_field_gets_the_one_of_its_images(monkeypatch, black):
    monkeypatch.setattr(_registry, "_MODELS", dict(_registry._MODELS))

    @register_model("fielded", symmetry="none", exactness="none", sizes="any", smallest_size=8)
    def fielded(*, in_channels, num_classes, image_size, field="disc"):
        """With a field."""
        return toy_network(in_channels=in_channels, num_classes=num_classes, image_size=image_size)

    found = recommend_settings(some(black=black), "fielded")
    field = "square" if black else "disc"
    assert found.settings["model"]["options"] == {"field": field}
    assert f"field: {field}, because" in found.reason
    # Also when another file named another model first.
    config, _, _ = recommend_config(
        {"model": {"name": "toy", "options": {"width": 2}}},
        {"model": {"name": "fielded"}},
        images=some(black=black),
    )
    assert config.model.options == {"field": field}


def test_what_is_given_wins_and_is_not_told():
    splits = some(classes=4)
    free = recommend_settings(splits, "toy")
    assert all(part in free.reason for part in ("40 images", "4 classes", "8 x 8", "epochs"))
    config, images, found = recommend_config(
        {"model": {"name": "toy"}}, settings=["train.epochs=7", "data.augment=[]"], images=splits
    )
    assert images is splits
    assert (config.train.epochs, config.data.augment) == (7, ())
    assert config.train.batch_size == free.settings["train"]["batch_size"]
    assert "epochs" not in found.reason
    assert "rotate" not in found.reason
    assert recommend_settings(splits, "toy", merge_settings(config)).reason == ""


def test_a_recommended_run_is_resumed_as_it_began(tmp_path):
    images = make_images(tmp_path / "images")
    settings = ["train.epochs=1", "train.device=cpu"]
    layers = {"data": {"source": str(images)}, "model": {"name": "toy"}}
    config, splits, _ = recommend_config(layers, settings=settings)
    train_run(config, tmp_path / "run", images=splits, quiet=True)
    again, _, _ = recommend_config(layers, settings=settings)
    assert again == config
    train_run(again, tmp_path / "run", resume=True, quiet=True)


def test_the_page_on_training_has_these_numbers():
    page = (DOCS / "training.md").read_text()
    rows = dict(re.findall(r"^\| (.+?) \| (.+) \|$", page, re.MULTILINE))

    def numbers(row: str) -> list[float]:
        found = re.findall(r"(?<![\w(])\d+(?: \d{3})*(?:\.\d+)?", rows[row])
        return [float(number.replace(" ", "")) for number in found]

    steps = [number for images, count in STEPS.items() for number in (count, images)]
    assert numbers("`train.epochs`") == [*steps, FEWEST_EPOCHS, MOST_EPOCHS]
    first, *others = BATCH_SIZES.items()
    batches = [number for start, size in others for number in (start - 1, size)]
    assert numbers("`train.batch_size`") == [first[1], *batches]
    assert numbers("`train.optimizer`, `learning_rate`, `weight_decay`") == [
        RATES["learning_rate"],
        RATES["weight_decay"],
    ]
    assert numbers("`train.ema_decay`, `train.label_smoothing`") == [
        EMA_DECAY,
        LABEL_SMOOTHING,
        SMOOTHED_CLASSES,
    ]
    assert numbers("`data.balance`") == [SKEW]
    assert numbers("masks") == [PATCH, PATCHES_IN_BATCH]
    assert numbers("`data.border`") == [DARK]
    assert numbers("`data.augment`, both") == [COLOUR_CHANNELS]
    for kind, names in (
        ("full frames", MOVES + LIGHT),
        ("objects on a uniform background", MOVES_ON_GROUND + LIGHT_ON_GROUND),
    ):
        assert re.split("[.;]", rows[f"`data.augment`, {kind}"])[0] == ", ".join(names)


@pytest.mark.parametrize("shape", [(100, 90), (128, 128), (200, 300)])
def test_large_images_with_masks_are_trained_on_patches(shape):
    splits = Splits(particles("segment", 5, 0, shape))
    found = recommended(splits, "toy_pixels")
    large = max(shape) > PATCH
    assert found.data.patch == (PATCH if large else None)
    assert found.data.patches_per_image == (round(shape[0] * shape[1] / PATCH**2) if large else 1)
    assert found.train.batch_size == PATCHES_IN_BATCH
    patches = 5 * found.data.patches_per_image
    epochs = round(_steps(patches) * PATCHES_IN_BATCH / patches)
    assert found.train.epochs == min(epochs, MOST_EPOCHS)
    assert found.data.augment == (*MOVES_OF_MASKS, *LIGHT)
    assert not found.data.balance
    assert "patches" in recommend_settings(splits, "toy_pixels").reason or not large


def test_given_patches_decide_how_long_to_train():
    splits = Splits(particles("segment", 40, 0, (64, 64)))
    few, many = (
        recommended(splits, "toy_pixels", data={"patch": 16, "patches_per_image": n})
        for n in (1, 50)
    )
    assert many.train.epochs < few.train.epochs


def test_values_are_not_scaled_shifted_or_brightened():
    found = recommended(Splits(particles("regress", 20, 0)), "toy_pooled")
    assert found.data.augment == MOVES_OF_VALUES
    assert found.train.label_smoothing == 0
    labelled = recommended(Splits(particles("multilabel", 20, 0)), "toy_pooled")
    assert labelled.data.augment == (*MOVES, *LIGHT)


def test_masks_choose_a_network_that_answers_for_pixels():
    config, _, _ = recommend_config(images=Splits(particles("segment", 4, 0)))
    assert model_info(config.model.name).answers == "pixels"
    config, _, _ = recommend_config(images=Splits(particles("regress", 4, 0)))
    assert config.model.name == make_config().model.name
    config = make_config({"data": {"task": "segment"}})
    assert model_info(config.model.name).answers == "pixels"
