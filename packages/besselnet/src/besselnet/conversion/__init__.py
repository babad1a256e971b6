"""``besselnet.convert``: an existing network made equivariant, layer by layer, and what it says about it."""

from besselnet.conversion._measure import measure
from besselnet.conversion._network import REPAIRS, convert
from besselnet.conversion._report import (
    ConversionReport,
    Fault,
    KeptLayer,
    LayerChange,
    Measurement,
)

__all__ = [
    "REPAIRS",
    "ConversionReport",
    "Fault",
    "KeptLayer",
    "LayerChange",
    "Measurement",
    "convert",
    "measure",
]
