"""Mathematics of the basis: roots, norms, quadrature and sampled filters, in numpy and scipy (float64)."""

from besselnet.core._modes import Mode, ModeSet, derivative_roots, kernel_modes, modes_below
from besselnet.core._quadrature import PolarRule, polar_rule
from besselnet.core._sampling import (
    SAMPLINGS,
    Sampling,
    disc_radius,
    interpolation_matrix,
    sampled_basis,
    sampled_filters,
)
from besselnet.core._transform import analysis_tables, synthesis_tables

__all__ = [
    "SAMPLINGS",
    "Mode",
    "ModeSet",
    "PolarRule",
    "Sampling",
    "analysis_tables",
    "derivative_roots",
    "disc_radius",
    "interpolation_matrix",
    "kernel_modes",
    "modes_below",
    "polar_rule",
    "sampled_basis",
    "sampled_filters",
    "synthesis_tables",
]
