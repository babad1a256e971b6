"""``besselnet.convert``: an existing network made equivariant, layer by layer, and what it says about it."""

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
