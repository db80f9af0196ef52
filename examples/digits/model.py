"""What is trained: the digits, a small network, its gradient and its optimizer.

Pure functions of NumPy arrays. All parameters are one flat vector, so that an all-reduce,
a commit and a comparison of two replicas each deal with a single array.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Labels = NDArray[np.intp]

PIXELS, HIDDEN, CLASSES = 64, 48, 10
LAYERS = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
SIZE = sum(int(np.prod(shape)) for shape in LAYERS)

TRAIN_IMAGES = 1437
BATCH = 96
STEPS_PER_EPOCH = TRAIN_IMAGES // BATCH
LEARNING_RATE = 0.05
MOMENTUM = 0.9


@dataclass(frozen=True)
class Split:
    """Images with their labels; `train` and `test` never share one."""

    train: tuple[Matrix, Labels]
    test: tuple[Matrix, Labels]


def load(seed: int) -> Split:
    """The digits, split into 1,437 to train on and 360 to test with; the same split for the same seed."""
    with np.load(Path(__file__).with_name("digits.npz")) as stored:
        images = stored["images"] / 16.0
        labels = stored["labels"].astype(np.intp)
    order = np.random.default_rng(seed).permutation(len(labels))
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return Split(train=(images[train], labels[train]), test=(images[test], labels[test]))


def initial(seed: int) -> tuple[Vector, Vector]:
    """Parameters before the first step, and the optimizer's velocity, which is zero."""
    rng = np.random.default_rng(seed)
    drawn = [
        rng.normal(0.0, np.sqrt(2.0 / shape[0]), shape).ravel() if len(shape) == 2 else np.zeros(shape)
        for shape in LAYERS
    ]
    return np.concatenate(drawn), np.zeros(SIZE)


def batch(seed: int, step: int) -> NDArray[np.intp]:
    """Which training images make up the global batch of `step`: a shuffle for each epoch.

    Every worker computes the same list and takes its part of it, so no worker has to hand out indices.
    """
    epoch, place = divmod(step, STEPS_PER_EPOCH)
    order = np.random.default_rng((seed, epoch)).permutation(TRAIN_IMAGES)
    return order[place * BATCH : (place + 1) * BATCH]


def shard(indices: NDArray[np.intp], shares: list[int], rank: int) -> NDArray[np.intp]:
    """The part of a global batch that `rank` works on, in proportion to its share (its slots).

    The parts of all ranks are the whole batch, each image once, whatever the number of workers.
    """
    bounds = [0, *np.cumsum(shares)]
    start, stop = (round(len(indices) * bound / bounds[-1]) for bound in bounds[rank : rank + 2])
    return indices[start:stop]


def gradient(parameters: Vector, images: Matrix, labels: Labels) -> tuple[Vector, float]:
    """Gradient and loss, both summed over the images: sums of shards add up to the batch's."""
    hidden, scores = _forward(parameters, images)
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_chance = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    loss = -float(log_chance[rows, labels].sum())

    on_scores = np.exp(log_chance)
    on_scores[rows, labels] -= 1.0
    _, _, second, _ = _layers(parameters)
    on_hidden = (on_scores @ second.T) * (hidden > 0.0)
    parts = (images.T @ on_hidden, on_hidden.sum(axis=0), hidden.T @ on_scores, on_scores.sum(axis=0))
    return np.concatenate([part.ravel() for part in parts]), loss


def update(parameters: Vector, velocity: Vector, mean_gradient: Vector) -> tuple[Vector, Vector]:
    """Parameters and velocity after one step of gradient descent with momentum."""
    velocity = MOMENTUM * velocity - LEARNING_RATE * mean_gradient
    return parameters + velocity, velocity


def accuracy(parameters: Vector, images: Matrix, labels: Labels) -> float:
    """The fraction of images whose digit is recognised."""
    _, scores = _forward(parameters, images)
    return float((scores.argmax(axis=1) == labels).mean())


def _forward(parameters: Vector, images: Matrix) -> tuple[Matrix, Matrix]:
    first, first_bias, second, second_bias = _layers(parameters)
    hidden = np.maximum(images @ first + first_bias, 0.0)
    return hidden, hidden @ second + second_bias


def _layers(parameters: Vector) -> list[Vector]:
    """The flat vector seen as weights and biases; views, not copies."""
    ends = np.cumsum([int(np.prod(shape)) for shape in LAYERS])
    return [part.reshape(shape) for part, shape in zip(np.split(parameters, ends[:-1]), LAYERS, strict=True)]
