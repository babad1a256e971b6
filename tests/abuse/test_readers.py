"""Every reader, on damaged files: one line that names the file, or the answer of the whole one.

Files without checksums may be damaged without a trace: a weight or a pixel has another value. There the
answer may be another one, but an answer: no traceback, no hang, no memory, no program started, no NaN.
"""

import gzip
import json
import shutil
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from abuse.fork_server import Ended
from abuse.manners import check_manners, fuzzing
from abuse.mutations import damaged_file

RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """Files to damage, and command lines that read them, all in one folder.

    Attributes:
        files: patterns of the files to damage.
        commands: "{}" in them stands for the folder.
        exact: patterns of files whose damage must be seen, or change nothing.
        settings: files of settings: what is wrong with a value may be told without naming them.
    """

    files: Sequence[str]
    commands: Sequence[Sequence[object]]
    exact: Sequence[str] = ()
    settings: Sequence[str] = ()


def pixels(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def run_folder(folder: Path, run: Path) -> Case:
    shutil.copytree(run, folder, dirs_exist_ok=True)
    image = run.parent / "images" / "test" / "bars" / "0.png"
    read = (
        ["predict", "{}", image, "--json"],
        ["evaluate", "{}", "--json"],
        ["inspect", "{}", "--json"],
    )
    write = ["export", "{}", "--to", "folder", "--out", "written"]
    files = ["*.json", "model/*"]
    commands = [["besselnet", *command] for command in (*read, write)]
    return Case(files, commands, settings=["config.json"])


def checkpoint(folder: Path, run: Path) -> Case:
    shutil.copytree(run, folder, dirs_exist_ok=True)
    resume = ["besselnet", "train", "--out", "{}", "--resume"]
    return Case(
        ["checkpoint.safetensors", "config.json", "metrics.csv"], [resume], settings=["config.json"]
    )


def network(folder: Path, run: Path) -> Case:
    shutil.copytree(run / "model", folder, dirs_exist_ok=True)
    return Case(["*"], [["reader", "network", "{}"]], ["config.json"])


def exported(folder: Path, run: Path) -> Case:
    shutil.copy(run / "model.onnx", folder)
    image = run.parent / "images" / "test" / "bars" / "0.png"
    return Case(["*"], [["besselnet", "predict", "{}/model.onnx", image, "--json"]])


def arrays(folder: Path, run: Path) -> Case:
    np.savez(folder / "own.npz", x=pixels(20, 8, 8), y=np.arange(20) % 2, classes=["a", "b"])
    return Case(["*"], [["reader", "data", "own", "{}/own.npz"]], ["*"])


def hdf5(folder: Path, run: Path) -> Case:
    with h5py.File(folder / "Galaxy10_DECals.h5", "w") as file:
        file["images"], file["ans"] = pixels(20, 8, 8, 3), np.arange(20) % 10
    return Case(["*"], [["reader", "data", "galaxy10", "{}/Galaxy10_DECals.h5"]])


def zipped(folder: Path, run: Path) -> Case:
    with zipfile.ZipFile(folder / "cell_images.zip", "w") as archive:
        for number in range(40):
            Image.fromarray(pixels(9, 8, 3)).save(folder / "cell.png")
            kind = ("Parasitized", "Uninfected")[number % 2]
            archive.write(folder / "cell.png", f"cell_images/{kind}/C{number // 2}_{number}.png")
    (folder / "cell.png").unlink()
    return Case(["*"], [["reader", "data", "malaria", "{}/cell_images.zip"]], ["*"])


def idx(folder: Path, run: Path) -> Case:
    for part, count in (("train", 20), ("t10k", 10)):
        images, labels = pixels(count, 28, 28), (np.arange(count) % 10).astype(np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            path = folder / f"{part}-{name}-ubyte.gz"
            path.write_bytes(gzip.compress(head + array.tobytes()))
    return Case(["*"], [["reader", "data", "mnist", "{}"]], ["*.gz"])


def results(folder: Path, run: Path) -> Case:
    for file in Path(run.parent / "study").rglob("*"):
        if file.is_file() and ".work" not in file.parts:
            place = folder / file.relative_to(run.parent / "study")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
    study = ["besselnet-lab", "study"]
    status = [*study, "status", "{}/tiny.toml", "--results", "{}/results", "--json"]
    report = [*study, "report", "{}/results", "--out", "report"]
    return Case(["results/*/*.json", "tiny.toml"], [status, status, report], settings=["tiny.toml"])


def image_files(folder: Path, run: Path) -> Case:
    for number in range(20):
        place = folder / "ab"[number % 2]
        place.mkdir(exist_ok=True)
        grey, colour = Image.fromarray(pixels(8, 8)), Image.fromarray(pixels(8, 8, 3))
        grey.save(place / f"grey{number}.png")
    for place in (folder / "a", folder / "b"):
        colour.save(place / "colour.png")
        colour.quantize(16).save(place / "palette.png")
        Image.fromarray(pixels(8, 8).astype(np.uint16) * 257).save(place / "deep.png")
        colour.save(place / "colour.jpg")
        colour.save(place / "colour.webp")
        grey.save(place / "grey.tif", compression="tiff_lzw")
    commands = ["besselnet", "predict", run, "{}", "--json"], ["reader", "data", "own", "{}"]
    return Case(["*/*"], commands, ["*/*.png"])


CASES = [
    *(run_folder, checkpoint, network, exported, arrays, hdf5, zipped, idx, results, image_files),
]


def fuzz(
    servers: dict, make: Callable[[Path, Path], Case], run: Path, folder: Path, count: int
) -> None:
    whole, place = folder / "whole", folder / "damaged"
    whole.mkdir()
    case = make(whole, run)
    files = [
        path for pattern in case.files for path in sorted(whole.glob(pattern)) if path.is_file()
    ]
    assert files

    def call(command: Sequence[object], where: Path) -> tuple[Ended, list[str]]:
        words = [str(word).replace("{}", str(where)) for word in command]
        shutil.rmtree(folder / "at", ignore_errors=True)
        (folder / "at").mkdir()
        return servers[words[0]].run(*words, folder=folder / "at"), words

    expected = []
    for command in case.commands:
        shutil.copytree(whole, place, dirs_exist_ok=True)
        ended, _ = call(command, place)
        assert ended.code == 0, ended
        expected.append(ended.output)

    @fuzzing(count)
    @given(st.data())
    def one(data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(files), label="file")
        damage = data.draw(damaged_file(file), label="content")
        number = data.draw(st.integers(0, len(case.commands) - 1), label="command")
        shutil.rmtree(place)
        shutil.copytree(whole, place)
        (place / file.relative_to(whole)).write_bytes(damage.content)
        ended, words = call(case.commands[number], place)
        assert not ended.forbidden
        line = check_manners(ended, words)
        name = file.relative_to(whole)
        assert not line or str(place) in line or str(name) in case.settings
        exact = any(name.match(pattern) for pattern in case.exact)
        if ended.code == 0 and exact and not damage.repacked:
            agree(ended.output, expected[number])

    one()


def agree(output: str, expected: str) -> None:
    """The same answers, but for images that could not be read, which have an error."""
    for line, whole in zip(output.splitlines(), expected.splitlines(), strict=True):
        assert line == whole or json.loads(line)["error"]


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", CASES)
def test_damaged_files(servers, ready, tmp_path, make, count):
    fuzz(servers, make, ready, tmp_path, count)
