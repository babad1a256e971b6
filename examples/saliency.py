"""What a B-CNN looks at: saliency and Grad-CAM, with nothing special done for either.

Feature maps of Bessel layers are real numbers, so the usual gradients are all that is needed. They rotate
with the image: exactly for a quarter turn, which is checked, and nearly for the angle that is drawn.

    pip install './packages/besselnet[demo]'
    python examples/saliency.py --epochs 20 --out saliency.png
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet import create_model
from besselnet.data import Batches, load_data
from besselnet.functional import rotate_images
from besselnet.train import TrainConfig, fit


def saliency(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    """(N, H, W): how much the logit of a class depends on each pixel."""
    images = images.detach().requires_grad_()
    model(images).gather(1, classes[:, None]).sum().backward()
    return images.grad.abs().amax(1)


def grad_cam(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    """(N, H, W): the last feature maps, weighted by what each does for a class."""
    maps = model.forward_features(images).detach().requires_grad_()
    model.head(maps.mean((2, 3))).gather(1, classes[:, None]).sum().backward()
    weighted = (maps * maps.grad.mean((2, 3), keepdim=True)).sum(1, keepdim=True).relu()
    return F.interpolate(weighted, images.shape[2:], mode="bilinear").detach().squeeze(1)


def main(epochs: int, images: int, out: Path) -> None:
    torch.manual_seed(0)
    splits = load_data("mnist-mini", split=(images / 5000, 0.02, 0.04))
    # Padding in the last layer as well: maps of 7 x 7 pixels, where there would be one pixel.
    options = {"width": 0.5, "last_padding": "same"}
    model = create_model("besselnet_small", in_channels=1, num_classes=10, image_size=28, **options)
    batches = Batches(splits.train, 10, shuffle=True)
    fit(model, batches, None, TrainConfig(epochs, learning_rate=1e-2), quiet=True)
    model.eval()

    upright, classes = Batches(splits.test, 4, shuffle=True)[0]
    for name, explain in (("saliency", saliency), ("Grad-CAM", grad_cam)):
        expected = torch.rot90(explain(model, upright, classes), 1, (1, 2))
        found = explain(model, torch.rot90(upright, 1, (2, 3)), classes)
        error = ((found - expected).norm() / expected.norm()).item()
        print(f"{name} of the image rotated by 90 degrees, against the rotated {name}: {error:.0e}")
        if not error < 1e-3:  # rounding, through two passes of the network
            raise SystemExit(f"{name} does not rotate with the image")

    shown = torch.cat([upright, rotate_images(upright, torch.full((len(upright),), 60.0))])
    twice = classes.repeat(2)
    columns = [shown[:, 0], saliency(model, shown, twice), grad_cam(model, shown, twice)]
    figure = Figure(figsize=(2 * len(shown), 6), layout="tight")
    axes = figure.subplots(3, len(shown))
    for row, (name, pictures) in enumerate(zip(("image", "saliency", "Grad-CAM"), columns)):
        for axis, picture in zip(axes[row], pictures):
            axis.imshow(picture, cmap="magma" if row else "gray")
            axis.set_xticks([])
            axis.set_yticks([])
        axes[row, 0].set_ylabel(name)
    figure.savefig(out)
    print(f"drawn in {out}: on the right, the images rotated by 60 degrees")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("saliency.png"))
    main(**vars(parser.parse_args()))
