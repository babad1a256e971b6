"""Print the largest resident memory in bytes while besselnet_unet predicts one image (Linux).

python packages/besselnet/tests/masks/memory_program.py SIDE [CHANNELS]
"""

import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from besselnet.masks import predict_files, probabilities_of
from besselnet.models import create_model
from besselnet.nn import fold_batch_norm


def write_image(path: Path, side: int, channels: int) -> None:
    """Noise that repeats: in a process of its own, its memory would count."""
    square = np.random.default_rng(0).integers(0, 256, (250, 250, channels), np.uint8)
    pixels = np.tile(square, (side // 250, side // 250, 1))
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(path, compress_level=1)


def peak() -> int:
    # That of this program alone; `getrusage` starts with the peak of the process that started it.
    (kilobytes,) = re.findall(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return int(kilobytes) * 1024


def main(side: int, channels: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    options = {"in_channels": channels, "num_classes": 3}
    model = fold_batch_norm(create_model("besselnet_unet", **options).eval())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        context = torch.multiprocessing.get_context("spawn")
        writer = context.Process(target=write_image, args=(folder / "a.png", side, channels))
        writer.start()
        writer.join()
        (row,) = predict_files(
            probabilities_of(model),
            [folder / "a.png"],
            folder / "out",
            classes=("a", "b", "c"),
            channels=channels,
            reading={"max_pixels": side**2},
            overlays=True,
            probabilities=True,
        )
    assert row["error"] is None, row["error"]
    print(peak())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
