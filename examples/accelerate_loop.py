"""A besselnet network in a loop of one's own, on whatever devices Accelerate finds.

pip install './packages/besselnet[demo]' accelerate
python examples/accelerate_loop.py --epochs 20
accelerate launch examples/accelerate_loop.py --epochs 20        (several GPUs or machines)
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

from besselnet import create_model
from besselnet.data import load_data
from besselnet.functional import rotate_images


def main(epochs: int, images: int) -> None:
    set_seed(0)
    accelerator = Accelerator()
    splits = load_data("mnist-mini", split=(images / 5000, 0.02, 0.04))
    model = create_model("besselnet_small", in_channels=1, num_classes=10, image_size=28, width=0.5)
    train = DataLoader(splits.train, batch_size=10, shuffle=True)
    test = DataLoader(splits.test, batch_size=10)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = OneCycleLR(optimizer, max_lr=1e-2, epochs=epochs, steps_per_epoch=len(train))
    model, optimizer, schedule, train, test = accelerator.prepare(
        model, optimizer, schedule, train, test
    )
    for epoch in range(epochs):
        model.train()
        for pictures, labels in train:
            loss = F.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        accelerator.print(f"epoch {epoch + 1}: last loss {loss.item():.3f}")

    model.eval()
    right: dict[str, list[torch.Tensor]] = {"upright": [], "rotated by 30 degrees": []}
    with torch.no_grad():
        for pictures, labels in test:
            rotated = rotate_images(pictures, pictures.new_full((len(pictures),), 30.0))
            for name, shown in zip(right, (pictures, rotated)):
                hits = model(shown).argmax(1) == labels
                right[name].append(accelerator.gather_for_metrics(hits))
    for name, hits in right.items():
        accelerator.print(f"{name}: {torch.cat(hits).float().mean():.1%} right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=300)
    main(**vars(parser.parse_args()))
