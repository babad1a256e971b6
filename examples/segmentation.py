"""Masks of generated tissue: from a folder of images and masks to the masks of new images.

The tissue has round cells and thin fibres of the same brightness. In training every fibre lies flat; in
the test they point anywhere. besselnet_unet is trained, tested and used, as on the command line.

    python examples/segmentation.py --epochs 100
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage

from besselnet.train import evaluate_run, predict_masks, recommend_config, train_run

CLASSES = ("ground", "cell", "fibre")


def tissue(chance: np.random.Generator, flat: bool, size: int = 64) -> tuple[np.ndarray, ...]:
    """An image (size, size) and its mask: 0 ground, 1 cell, 2 fibre; both uint8."""
    y, x = np.mgrid[:size, :size]
    mask = np.zeros((size, size), np.uint8)
    for kind in chance.integers(1, 3, size=size**2 // 600):
        row, column = chance.uniform(0, size, 2)
        angle = 0 if flat else chance.uniform(0, np.pi)
        along = np.cos(angle) * (x - column) + np.sin(angle) * (y - row)
        across = np.cos(angle) * (y - row) - np.sin(angle) * (x - column)
        length, width = (6, 6) if kind == 1 else (14, 2)
        mask[np.hypot(along / length, across / width) < 1] = kind
    bright = ndimage.gaussian_filter(110.0 * (mask > 0), 0.7)
    image = 60 + bright + chance.normal(0, 12, mask.shape)
    return image.clip(0, 255).astype(np.uint8), mask


def write_tissue(folder: Path) -> None:
    """Folders train/ and test/ with images/ and masks/, the names of the classes, and new images."""
    chance = np.random.default_rng(0)
    for part, count in (("train", 24), ("test", 8)):
        for kind in ("images", "masks"):
            (folder / part / kind).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            for kind, pixels in zip(("images", "masks"), tissue(chance, flat=part == "train")):
                Image.fromarray(pixels).save(folder / part / kind / f"{number:02}.png")
    names = [f"{number},{name}" for number, name in enumerate(CLASSES)]
    (folder / "legend.csv").write_text("\n".join(["number,class", *names]))
    (folder / "new").mkdir(exist_ok=True)
    Image.fromarray(tissue(chance, flat=False, size=150)[0]).save(folder / "new" / "slide.png")


def main(epochs: int, out: Path) -> None:
    write_tissue(out / "tissue")
    # Fibres lie flat: without augmentation, what the network knows of other angles is built in.
    settings = [f"train.epochs={epochs}", "data.augment=[]", "model.options.width=0.5"]
    config, images, found = recommend_config(
        {"data": {"source": str(out / "tissue")}}, settings=settings
    )
    print(found.reason)
    run = train_run(config, out / "run", images=images, quiet=True)
    report = evaluate_run(run, rotated=True, angles=8)
    for name, row in report["classes"].items():
        print(f"{name}: Dice {row['dice']:.3f}, boundary F1 {row['boundary_f1']:.3f}")
    trained = report["rotated"]["trained"]
    print(f"masks of rotated images agree with the upright ones: IoU {trained['agreement']:.3f}")
    options = {"overlays": True, "instances": "components", "least_area": 10}
    for row in predict_masks(run, [out / "tissue" / "new"], out / "found", **options):
        print(f"{row['mask']}: {row['objects']} objects, {row['share_fibre']:.0%} fibre")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("runs/tissue"))
    arguments = parser.parse_args()
    main(arguments.epochs, arguments.out)
