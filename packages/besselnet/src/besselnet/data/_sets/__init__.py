"""One data set a file; importing this package registers them all."""

from besselnet.data._sets import (
    folder,
    galaxy10,
    malaria,
    mnist,
    mnist_mini,
    mnist_variations,
    npz,
    radio_galaxies,
)

__all__ = [
    "folder",
    "galaxy10",
    "malaria",
    "mnist",
    "mnist_mini",
    "mnist_variations",
    "npz",
    "radio_galaxies",
]
