"""Train the toy model in however many processes there are: `ddp_program.py FOLDER DEVICES`."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from besselnet.train import TrainConfig, fit, is_first_process, launch
from train.toys import ToyBatches, toy_model, write_weights


def main(folder: Path, devices: int) -> None:
    # Weights per class, a last batch of odd size and a group of one batch: what is easily
    # averaged wrongly over processes.
    config = TrainConfig(
        epochs=4,
        learning_rate=0.01,
        class_weights=(1.0, 3.0),
        accumulate=3,
        clip_norm=0.5,
        device="cpu",
        devices=devices,
    )
    fabric = launch(config)
    share = {"rank": fabric.global_rank, "world_size": fabric.world_size}
    model = toy_model(0.0, norm=False)
    train, val = ToyBatches(61, 16, **share), ToyBatches(37, 16, **share)
    fit(model, train, val, config, folder, fabric=fabric)
    if is_first_process():
        write_weights(folder / "weights.safetensors", model)
        print(f"{fabric.world_size} processes")
    # Normalised over all images; last batches of one image, which leave the second process without any.
    model = toy_model(0.0, norm=True)
    # Its gradient is 0 up to rounding, of which Adam makes whole steps.
    model[0].bias.requires_grad_(False)
    train, val = ToyBatches(65, 16, **share), ToyBatches(33, 16, **share)
    averaged = replace(config, batch_size=16, ema_decay=0.9)
    fit(model, train, val, averaged, folder / "norm", fabric=fabric, quiet=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
