"""Configuration: what is accepted, what is refused, and in which words."""

import dataclasses
import json
import typing

import pytest

from besselnet.models import list_models, model_info
from besselnet.train._config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    changed_settings,
    config_hash,
    describe_settings,
    from_dict,
    make_config,
    override,
    read_config,
    to_dict,
)
from hostile import make_special, refused

DEFAULT_MODEL = list_models()[0]
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
    for section in ("data", "train"):
        kind = typing.get_type_hints(RunConfig)[section]
        assert {f"{section}.{f.name}" for f in dataclasses.fields(kind)} <= described
    options = {f"model.options.{option}" for option in model_info(DEFAULT_MODEL).options}
    assert {"model.name", *options} <= described


@pytest.mark.parametrize("name", [DEFAULT_MODEL, "cnn"])
def test_described_are_the_values_that_a_run_of_the_model_gets(name):
    config = make_config({"model": {"name": name}})
    shown = {key: value for key, value, _ in describe_settings(config)}
    wanted = {**dataclasses.asdict(TrainConfig()), **model_info(name).training}
    for key, value in wanted.items():
        assert shown[f"train.{key}"] == ("unset" if value is None else json.dumps(value))
    if name == DEFAULT_MODEL:
        assert describe_settings() == describe_settings(config)
        assert shown["train.optimizer"] != json.dumps(TrainConfig().optimizer)


def test_a_model_brings_its_own_settings_below_what_is_given(tmp_path):
    suited = model_info(DEFAULT_MODEL).training
    assert {"batch_size", "learning_rate"} <= suited.keys()
    (tmp_path / "a.toml").write_text("[train]\nbatch_size = 8\nepochs = 9\n")
    config = make_config(
        {"data": {"source": "digits"}}, tmp_path / "a.toml", settings=["train.epochs=3"]
    )
    assert config.data.source == "digits"
    assert (config.train.batch_size, config.train.epochs) == (8, 3)
    assert config.train.learning_rate == suited["learning_rate"]
    assert make_config({"model": {"name": "cnn"}}).train == TrainConfig(
        **model_info("cnn").training
    )
    # A whole configuration says everything.
    whole = RunConfig(model=ModelConfig(DEFAULT_MODEL), train=TrainConfig(epochs=7))
    assert make_config(whole).train == whole.train


def test_all_options_of_the_model_are_written_out():
    config = make_config({"model": {"name": "cnn", "options": {"width": 0.5}}})
    assert config.model.options.keys() == model_info("cnn").options.keys()
    assert config.model.options["width"] == 0.5
    assert make_config(config) == config
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config


def test_options_go_with_the_model_they_belong_to():
    small = make_config({"model": {"options": {"width": 0.5}}})
    assert make_config(small, settings=["model.options.dropout=0.1"]).model.options["width"] == 0.5
    assert make_config(small, settings=["model.name=cnn"]) == make_config(
        {"model": {"name": "cnn"}, "train": to_dict(small.train)}
    )
    # Options alone are those of whichever model is named.
    options = {"model": {"options": {"width": 0.5}}}
    assert make_config(options, {"model": {"name": "cnn"}}).model.options["width"] == 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train": {"epoch": 3}}, "unknown setting 'train.epoch': did you mean 'train.epochs'?"),
        ({"trian": {}}, "unknown setting 'trian': did you mean 'train'?"),
        ({"train": {"zzz": 3}}, "unknown setting 'train.zzz': must be one of accumulate,"),
        ({"train": {"epochs": "3"}}, "train.epochs='3': must be an integer"),
        ({"train": {"epochs": True}}, "train.epochs=True: must be an integer"),
        ({"train": {"epochs": 0}}, "train.epochs=0: must be an integer >= 1"),
        (
            {"train": {"learning_rate": float("nan")}},
            "train.learning_rate=nan: must be a finite number > 0",
        ),
        (
            {"train": {"optimizer": "adan"}},
            "train.optimizer='adan': must be 'adam' or 'adamw' or 'sgd'",
        ),
        (
            {"train": {"class_weights": [1, -1]}},
            r"train.class_weights\[1\]=-1.0: must be a finite",
        ),
        ({"train": {"class_weights": [1e39, 1]}}, r"train.class_weights\[0\]=1e\+39"),
        ({"train": {"class_weights": [1, 1e-46]}}, r"train.class_weights\[1\]=1e-46"),
        (
            {"train": {"class_weights": "even"}},
            "train.class_weights='even': must be 'balanced' or a list",
        ),
        ({"train": 3}, "train=3: must be a section of settings"),
        (
            {"data": {"augment": ["spin"]}},
            r"data.augment\[0\]='spin': must be 'rotate' or 'reflect'",
        ),
        ({"train": {"seed": 2**63}}, r"train.seed=9223372036854775808: must be an integer"),
        ({"train": {"class_weights": []}}, "must be one weight per class"),
        ({"format": 1}, "format 1 is not the format 2 of this besselnet: use besselnet 0.1.0"),
        ({"format": 99}, "format 99 is not the format 2 of this besselnet"),
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


@pytest.mark.parametrize("suffix", [".json", ".toml"])
@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_a_config_that_is_no_file_is_refused(tmp_path, suffix, kind):
    path = make_special(tmp_path / f"config{suffix}", kind)
    refused(lambda: read_config(path), path.name, kind)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"a":' * 900 + "1" + "}" * 900, "[]", "\udc80"])
def test_a_config_file_that_is_no_table_is_named(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(lambda: read_config(path), "config.json")


def test_a_number_that_no_float_can_hold_is_named():
    values = {"train": {"learning_rate": 10**400}}
    with pytest.raises(ValueError, match=r"train\.learning_rate"):
        from_dict(RunConfig, values)
