"""`besselnet-lab survey`."""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from besselnet.atomic import write_json
from besselnet.train import describe_environment
from besselnet_lab.benchmarks import SurveySettings, cost_tables, simulate, survey_rates

__all__ = ["survey"]


def survey(
    files: Annotated[
        int, typer.Option(min=10, help="Number of JPEG files to create, decode and predict.")
    ] = 10_000,
    simulated: Annotated[
        int, typer.Option(min=1, help="Number of images to simulate, without files.")
    ] = 1_000_000,
    side: Annotated[int, typer.Option(min=8, help="Size of the JPEG files in pixels.")] = 64,
    size: Annotated[
        list[int] | None,
        typer.Option(min=8, help="Input size of the network in pixels. Default: 28 and 64."),
    ] = None,
    model: Annotated[str, typer.Option(help="Network to measure.")] = "besselnet_small",
    steps: Annotated[int, typer.Option(min=1, help="Training steps per size.")] = 20,
    out: Annotated[Path | None, typer.Option(help="JSON file for all numbers.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Estimate the hours and disk space for a million and for a hundred million images.

    Measures the time per image on one core: listing, decoding, prediction and training. Simulates a survey
    with generated names and pixels. Extrapolates to one core, a machine with 64 cores, and 16 such machines.

    Examples:

        besselnet-lab survey

        besselnet-lab survey --size 64 --model besselnet_small --out survey.json
    """
    settings = SurveySettings(model=model, files=files, side=side, steps=steps)
    rates = []
    for pixels in size or [28, 64]:
        typer.echo(f"measuring {files} files at {pixels} pixels", err=True)
        rates.append(survey_rates(settings, pixels))
    typer.echo(f"simulating {simulated} images", err=True)
    report: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": asdict(settings),
        "rates": [asdict(found) for found in rates],
        "rehearsal": simulate(simulated),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "environment": describe_environment(),
    }
    if out is not None:
        write_json(out, report)
    if as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    for table in cost_tables(rates):
        typer.echo(table.markdown())
    typer.echo(f"rehearsal: {json.dumps(report['rehearsal'], allow_nan=False)}")
