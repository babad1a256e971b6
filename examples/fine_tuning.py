"""Fine-tune on 200 images: a network that has seen five digits learns the other five.

First it learns the digits 0 to 4. Then it gets a new head, and 200 images of the digits 5 to 9. All of
them are upright; the test is on rotated ones. Beside it: the same network, started from nothing.

    pip install './packages/besselnet[demo]'
    python examples/fine_tuning.py --epochs 20
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from besselnet import create_model
from besselnet.data import Batches, ImageSet, load_data
from besselnet.functional import rotate_images
from besselnet.train import evaluate


def digits(images: ImageSet, first: int, count: int) -> ImageSet:
    """`count` images of the five digits from `first` on, which become the classes 0 to 4."""
    wanted = ((images.labels >= first) & (images.labels < first + 5)).nonzero().squeeze(1)
    chosen = images.select(wanted[torch.linspace(0, len(wanted) - 1, count).long()])
    return ImageSet(chosen.images, chosen.labels - first, images.classes[first : first + 5])


def train(model: nn.Module, images: ImageSet, epochs: int, body_rate: float) -> None:
    """Train the head at full speed, and the rest at a share of it."""
    batches = Batches(images, 8, shuffle=True)
    parts = [{"params": model.features.parameters()}, {"params": model.head.parameters()}]
    optimizer = torch.optim.AdamW(parts)
    schedule = OneCycleLR(optimizer, [1e-2 * body_rate, 1e-2], total_steps=epochs * len(batches))
    model.train()
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for pictures, labels in batches:
            loss = F.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def main(epochs: int, images: int) -> None:
    splits = load_data("mnist-mini")
    known, new = digits(splits.train, 0, images), digits(splits.train, 5, 200)
    test = digits(splits.test, 5, 200)
    angles = 360 * torch.rand(len(test), generator=torch.Generator().manual_seed(0))
    rotated = ImageSet(rotate_images(test.images, angles), test.labels, test.classes)

    def network() -> nn.Module:
        torch.manual_seed(0)
        return create_model(
            "besselnet_small", in_channels=1, num_classes=5, image_size=28, width=0.5
        )

    tuned, fresh = network(), network()
    train(tuned, known, epochs, body_rate=1.0)
    tuned.reset_classifier(len(new.classes))
    train(tuned, new, epochs, body_rate=0.1)
    train(fresh, new, epochs, body_rate=1.0)
    for name, model in (("fine-tuned", tuned), ("from nothing", fresh)):
        accuracy = evaluate(model, Batches(rotated, 100)).accuracy
        print(
            f"{name}: {accuracy:.1%} of {len(rotated)} rotated digits, after {len(new)} upright ones"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=200, help="of the digits 0 to 4")
    main(**vars(parser.parse_args()))
