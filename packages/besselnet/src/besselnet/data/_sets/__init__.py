"""Data sets; importing this package registers them all."""

from besselnet.data._sets import (  # noqa: F401
    folder,
    galaxies,
    malaria,
    masks,
    mnist,
    mnist_variations,
    npz,
    table,
)
