"""The entries of the benchmark, read from TOML and checked."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from besselnet.train import Timing

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Settings = dict[str, Any]

PASSES = ("training", "forward", "prediction")
PROBED = ("memory", "construct")
DIFFERENCES = ("float32", "float64")
MEASURES = PASSES + PROBED + DIFFERENCES
SUMMARIES = ("exponents", "choice")
# The ways in which a bound gets its number from the measured ones.
QUANTITIES = ("quotient", "exponents", "largest")

# What a layer and a network are described by, and the options they pass on.
LAYER = ("layer", "kernel_size", "in_channels", "out_channels", "size", "batch")
NETWORK = ("model", "in_channels", "num_classes", "size", "batch")
CONV_OPTIONS = ("stride", "padding", "dilation", "groups", "padding_mode")
BESSEL_OPTIONS = (
    *("symmetry", "cutoff", "scales", "scale_pool", "response", "sampling", "algorithm"),
)
# How it is run: with the native kernel, on so many threads, under autocast to bfloat16, with images in
# channels-last memory, by onnxruntime (inference of networks).
CONDITIONS = ("native", "threads", "bfloat16", "channels_last", "onnx")
# Prediction of files, see `prediction_of_files`: how many, their side in pixels, and how they are read.
FILES = ("files", "side", "reader", "workers")


@dataclass(frozen=True)
class Bound:
    """What a measured number must not pass, and one that it should reach."""

    text: str
    measure: str
    quantity: str
    """One of QUANTITIES."""
    candidates: tuple[str, ...]
    """The two of a quotient or of a difference of exponents, the four of a quotient of two quotients, or the
    one whose largest value counts."""
    at_least: float | None = None
    at_most: float | None = None
    aim: float | None = None


@dataclass(frozen=True)
class Entry:
    """Candidates to compare on some cases.

    ``settings(case, candidate)`` is what one measurement is about: the common settings, those of the
    case, those of the candidate, later ones winning.
    """

    name: str
    about: str
    measures: tuple[str, ...]
    cases: tuple[Settings, ...]
    candidates: dict[str, Settings]
    common: Settings = field(default_factory=dict)
    baseline: str | None = None
    """The candidate that the others are divided by."""
    summary: str | None = None
    most_operations: float | None = None
    """Multiply-adds of a forward pass; a candidate that needs more is left out."""
    bounds: tuple[Bound, ...] = ()

    def settings(self, case: Settings, candidate: str) -> Settings:
        return {**self.common, **case, **self.candidates[candidate]}

    def label(self, case: Settings) -> str:
        """A case in a few words, without what all cases have in common."""
        values = {**self.common, **case}
        told = set(values) if len(self.cases) == 1 else {key for c in self.cases for key in c}
        words = []
        for key, value in values.items():
            if key in told and key not in ("kernel_size", "in_channels", "out_channels", "size"):
                words.append(value if key in ("cutoff", "symmetry") else f"{key}={value}")
        if "size" in told:
            words.insert(0, f"{values['size']} px")
        if "in_channels" in told and "out_channels" in values:
            words.insert(0, f"{values['in_channels']}-{values['out_channels']}")
        if "kernel_size" in told and "kernel_size" in values:
            words.insert(0, f"k={values['kernel_size']}")
        return " ".join(words) or "defaults"


def read_entries(
    path: str | Path | None = None, *, quick: bool = False
) -> tuple[Timing, dict[str, Entry]]:
    """How long to measure, and the entries by name.

    Args:
        path: a TOML file in the form of the package's own ``entries.toml``, which is the default.
        quick: replace what each entry's ``quick`` table has, for a run of less than a minute.
    """
    source = files("besselnet_lab.benchmarks") / "entries.toml" if path is None else Path(path)
    try:
        table = tomllib.loads(source.read_text(encoding="utf-8"))
        timing = Timing(**table["timing"])
        entries = {name: _entry(name, t, quick) for name, t in table["entries"].items()}
    except KeyError as error:
        raise ValueError(f"{path or 'entries.toml'}: {error.args[0]!r} is missing") from None
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path or 'entries.toml'}: {error}") from None
    if quick:
        timing = replace(timing, rounds=min(2, timing.rounds), fewest_rounds=1)
    return timing, entries


def choose_entries(entries: Mapping[str, Entry], names: list[str]) -> list[Entry]:
    """The named entries in the order of the file; all if none is named."""
    unknown = [name for name in names if name not in entries]
    if unknown:
        raise ValueError(f"no entry is named {unknown[0]!r}; known: {', '.join(entries)}")
    return [entry for name, entry in entries.items() if not names or name in names]


def _entry(name: str, table: Mapping[str, Any], quick: bool) -> Entry:
    values = dict(table)
    changes = values.pop("quick", {})
    if quick:
        values |= changes
    known = {f.name for f in fields(Entry)} - {"name"} | {"only"}
    for key in values:
        if key not in known:
            raise ValueError(f"entry {name!r} has an unknown key {key!r}; known: {sorted(known)}")
    only = values.pop("only", list(values["candidates"]))
    entry = Entry(
        name=name,
        about=values.pop("about"),
        measures=tuple(values.pop("measures")),
        cases=tuple(values.pop("cases")),
        candidates={key: values["candidates"][key] for key in only},
        bounds=tuple(_bound(bound) for bound in values.pop("bounds", ())),
        **{key: value for key, value in values.items() if key != "candidates"},
    )
    for measure in (*entry.measures, *(bound.measure for bound in entry.bounds)):
        if measure not in MEASURES:
            raise ValueError(f"entry {name!r}: measure {measure!r}; known: {', '.join(MEASURES)}")
    if entry.summary not in (None, *SUMMARIES):
        raise ValueError(f"entry {name!r}: summary {entry.summary!r}; known: {SUMMARIES}")
    if entry.baseline not in (None, *entry.candidates):
        raise ValueError(
            f"entry {name!r}: baseline {entry.baseline!r} must be one of its candidates"
        )
    if not entry.cases:
        raise ValueError(f"entry {name!r} has no cases")
    if set(entry.measures) != {"forward"} and any(c.get("onnx") for c in entry.candidates.values()):
        raise ValueError(f"entry {name!r}: measures must be ['forward'] with onnx=true")
    for case in entry.cases:
        for candidate in entry.candidates:
            settings = entry.settings(case, candidate)
            _check_settings(settings)
            if (
                "prediction" in entry.measures
                and not {"files", "side", "reader"} <= settings.keys()
            ):
                raise ValueError(f"entry {name!r}: prediction requires files, side and reader")
    return entry


def _check_settings(settings: Settings) -> None:
    """Refuse settings that describe neither a layer nor a network."""
    network = "model" in settings
    needed = NETWORK if network else LAYER
    options = ("options", *FILES) if network else (*CONV_OPTIONS, *BESSEL_OPTIONS)
    known = (*needed, *options, *CONDITIONS)
    for key in needed:
        if key not in settings:
            raise ValueError(f"{key!r} is missing in {settings}")
    for key in settings:
        if key not in known:
            raise ValueError(f"unknown setting {key!r} in {settings}; known: {', '.join(known)}")
    if settings.get("onnx") and not network:
        raise ValueError(f"onnx=true: must be false for {settings}; it is only for networks")
    if not network and settings["layer"] not in ("Conv2d", "BesselConv2d"):
        raise ValueError(f"layer={settings['layer']!r}: must be 'Conv2d' or 'BesselConv2d'")


def _bound(table: Mapping[str, Any]) -> Bound:
    values = dict(table)
    quantity = [key for key in QUANTITIES if key in values]
    if len(quantity) != 1 or ("at_least" in values) == ("at_most" in values):
        raise ValueError(
            f"bound {values.get('text')!r} requires one of {', '.join(QUANTITIES)} "
            "and one of at_least, at_most"
        )
    candidates = values.pop(quantity[0])
    named = (candidates,) if isinstance(candidates, str) else tuple(candidates)
    return Bound(quantity=quantity[0], candidates=named, **values)
