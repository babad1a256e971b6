"""Reading and turning a batch must not hold up the training."""

import time

import pytest
import torch
from torch.nn import functional as F

from besselnet.data import Batches, ImageSet, Rotate
from besselnet.models import create_model


@pytest.mark.slow
@pytest.mark.parametrize("network", ["cnn", "besselnet_small"])
def test_data_take_at_most_a_twentieth_of_a_training_step(network):
    """A batch of 64 digits turned cubically, beside a step of the cheapest and of our own network.

    Interleaved, best of several: other work on the machine disturbs single figures.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (6400, 1, 28, 28), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (6400,), generator=generator)
    digits = ImageSet(images, labels, tuple("0123456789"))
    batches = Batches(digits, 64, shuffle=True, augment=Rotate("cubic"))
    model = create_model(network, in_channels=1, num_classes=10, image_size=28)
    reading, training = [], []
    for number in range(10):
        start = time.perf_counter()
        batch, wanted = batches[number]
        middle = time.perf_counter()
        F.cross_entropy(model(batch), wanted).backward()
        training.append(time.perf_counter() - middle)
        reading.append(middle - start)
    share = min(reading) / (min(reading) + min(training))
    assert share <= 0.05, f"{share:.1%} of a step of {network}"
