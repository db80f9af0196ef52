"""Every rank computes the gradient of its points, an all-reduce adds them up: mpi4py with NumPy.

`mpirun ... python train.py`, in as many processes as there are slots.
"""

import sys

import numpy as np
from mpi4py import MPI
from points import points

STEPS, RATE, MOMENTUM, HIDDEN = 300, 0.3, 0.9, 24
WANTED_LOSS = 0.25
"""A coin's is 0.69."""


def initial() -> np.ndarray:
    """All parameters in one vector, so that one all-reduce is enough; the same for all ranks, by the seed."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=2 * HIDDEN), rng.normal(size=HIDDEN) / 5.0
    return np.concatenate([first, np.zeros(HIDDEN), second, np.zeros(1)])


def gradient(network: np.ndarray, places: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The slopes, and the loss behind them; summed over the points, so that those of all ranks add up."""
    first, second = network[: 2 * HIDDEN].reshape(2, HIDDEN), network[3 * HIDDEN : 4 * HIDDEN].reshape(HIDDEN, 1)
    hidden = np.tanh(places @ first + network[2 * HIDDEN : 3 * HIDDEN])
    score = hidden @ second + network[-1]
    loss = (np.logaddexp(0.0, score) - inside * score).sum()
    on_score = 1.0 / (1.0 + np.exp(-score)) - inside
    on_hidden = (on_score @ second.T) * (1.0 - hidden**2)
    slopes = [places.T @ on_hidden, on_hidden.sum(axis=0), hidden.T @ on_score, on_score.sum(), loss]
    return np.concatenate([np.ravel(part) for part in slopes])


def main() -> int:
    world = MPI.COMM_WORLD
    print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}", flush=True)
    places, inside = points()
    mine = slice(world.rank, None, world.size)
    network, loss = initial(), float("inf")
    velocity = np.zeros_like(network)
    for step in range(1, STEPS + 1):
        total = np.empty(len(network) + 1)
        world.Allreduce(gradient(network, places[mine], inside[mine]), total)
        slopes, loss = total[:-1] / len(places), total[-1] / len(places)
        velocity = MOMENTUM * velocity - RATE * slopes
        network = network + velocity
        if world.rank == 0 and step % 25 == 0:
            print(f"step={step} loss={loss:.4f} ranks={world.size}", flush=True)
    return 0 if loss < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
