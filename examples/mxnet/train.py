"""Workers push gradients to the servers and pull the model: MXNet's dist_sync, as the DMLC_* variables say.

Every replica runs this program (`python train.py`).  A scheduler or a server never gets past the import of mxnet: it
serves there, and ends when all workers have.
"""

import sys

import mxnet as mx
from mxnet import autograd, gluon
from points import points

EPOCHS, BATCH = 40, 64
"""The batch is that of one worker."""
WANTED_LOSS = 0.25
"""A coin's is 0.69."""


def main() -> int:
    store = mx.kv.create("dist_sync")
    places, inside = points()
    examples = gluon.data.DataLoader(
        gluon.data.ArrayDataset(places[store.rank :: store.num_workers], inside[store.rank :: store.num_workers]),
        batch_size=BATCH,
        shuffle=True,
        last_batch="discard",
    )
    network = gluon.nn.Sequential()
    network.add(gluon.nn.Dense(24, activation="tanh"), gluon.nn.Dense(1))
    network.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(network.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=store)
    error = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    loss = float("inf")
    for epoch in range(EPOCHS):
        total, batches = 0.0, 0
        for some, truth in examples:
            with autograd.record():
                lost = error(network(some), truth)
            lost.backward()
            trainer.step(BATCH * store.num_workers)
            total, batches = total + lost.mean().asscalar(), batches + 1
        loss = total / batches
        print(f"epoch={epoch + 1} loss={loss:.4f} rank={store.rank} workers={store.num_workers}", flush=True)
    return 0 if loss < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
