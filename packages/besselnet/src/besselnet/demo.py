"""The demo: train on upright digits, test on rotated digits, and compare with a plain CNN."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from besselnet.atomic import write_json
from besselnet.data import Batches, ImageSet
from besselnet.drawing import (
    draw_feature_maps,
    draw_filters,
    draw_rotated,
    learned_filters,
    write_figure,
)
from besselnet.functional import rotate_images
from besselnet.nn import evaluating
from besselnet.testing import equivariance_error
from besselnet.train import (
    DataConfig,
    ModelConfig,
    Run,
    RunConfig,
    TrainConfig,
    evaluate_rotated,
    load_images,
    train_run,
    watched,
)

__all__ = ["DemoRow", "run_demo"]

# 1 000 of the 5 000 digits to train on and 1 000 to test on; fewer for the curves over angles.
DATA = DataConfig(source="mnist-mini", options={"split": (0.2, 0.02, 0.2)})
TRAIN = TrainConfig(epochs=10, batch_size=32, learning_rate=3e-3)
CURVE_IMAGES = 200
# Two networks with nearly the same number of parameters.
NETWORKS = {
    # With what `besselnet train` chooses for digits on black.
    "besselnet": ModelConfig(
        "besselnet_small", {"width": 0.54, "field": "square", "last_padding": "valid"}
    ),
    "plain CNN": ModelConfig("cnn", {"width": 0.5}),
}
SHOWN_ANGLE = 50.0


@dataclass(frozen=True)
class DemoRow:
    """Results of one network; fractions, not per cent."""

    network: str
    parameters: int
    upright: float
    rotated: float
    agreement: float
    quarter_turn_agreement: float
    equivariance_error: float


def answers(model: nn.Module, images: ImageSet, rotate: Callable[[Tensor], Tensor]) -> Tensor:
    """The classes that a network names for rotated images."""
    batches = Batches(images, 100)
    shown = watched(batches, "testing", stream=sys.stdout)
    with evaluating(model):
        return torch.cat([model(rotate(batch)).argmax(1) for batch, _ in shown])


def describe(network: str, model: nn.Module, test: ImageSet) -> DemoRow:
    """Test upright, rotated by a random angle each (the same for every network), and by 90 degrees."""
    generator = torch.Generator().manual_seed(0)
    angles = iter((360 * torch.rand(len(test), generator=generator)).split(100))
    upright = answers(model, test, lambda batch: batch)
    rotated = answers(model, test, lambda batch: rotate_images(batch, next(angles)))
    quarter = answers(model, test, lambda batch: torch.rot90(batch, 1, (2, 3)))
    some, _ = next(iter(Batches(test, 100)))
    return DemoRow(
        network=network,
        parameters=sum(p.numel() for p in model.parameters()),
        upright=(upright == test.labels).double().mean().item(),
        rotated=(rotated == test.labels).double().mean().item(),
        agreement=(rotated == upright).double().mean().item(),
        quarter_turn_agreement=(quarter == upright).double().mean().item(),
        equivariance_error=equivariance_error(model, some).mean(),
    )


def table(rows: list[DemoRow]) -> Table:
    """The rows as people read them."""
    shown = Table(
        title="Trained on 1 000 upright digits, tested on 1 000 others",
        caption="agree: same prediction for an image and its rotated copy\n"
        "error: change of the output by rotation, relative to that between images",
    )
    shown.add_column("")
    for name in ("parameters", "upright", "rotated", "agree", "agree\nat 90°", "error"):
        shown.add_column(name, justify="right")
    for row in rows:
        shares = (row.upright, row.rotated, row.agreement, row.quarter_turn_agreement)
        shown.add_row(
            row.network,
            f"{row.parameters:,}",
            *(f"{100 * share:.1f}%" for share in shares),
            f"{row.equivariance_error:.2f}",
        )
    return shown


def draw(folder: Path, models: Mapping[str, nn.Module], test: ImageSet) -> list[str]:
    """Accuracy against angle, feature maps, learned filters; returns the file names."""
    few = test.select(torch.arange(0, len(test), max(1, len(test) // CURVE_IMAGES)))
    batches = Batches(few, 50)
    curves = {}
    for name, model in models.items():
        shown = watched(batches, f"rotating: {name}", stream=sys.stdout)
        # Digits lie on black ground: black corners change nothing.
        curves[name] = evaluate_rotated(model, shown, border="black")
    draw_rotated(folder / "accuracy_against_angle.png", curves)
    image, _ = Batches(test, 1)[0]
    rotated = rotate_images(image, SHOWN_ANGLE)
    figure = draw_feature_maps(models, image[0], SHOWN_ANGLE, rotated[0], layers=(0, 1, 2, 3))
    write_figure(folder / "feature_maps.png", figure)
    names = ["accuracy_against_angle.png", "feature_maps.png"]
    for name, model in models.items():
        filters = learned_filters(model)
        if filters is not None:
            names.append(f"filters_{name.split()[0]}.png")
            draw_filters(folder / names[-1], filters)
    return names


def run_demo(folder: str | Path = "runs/demo") -> list[DemoRow]:
    """Train both networks, or continue an interrupted call; then test, draw and print the results."""
    folder = Path(folder)
    console = Console()
    splits = load_images(DATA)
    test = splits.test
    if test is None:
        raise ValueError(f"{DATA.source}: must have test images for the demo")
    runs: dict[str, Run] = {}
    for name, model in NETWORKS.items():
        place = folder / name.split()[0]
        console.print(f"training {name} in {place}")
        config = RunConfig(DATA, model, TRAIN)
        runs[name] = train_run(
            config, place, images=splits, resume=(place / "config.json").exists()
        )
    models = {name: run.model for name, run in runs.items()}
    console.print("testing both on upright and rotated digits")
    rows = [describe(name, model, test) for name, model in models.items()]
    write_json(folder / "table.json", [asdict(row) for row in rows])
    console.print(table(rows))
    console.print("drawing figures, with images rotated to 24 angles")
    pictures = draw(folder, models, test)
    console.print(f"Figures in {folder}: {', '.join(pictures)}")
    first = next(iter(runs.values())).folder
    console.print(
        "\nTrain on your own images, with one folder per class:\n"
        "  besselnet train path/to/images\n"
        f"Then evaluate and predict, as for the network just trained:\n"
        f"  besselnet evaluate {first} --rotated\n"
        f"  besselnet predict {first} path/to/new/images\n",
        highlight=False,
    )
    return rows
