"""The program `reader`: reads a file by a function of besselnet and prints a digest of what it got."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from besselnet.cli import Command, Program
from besselnet.data import load_data
from besselnet.hub import from_pretrained

_NAMES = ("data", "network")
program = Program(
    "reader", "", "", {name: Command("abuse.readers", f"read_{name}", "") for name in _NAMES}
)


def _digest(*arrays: torch.Tensor) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {tuple(array.shape)}".encode())
        found.update(np.ascontiguousarray(array.numpy()).tobytes())
    return found.hexdigest()


def read_data(name: str, path: Path) -> None:
    """A data set by its name, from its published file; "own" for a folder or an .npz file."""
    source, root = (str(path), None) if name == "own" else (name, path)
    for part, images in load_data(source, root=root).parts().items():
        print(part, images.classes, _digest(images.images, images.labels))


def read_network(folder: Path) -> None:
    model = from_pretrained(folder)
    print(_digest(*model.state_dict().values()))
