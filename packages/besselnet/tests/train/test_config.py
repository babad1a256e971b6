"""Configuration: what is accepted, what is refused, and in which words."""

import dataclasses
import json
import typing

import pytest

from besselnet.train._config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    changed_settings,
    config_hash,
    describe_settings,
    from_dict,
    override,
    read_config,
    to_dict,
)

SECTIONS = [TrainConfig, DataConfig, ModelConfig]


def example() -> RunConfig:
    return RunConfig(
        data=DataConfig(source="digits", augment=("rotate",), options={"size": 3}),
        model=ModelConfig(name="net", options={"width": 8, "scales": None}),
        train=TrainConfig(epochs=3, class_weights=(1.0, 2.0), clip_norm=0.5),
    )


def test_a_config_survives_json():
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(example())))) == example()


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_setting_that_may_be_none_is_none_by_default(kind):
    hints = typing.get_type_hints(kind)
    for f in dataclasses.fields(kind):
        if type(None) in typing.get_args(hints[f.name]):
            assert f.default is None, f.name


def test_every_setting_is_described():
    described = {key for key, _, text in describe_settings() if text}
    for section in ("data", "model", "train"):
        kind = typing.get_type_hints(RunConfig)[section]
        assert {f"{section}.{f.name}" for f in dataclasses.fields(kind)} <= described


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train": {"epoch": 3}}, "unknown setting 'train.epoch': did you mean 'train.epochs'?"),
        ({"trian": {}}, "unknown setting 'trian': did you mean 'train'?"),
        ({"train": {"zzz": 3}}, "unknown setting 'train.zzz': known are accumulate,"),
        ({"train": {"epochs": "3"}}, "train.epochs must be a whole number, got '3'"),
        ({"train": {"epochs": True}}, "train.epochs must be a whole number, got True"),
        ({"train": {"epochs": 0}}, "epochs must be at least 1, got 0"),
        ({"train": {"learning_rate": float("nan")}}, "learning_rate must be above 0, got nan"),
        ({"train": {"optimizer": "adan"}}, "'adam' or 'adamw' or 'sgd', got 'adan'"),
        ({"train": {"class_weights": [1, -1]}}, "class_weights must be all above 0"),
        ({"train": {"class_weights": "even"}}, "train.class_weights must be 'balanced' or a list"),
        ({"train": 3}, "train must be a section of settings, got 3"),
        ({"data": {"augment": ["spin"]}}, r"data.augment\[0\] must be 'rotate' or 'reflect'"),
        ({"format": 99}, "run format 99 is not the format 1"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        from_dict(RunConfig, values)


def test_overrides_read_values_as_toml_and_bare_words_as_text():
    values = override(
        {"train": {"epochs": 9, "clip_norm": 1.0}},
        [
            "train.epochs=3",
            "train.clip_norm=none",
            "train.optimizer=sgd",
            "train.learning_rate = 1e-2",
            "data.augment=['rotate']",
            "model.options.width=4",
        ],
    )
    config = from_dict(RunConfig, values)
    assert config.train == TrainConfig(epochs=3, optimizer="sgd", learning_rate=1e-2)
    assert config.data.augment == ("rotate",)
    assert config.model.options == {"width": 4}


@pytest.mark.parametrize("assignment", ["train.epochs", "=3", "train..epochs=3", "format.x=3"])
def test_a_malformed_override_is_refused(assignment):
    with pytest.raises(ValueError, match="setting"):
        override({"format": 1}, [assignment])


def test_toml_and_json_files_say_the_same(tmp_path):
    (tmp_path / "a.toml").write_text('[train]\nepochs = 3\noptimizer = "sgd"\n')
    (tmp_path / "a.json").write_text('{"train": {"epochs": 3, "optimizer": "sgd"}}')
    assert read_config(tmp_path / "a.toml") == read_config(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "= 3"), ("a.json", "{"), ("a.json", "[]"), ("a.yaml", "")]
)
def test_a_broken_file_is_refused_by_name(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        read_config(tmp_path / name)


def test_the_hash_and_the_changes_see_every_setting():
    same = from_dict(RunConfig, to_dict(example()))
    assert config_hash(same) == config_hash(example())
    other = dataclasses.replace(example(), train=TrainConfig(epochs=4))
    assert config_hash(other) != config_hash(example())
    assert changed_settings(to_dict(example()), to_dict(other)) == [
        "train.class_weights: [1.0, 2.0] -> None",
        "train.clip_norm: 0.5 -> None",
        "train.epochs: 3 -> 4",
    ]
