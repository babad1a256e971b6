"""`besselnet info`: the native kernel, package versions and devices."""

import dataclasses
import json

import torch
import typer

from besselnet.cli._program import Json
from besselnet.kernels import status
from besselnet.train import describe_environment


def info(as_json: Json = False) -> None:
    """Show which kernel is used and why, package versions and devices.

    Examples:

        besselnet info

        besselnet info --json
    """
    kernel, about = status(), describe_environment()
    machine = about["machine"]
    devices = [f"cpu ({machine['processor']}, {machine['cores']} cores)"]
    devices += [f"cuda:{i} ({name})" for i, name in enumerate(machine["gpus"])]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    if as_json:
        found = {
            "kernel": dataclasses.asdict(kernel),
            "versions": about["versions"],
            "devices": devices,
            "threads": machine["threads"],
        }
        typer.echo(json.dumps(found, indent=2, allow_nan=False))
        return
    lines = {
        "kernel": str(kernel),
        "threads": machine["threads"],
        "devices": ", ".join(devices),
        **{name: version or "not installed" for name, version in about["versions"].items()},
    }
    for label, text in lines.items():
        typer.echo(f"{label:<20}{text}")
