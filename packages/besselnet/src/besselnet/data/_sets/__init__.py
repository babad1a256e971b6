"""Data sets; importing this package registers them all."""

from besselnet.data._sets import folder, galaxies, malaria, mnist, mnist_variations, npz  # noqa: F401
