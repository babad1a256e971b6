"""A besselnet network in a LightningModule, trained by Lightning's Trainer.

The layers are ordinary modules: checkpoints, several GPUs, mixed precision and loggers are Lightning's.
After each epoch the module logs how much its answers change when images are rotated.

    pip install './packages/besselnet[demo]' lightning
    python examples/lightning_module.py --epochs 20
"""

import argparse
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

from besselnet import create_model
from besselnet.data import load_data
from besselnet.functional import rotate_images
from besselnet.train import EquivarianceError


class Classifier(lightning.LightningModule):
    def __init__(self, num_classes: int = 10, image_size: int = 28, width: float = 0.5) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = create_model(
            "besselnet_small",
            in_channels=1,
            num_classes=num_classes,
            image_size=image_size,
            width=width,
        )
        self.drift = EquivarianceError()

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        images, labels = batch
        logits = self(images)
        rotated = rotate_images(images, torch.full((len(images),), 45.0, device=images.device))
        self.drift.update(logits, self(rotated))
        self.log("accuracy", (logits.argmax(1) == labels).float().mean(), prog_bar=True)
        self.log("change at 45 degrees", self.drift, prog_bar=True)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.Adam(self.parameters())
        steps = self.trainer.estimated_stepping_batches
        schedule = OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main(epochs: int, images: int) -> None:
    lightning.seed_everything(0)
    splits = load_data("mnist-mini", split=(images / 5000, 0.02, 0.04))
    trainer = lightning.Trainer(
        max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    train = DataLoader(splits.train, batch_size=10, shuffle=True)
    trainer.fit(Classifier(), train, DataLoader(splits.val, batch_size=10))
    for name, value in trainer.callback_metrics.items():
        print(f"{name}: {value:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=300)
    main(**vars(parser.parse_args()))
