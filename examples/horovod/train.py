"""Data-parallel training with Horovod Elastic and PyTorch, on as many workers as the hosts file names.

`horovodrun ... --host-discovery-script /etc/edl/discover_hosts.sh python train.py` in the launcher: Horovod starts this
program on every worker by ssh, and forms the group again when a worker is lost, leaves or joins.  All go on from the
step that was saved last, and new workers get it from the others.
"""

import os
import sys
import time

import horovod.torch as hvd
import torch
from points import points

EPOCHS = int(os.environ.get("EPOCHS", "12"))
EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0"))
"""The least time for an epoch: long enough to watch a worker go and another one come."""
STEPS = 21
"""Of an epoch; the points of one are shared by all processes, so that another number of them changes nothing else."""
WANTED_LOSS = 0.25
"""A coin's is 0.69."""


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Called again, with what was saved last, whenever the group was formed again."""
    rank, workers = hvd.rank(), hvd.size()
    done = state.steps // STEPS
    print(f"group workers={workers} rank={rank} host={os.uname().nodename} epochs={done}", flush=True)
    error = torch.nn.BCEWithLogitsLoss()
    places, inside = map(torch.from_numpy, points())
    while state.steps < EPOCHS * STEPS:
        began = time.monotonic()
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(state.steps // STEPS))
        some = order.chunk(STEPS)[state.steps % STEPS][rank::workers]
        state.optimizer.zero_grad()
        lost = error(state.model(places[some]), inside[some])
        lost.backward()
        state.optimizer.step()
        state.loss += hvd.allreduce(lost.detach(), name="loss").item() / STEPS
        state.steps += 1
        epoch, step = divmod(state.steps, STEPS)
        if not step:
            state.last, state.loss = state.loss, 0.0
        # Every step: it is small, and a lost worker costs no more than that.
        state.save()
        if not step and rank == 0:
            print(f"epoch={epoch} loss={state.last:.4f} workers={workers}", flush=True)
        time.sleep(max(0.0, began + EPOCH_SECONDS / STEPS - time.monotonic()))
        state.check_host_updates()


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hvd.init()
    network = torch.nn.Sequential(torch.nn.Linear(2, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))
    descent = torch.optim.SGD(network.parameters(), lr=0.3, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(descent, named_parameters=network.named_parameters())
    state = hvd.elastic.TorchState(model=network, optimizer=optimizer, steps=0, loss=0.0, last=1.0)
    train(state)
    return 0 if state.last < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
