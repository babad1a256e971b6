"""Folders of networks that someone else has made: one line for what is wrong, before memory is asked for."""

import json
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from besselnet.models import create_model, load_network, save_network
from hostile import MOST_MEMORY, make_special, peak_memory, refused


@pytest.fixture
def folder(tmp_path):
    save_network(
        create_model("cnn", num_classes=3, in_channels=1, image_size=28, width=0.2), tmp_path
    )
    return tmp_path


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "key", ["format", "name", "options", "in_channels", "num_classes", "classes"]
)
@pytest.mark.parametrize("value", [None, [], {}, "", -1, 1e300, float("nan"), True, "missing"])
def test_every_wrong_value_of_a_config_is_one_line(folder, key, value):
    if (key, value) in (("classes", None), ("options", {})):
        pytest.skip("allowed")
    change(folder, **{key: value})
    if value == "missing":
        config = json.loads((folder / "config.json").read_text())
        del config[key]
        (folder / "config.json").write_text(json.dumps(config))
    refused(lambda: load_network(folder), "config.json", key)


@pytest.mark.parametrize("key", ["in_channels", "num_classes", "image_size", "width"])
@pytest.mark.parametrize("value", [10**9, 10**5, float("inf")])
def test_absurd_sizes_are_refused(folder, key, value):
    if key == "width":
        change(folder, options={"width": value})
    else:
        change(folder, **{key: value})
    refused(lambda: load_network(folder), str(folder), key if value != 10**5 else "")


@pytest.mark.parametrize(
    "options",
    [
        {"channels": [[10**9]]},
        {"channels": [[16]] * 10**5},
        {"kernel_size": 10**9},
        {"kernel_size": 101},
        {"cutoff": 50.0},
        {"cutoff": ["strong", 50.0]},
        {"scales": [0, 10**9]},
        {"width": [10**9]},
        {"width": None},
        {"kernel_size": {}},
        {"sampling": [[]]},
    ],
)
def test_absurd_options_are_refused(tmp_path, options):
    model = create_model("besselnet_small", num_classes=2, in_channels=1, width=0.3)
    save_network(model, tmp_path)
    change(tmp_path, options={**model.recipe.options, **options})
    refused(lambda: load_network(tmp_path), str(tmp_path))


def test_an_absurd_network_takes_no_memory(folder):
    change(folder, options={"width": 1_000.0})
    program = f"""
from besselnet.models import load_network
try:
    load_network({str(folder)!r})
except ValueError as error:
    assert "config.json" in str(error)
else:
    raise SystemExit("loaded")
"""
    assert peak_memory(program) < MOST_MEMORY


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(folder, value):
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    tensors[name].view(-1)[0] = value
    save_file(tensors, folder / "model.safetensors")
    refused(lambda: load_network(folder), "model.safetensors", name)


def test_weights_of_another_shape_or_type_are_named(folder):
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name, tensor in tensors.items() if tensor.ndim == 4)
    for wrong in (tensors[name][..., :1].clone(), tensors[name].long()):
        save_file({**tensors, name: wrong}, folder / "model.safetensors")
        refused(lambda: load_network(folder), "model.safetensors", name)
    save_file({**tensors, "more": torch.zeros(1)}, folder / "model.safetensors")
    refused(lambda: load_network(folder), "model.safetensors", "more")
    save_file({}, folder / "model.safetensors")
    refused(lambda: load_network(folder), str(folder))


@pytest.mark.parametrize("content", [b"", b"{}", struct.pack("<Q", 8 * 10**9) + b"{}"])
def test_headers_that_claim_gigabytes_are_refused(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    refused(lambda: load_network(folder), "model.safetensors")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_what_is_no_file_is_refused(folder, file, kind):
    (folder / file).unlink()
    make_special(folder / file, kind)
    refused(lambda: load_network(folder), file, kind)
