"""``besselnet.convert``: make an existing network rotation-equivariant, with a report on the result."""

from besselnet.conversion._layers import REPAIRS
from besselnet.conversion._network import convert, convert_with_report
from besselnet.conversion._report import (
    ConversionReport,
    Fault,
    KeptLayer,
    LayerChange,
    Measurement,
)
from besselnet.conversion._run import measure

__all__ = [
    "REPAIRS",
    "ConversionReport",
    "Fault",
    "KeptLayer",
    "LayerChange",
    "Measurement",
    "convert",
    "convert_with_report",
    "measure",
]
