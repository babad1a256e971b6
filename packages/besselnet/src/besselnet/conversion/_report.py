"""The report of a conversion: as text (``print``) and as dataclasses."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["ConversionReport", "Fault", "KeptLayer", "LayerChange", "Measurement"]

# An error below is rounding, whatever it was before.
ROUNDED = 1e-4


@dataclass(frozen=True)
class LayerChange:
    """A layer that was replaced."""

    name: str
    before: str
    after: str
    parameters_before: int
    parameters_after: int


@dataclass(frozen=True)
class KeptLayer:
    """A convolution that was kept."""

    name: str
    kind: str
    why: str


@dataclass(frozen=True)
class Fault:
    """A step that still breaks the symmetry of the converted network.

    Attributes:
        name: name of the layer, or of the module whose ``forward`` calls the function.
        kind: type of the layer, or name of the function.
        why: the reason, in words.
        error: relative error of this step alone under quarter turns (and mirroring for O(2)); 0 for a step
            that is exact at quarter turns at this image size, but aliases at other angles.
        repair: the entry of ``convert(..., repair=[...])`` that fixes it, if there is one.
    """

    name: str
    kind: str
    why: str
    error: float
    repair: str | None


@dataclass(frozen=True)
class Measurement:
    """Largest relative error of the output over the angles, see ``besselnet.testing.equivariance_error``.

    The error is relative to the variation of the output, over images and positions.

    Attributes:
        quarter_turns: at 90, 180 and 270 degrees; about 1e-6 is rounding in float32.
        any_angle: at the angles between, in steps of 15 degrees. It includes the effect of the image frame
            and, for maps of even size, of their interpolation.
    """

    quarter_turns: float
    any_angle: float


@dataclass(frozen=True)
class ConversionReport:
    """Result of `convert_with_report`: changed and kept layers, and the equivariance of the result.

    Attributes:
        symmetry: the requested symmetry; for "O(2)", the measurements include mirrored images.
        image_size: the image size of `faults` and the measurements; None if there are none.
        changes: the replaced layers, in the order of the model.
        kept: the convolutions that were not replaced.
        faults: steps that still break the symmetry, in the order of execution.
        notes: what could not be tested, and why.
        parameters_before, parameters_after: number of parameters of the model.
        before, after: equivariance error of the output of the original and of the converted, still untrained
            model; None if it was not measured.
    """

    symmetry: str
    image_size: int | None
    changes: tuple[LayerChange, ...]
    kept: tuple[KeptLayer, ...]
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    parameters_before: int
    parameters_after: int
    before: Measurement | None
    after: Measurement | None

    @property
    def exact(self) -> bool | None:
        """Whether the network is exact under quarter turns; None if this was not tested."""
        if self.image_size is None:
            return None
        return not any(fault.error for fault in self.faults)

    @property
    def worse(self) -> list[str]:
        """Where the output is less equivariant than before: "quarter turns", "other angles"."""
        return [angles for angles, (old, new) in self._errors.items() if new > max(old, ROUNDED)]

    @property
    def _errors(self) -> dict[str, tuple[float, float]]:
        """The errors before and after, by angles; none if they were not measured."""
        if self.before is None or self.after is None:
            return {}
        return {
            "quarter turns": (self.before.quarter_turns, self.after.quarter_turns),
            "other angles": (self.before.any_angle, self.after.any_angle),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        saved = f"{self.parameters_before:,} -> {self.parameters_after:,} parameters"
        plural = "" if len(self.changes) == 1 else "s"
        yield f"{self.symmetry}: {len(self.changes)} layer{plural} replaced, {saved}"
        width = max([len(change.name) for change in self.changes], default=0)
        for c in self.changes:
            counts = f"({c.parameters_before:,} -> {c.parameters_after:,})"
            yield f"  {c.name:<{width}}  {c.before} -> {c.after}  {counts}"
        if self.kept:
            yield "convolutions kept:"
            for kept in self.kept:
                yield f"  {kept.name} ({kept.kind}): {kept.why}"
        yield from self._fault_lines()
        for note in self.notes:
            yield from textwrap.wrap(f"note: {note}", 100, subsequent_indent="  ")
        if self._errors:
            mirrored = " (mirrored or not)" if self.symmetry == "O(2)" else ""
            yield f"relative error of the output at {self.image_size} pixels{mirrored}:"
            yield f"  {'':<14}{'before':>10}{'after':>10}"
            for label, (old, new) in self._errors.items():
                yield f"  {label:<14}{old:>10.1e}{new:>10.1e}"
            if self.worse:
                advice = (
                    "fix what is listed above" if self.faults else "try larger kernels or images"
                )
                yield f"worse than before at {' and '.join(self.worse)}: {advice}"

    def _fault_lines(self) -> Iterator[str]:
        if self.image_size is None:
            yield "pass image_size=... to find what still breaks the symmetry, which depends on the size"
            return
        for broken, title in (
            (True, "breaks the symmetry"),
            (False, "exact at quarter turns, but aliases at other angles"),
        ):
            found = [fault for fault in self.faults if bool(fault.error) == broken]
            if broken and not found:
                yield f"exact at quarter turns, images of {self.image_size} pixels"
            elif found:
                yield f"{title}, images of {self.image_size} pixels:"
            for fault in found:
                size = f" [error {fault.error:.0e}]" if broken else ""
                fix = f'; fix it with repair=["{fault.repair}"]' if fault.repair else ""
                yield f"  {fault.name or 'the model'} ({fault.kind}): {fault.why}{fix}{size}"
