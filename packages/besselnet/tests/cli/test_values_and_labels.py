"""From a table of values, or of several labels, to answers that rotation does not change."""

import csv
import json

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

SETTINGS = (
    *("train.epochs=12", "train.device=cpu", "train.batch_size=16", "train.learning_rate=0.02"),
    *("model.options.width=0.25", "data.augment=[]"),
)
SIDE = 32


def bar(length, width, place=(0.0, 0.0)):
    """(SIDE, SIDE) in [0, 1]: a bar that lies flat, with soft edges."""
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    inside = (abs(x - place[1]) < length / 2) & (abs(y - place[0]) < width / 2)
    return ndimage.gaussian_filter(inside.astype(float), 1)


def particle(chance):
    """A bar, and its length."""
    length = chance.uniform(6, 20)
    return bar(length, 4, chance.uniform(-3, 3, 2)), f"{length:.3f}"


def findings(chance):
    """A long bar in some images, short ones in some, and their names."""
    long, short = chance.random(2) < 0.5
    image = 0.8 * long * bar(18, 3, (-4, 0))
    if short:
        image = image + bar(5, 3, (5, -4)) + bar(5, 3, (5, 4))
    return image, ";".join(n for n, there in (("rod", long), ("grain", short)) if there)


def write_table(folder, column, make, count):
    chance = np.random.default_rng(0)
    folder.mkdir()
    lines = [f"file,{column}"]
    for number in range(count):
        image, label = make(chance)
        pixels = 200 * image + chance.uniform(0, 30, image.shape)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{label}")
    (folder / "table.csv").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize(
    ("column", "make", "score", "least"),
    [("length", particle, "r2", 0.8), ("finding", findings, "f1", 0.9)],
)
def test_what_upright_images_teach_holds_for_rotated_ones(
    call, tmp_path, column, make, score, least
):
    folder = write_table(tmp_path / "images", column, make, 160)
    run, settings = tmp_path / "run", [word for one in SETTINGS for word in ("--set", one)]
    code, _, error = call("train", folder, "--model", "besselnet_small", "--out", run, *settings)
    assert code == 0, error
    code, output, error = call("evaluate", run, "--rotated", "--angles", 8, "--json")
    assert code == 0, error
    report = json.loads(output)
    trained = report["rotated"]["trained"]
    assert report[score] > least
    assert trained[f"upright_{score}"] > least
    assert trained[f"rotated_{score}"] > trained[f"upright_{score}"] - 0.1
    assert trained["agreement"] > 0.9
    assert (run / "values.png").exists() == (score == "r2")
    code, output, error = call("predict", run, folder / "0.png", folder / "1.png")
    assert code == 0, error
    rows = list(csv.DictReader(output.splitlines()))
    assert len(rows) == 2
    assert not any(row["error"] for row in rows)
    names = [column] if score == "r2" else ["labels", "rod", "grain"]
    assert set(names) <= rows[0].keys()
