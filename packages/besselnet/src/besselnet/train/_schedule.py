"""The learning rate as a function of the step: nothing to save, nothing to restore."""

import math


def learning_rate_factor(step: int, total: int, warmup: float, schedule: str) -> float:
    """Share of the highest learning rate used in `step` (0 ... total - 1).

    Rises linearly from 0 over the first `warmup` share of the steps, then falls to 0 along a half
    cosine (or stays, for `schedule="constant"`). The ends themselves, where the factor is 0, lie
    one step outside the training: the first step already learns and the last one still does.
    """
    rising = round(warmup * total)
    if step < rising:
        return (step + 1) / (rising + 1)
    if schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / (total - rising)))
