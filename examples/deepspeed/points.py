"""What is learnt: whether a point of the square lies in the disc in its middle."""

import numpy as np

POINTS = 2520
"""Divided by any number of workers up to ten."""
SEED = 0


def points() -> tuple[np.ndarray, np.ndarray]:
    """Coordinates between -1 and 1, and 1 for those within the disc, which has half of the area; else 0."""
    places = np.random.default_rng(SEED).uniform(-1.0, 1.0, (POINTS, 2)).astype(np.float32)
    inside = (places**2).sum(axis=1, keepdims=True) < 2.0 / np.pi
    return places, inside.astype(np.float32)
