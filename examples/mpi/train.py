"""Every rank computes the gradient of its points, an all-reduce adds them up: mpi4py with NumPy.

`mpirun ... python train.py`, in as many processes as there are slots.
"""

import sys

import numpy as np
from mpi4py import MPI
from points import points

STEPS, RATE, HIDDEN = 600, 1.0, 24
WANTED_LOSS = 0.25
"""A coin's is 0.69."""


def initial() -> list[np.ndarray]:
    """The same for all ranks, by the seed."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=(2, HIDDEN)), np.zeros(HIDDEN), rng.normal(size=(HIDDEN, 1)) / 5.0, np.zeros(1)]


def gradient(network: list[np.ndarray], places: np.ndarray, inside: np.ndarray) -> tuple[list[np.ndarray], float]:
    """Both summed over the points, so that those of all ranks add up."""
    first, shift, second, offset = network
    hidden = np.tanh(places @ first + shift)
    score = hidden @ second + offset
    loss = float((np.logaddexp(0.0, score) - inside * score).sum())
    on_score = 1.0 / (1.0 + np.exp(-score)) - inside
    on_hidden = (on_score @ second.T) * (1.0 - hidden**2)
    return [places.T @ on_hidden, on_hidden.sum(axis=0), hidden.T @ on_score, on_score.sum(axis=0)], loss


def main() -> int:
    world = MPI.COMM_WORLD
    print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}", flush=True)
    places, inside = points()
    mine = slice(world.rank, None, world.size)
    network, loss = initial(), float("inf")
    for step in range(1, STEPS + 1):
        slopes, lost = gradient(network, places[mine], inside[mine])
        slopes = [world.allreduce(slope) for slope in slopes]
        loss = world.allreduce(lost) / len(places)
        network = [value - RATE * slope / len(places) for value, slope in zip(network, slopes, strict=True)]
        if world.rank == 0 and step % 50 == 0:
            print(f"step={step} loss={loss:.4f} ranks={world.size}", flush=True)
    return 0 if loss < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
