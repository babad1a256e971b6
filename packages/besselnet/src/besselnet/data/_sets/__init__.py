"""One data set a file; importing this package registers them all."""

from besselnet.data._sets import (  # noqa: F401
    folder,
    galaxy10,
    malaria,
    mnist,
    mnist_variations,
    npz,
    radio_galaxies,
)
