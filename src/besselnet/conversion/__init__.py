"""``besselnet.convert``: an existing network made equivariant, layer by layer, and what it says about it."""

from besselnet.conversion.measure import measure
from besselnet.conversion.network import REPAIRS, convert
from besselnet.conversion.report import ConversionReport, Fault, KeptLayer, LayerChange, Measurement

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
