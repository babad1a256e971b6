"""Random numbers as a function of the position in a training."""

import random

import numpy as np
import torch


def seed_generators(device: torch.device, *place: int) -> None:
    """Seed Python's, numpy's and torch's global generators for a place in the training."""
    mixed = np.random.SeedSequence(place).generate_state(2)
    random.seed(int(mixed[0]))
    np.random.seed(mixed[0])
    seed = int(mixed[0]) << 32 | int(mixed[1])
    # Not torch.manual_seed: it keeps a traceback of each call for devices that are not in use.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
