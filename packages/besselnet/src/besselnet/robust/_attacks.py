"""Gradient attacks, random noise, and an ensemble of attacks."""

from torch import Generator, Tensor

from besselnet.checks import check_count, check_number, check_seed
from besselnet.robust._apgd import apgd
from besselnet.robust._square import square
from besselnet.robust._standing import (
    Network,
    ascent,
    attacking,
    ball,
    check_eps,
    check_unit_images,
    measuring,
    noise_in_ball,
)

# Of a step, relative to eps over the number of steps: far enough to reach the border of the ball
# from anywhere in it (Madry et al. 2018).
_REACH = 2.5


def fgsm(network: Network, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Attack images by FGSM: one step of `eps` along the sign of the gradient (Goodfellow et al. 2015)."""
    check_eps(eps)
    with attacking(network, images, labels) as standing:
        if standing:
            gradient, _ = ascent(network, standing.images, standing.labels)
            tried = (standing.images + eps * gradient.sign()).clamp(0, 1)
            standing.note(tried, network(tried))
    return standing.found


def pgd(
    network: Network,
    images: Tensor,
    labels: Tensor,
    eps: float,
    *,
    steps: int = 50,
    restarts: int = 5,
    seed: int = 0,
    step_size: float | None = None,
) -> Tensor:
    """Attack images by PGD: projected gradient ascent of the cross-entropy (Madry et al. 2018).

    Args:
        steps: steps per start, along the sign of the gradient.
        restarts: number of random starts.
        step_size: size of a step. Default: 2.5 eps / steps.
    """
    size = _check_steps(eps, steps, step_size)
    check_count("restarts", restarts)
    generator = Generator().manual_seed(check_seed(seed))
    with attacking(network, images, labels) as standing:
        for _ in range(restarts):
            if not standing:
                break
            tried = noise_in_ball(standing.images, eps, generator)
            bounds = ball(standing.images, eps)
            for _ in range(steps):
                gradient, logits = ascent(network, tried, standing.labels)
                stands = standing.note(tried, logits)
                if not standing:
                    break
                bounds = bounds[0][stands], bounds[1][stands]
                tried = (tried[stands] + size * gradient[stands].sign()).clamp(*bounds)
            else:
                standing.note(tried, network(tried))
    return standing.found


def adversarial_batch(
    network: Network,
    images: Tensor,
    labels: Tensor,
    eps: float,
    *,
    steps: int = 5,
    seed: int = 0,
    step_size: float | None = None,
) -> Tensor:
    """Return all images after a few steps of `pgd`, also misclassified ones, for adversarial training."""
    size = _check_steps(eps, steps, step_size)
    check_unit_images(images)
    tried = noise_in_ball(images, eps, Generator().manual_seed(check_seed(seed)))
    bounds = ball(images, eps)
    with measuring(network):
        for _ in range(steps):
            gradient, _ = ascent(network, tried, labels)
            tried = (tried + size * gradient.sign()).clamp(*bounds)
    return tried


def random_search(
    network: Network, images: Tensor, labels: Tensor, eps: float, *, tries: int = 100, seed: int = 0
) -> Tensor:
    """Attack images by uniform noise, `tries` times, without gradients.

    Gradient attacks should be stronger.
    """
    check_eps(eps)
    check_count("tries", tries)
    generator = Generator().manual_seed(check_seed(seed))
    with attacking(network, images, labels) as standing:
        for _ in range(tries):
            if not standing:
                break
            tried = noise_in_ball(standing.images, eps, generator)
            standing.note(tried, network(tried))
    return standing.found


def ensemble(
    network: Network,
    images: Tensor,
    labels: Tensor,
    eps: float,
    *,
    steps: int = 100,
    queries: int = 1000,
    seed: int = 0,
) -> Tensor:
    """Attack images by `apgd` with cross-entropy, `apgd` with the DLR loss, and `square`, in this order.

    Similar to AutoAttack (Croce and Hein 2020), with fewer steps and without the targeted attacks.
    """
    found = apgd(network, images, labels, eps, steps=steps, seed=seed)
    found = apgd(network, found, labels, eps, steps=steps, seed=seed, loss="dlr")
    return square(network, found, labels, eps, queries=queries, seed=seed)


def _check_steps(eps: float, steps: int, step_size: float | None) -> float:
    """The size of a step."""
    check_eps(eps)
    check_count("steps", steps)
    if step_size is None:
        return _REACH * eps / steps
    return check_number("step_size", step_size, above=0)
