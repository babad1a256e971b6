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
        int, typer.Option(min=10, help="JPEG files that are made, decoded and answered.")
    ] = 10_000,
    simulated: Annotated[
        int, typer.Option(min=1, help="Images of the rehearsal, which has no files.")
    ] = 1_000_000,
    side: Annotated[int, typer.Option(min=8, help="Of the files, in pixels.")] = 64,
    size: Annotated[
        list[int] | None,
        typer.Option(min=8, help="Of images for the network, in pixels; 28 and 64 unless given."),
    ] = None,
    model: Annotated[str, typer.Option(help="The network.")] = "besselnet_small",
    steps: Annotated[int, typer.Option(min=1, help="Of training, for each size.")] = 20,
    out: Annotated[Path | None, typer.Option(help="A JSON file for all numbers.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Tell what a million and a hundred million images cost in hours and disk.

    Measures what one image takes of one core: finding, decoding, answering and training. Rehearses a survey
    with generated names and pixels. From the rates it computes one core, a machine of 64, and 16 of those.

    Examples:

        besselnet-lab survey

        besselnet-lab survey --size 64 --model besselnet_small --out survey.json
    """
    settings = SurveySettings(model=model, files=files, side=side, steps=steps)
    rates = []
    for pixels in size or [28, 64]:
        typer.echo(f"measuring {files} files at {pixels} pixels", err=True)
        rates.append(survey_rates(settings, pixels))
    typer.echo(f"rehearsing {simulated} images", err=True)
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
    typer.echo(f"rehearsal: {json.dumps(report['rehearsal'])}")
