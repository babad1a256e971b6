"""Save, load and share trained networks: `save_pretrained`, `from_pretrained`, `push_to_hub`.

The format is a folder of `besselnet.models.save_network` with a model card, which the Hugging Face Hub shows.
The Hub needs the package huggingface_hub (extra `hub`); folders do not.
"""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from besselnet._pixels import needed
from besselnet.atomic import write_together
from besselnet.models import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    count_parameters,
    load_network,
    model_info,
    network_config,
    network_files,
)
from besselnet.untrusted import markdown_text

__all__ = ["from_pretrained", "push_to_hub", "save_pretrained"]

CARD_FILE = "README.md"


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    classes: Sequence[str] | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Save a network like `besselnet.models.save_network`, with a model card that shows `about`."""
    card = model_card(network_config(model, classes, about), count_parameters(model))
    write_together(folder, {CARD_FILE: card, **network_files(model, classes, about)})


def from_pretrained(place: str | Path, *, revision: str | None = None) -> nn.Module:
    """Load a trained network, in eval mode.

    Args:
        place: a folder of `save_pretrained`, a run folder, or an id such as "name/model" on the Hugging Face
            Hub.
        revision: branch, tag or commit on the Hub.

    ``model.recipe`` and ``model.classes`` are those of `besselnet.models.load_network`.
    """
    folder = Path(place)
    if (folder / "model" / WEIGHTS_FILE).is_file():
        folder = folder / "model"
    elif not folder.is_dir():
        folder = _downloaded(str(place), revision)
    return load_network(folder)


def push_to_hub(
    model: nn.Module,
    repo_id: str,
    *,
    classes: Sequence[str] | None = None,
    about: Mapping[str, Any] | None = None,
    private: bool = False,
) -> str:
    """Upload a network to the Hugging Face Hub and return its URL.

    You must be logged in (``hf auth login``). The arguments are those of `save_pretrained`.
    """
    hub = _huggingface_hub()
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder, classes=classes, about=about)
        address = hub.create_repo(repo_id, private=private, exist_ok=True)
        hub.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Add the network")
    return str(address)


def _downloaded(repo_id: str, revision: str | None) -> Path:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
        raise ValueError(f"{repo_id}: no such folder, and not an id on the Hub such as name/model")
    wanted = [CONFIG_FILE, WEIGHTS_FILE, CARD_FILE]
    hub = _huggingface_hub()
    return Path(hub.snapshot_download(repo_id, revision=revision, allow_patterns=wanted))


def _huggingface_hub() -> Any:
    return needed("huggingface_hub", "the Hugging Face Hub", "hub")


def model_card(config: Mapping[str, Any], parameters: int) -> str:
    """README.md of a folder: what the network is, takes and answers, and how to use it."""
    info = model_info(config["name"])
    side = config["image_size"]
    usual = json.loads(json.dumps(dict(info.options), allow_nan=False))
    options = ", ".join(
        f"{key}={value!r}" for key, value in config["options"].items() if value != usual.get(key)
    )
    rows = {
        "network": f"`{config['name']}`: {info.summary}",
        "options": markdown_text(options) or "defaults",
        "symmetry": f"{info.symmetry}; {info.exactness}",
        "input": f"{config['in_channels']} x {side} x {side}, floats in [0, 1]",
        "answers": markdown_text(
            ", ".join(config["classes"] or [f"{config['num_classes']} classes"])
        ),
        "parameters": f"{parameters:,}",
        **{
            key: markdown_text(
                value if isinstance(value, str) else json.dumps(value, allow_nan=False)
            )
            for key, value in config["about"].items()
        },
    }
    table = "\n".join(f"| {markdown_text(key)} | {text} |" for key, text in rows.items())
    task = {"image": "image-classification", "pixels": "image-segmentation"}[info.answers]
    return _CARD.format(name=config["name"], task=task, table=table)


_CARD = """---
library_name: besselnet
pipeline_tag: {task}
tags:
- rotation-equivariance
- pytorch
---

# {name}

A network trained with besselnet, rotation-equivariant convolutions for PyTorch.

| | |
|---|---|
{table}

```python
from besselnet.hub import from_pretrained

model = from_pretrained("this folder, or its id on the Hub")
logits = model(images)  # (N, C, H, W), floats in [0, 1]
```
"""
