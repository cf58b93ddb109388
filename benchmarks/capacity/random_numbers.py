"""Random numbers of the simulations, from a seed."""

import math
from random import Random


def poisson(rng: Random, mean: float) -> float:
    """Return how many independent events happen: exactly for small means, by the normal distribution for others."""
    if mean > 30:
        return max(0.0, round(rng.gauss(mean, math.sqrt(mean))))
    limit, number, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        number += 1
        product *= rng.random()
    return float(number)
