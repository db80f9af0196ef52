"""Data-parallel training with Horovod Elastic and PyTorch, on as many workers as the hosts file names.

`horovodrun ... --host-discovery-script /etc/edl/discover_hosts.sh python train.py` in the launcher: Horovod starts this
program on every worker by ssh, and forms the group again when a worker is lost, leaves or joins.  All go on from the
epoch that was saved last, and new workers get it from the others.
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
BATCH = 64
WANTED_LOSS = 0.25
"""A coin's is 0.69."""


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Called again, with what was saved last, whenever the group was formed again."""
    rank, workers = hvd.rank(), hvd.size()
    print(f"group workers={workers} rank={rank} host={os.uname().nodename} epochs={state.epochs}", flush=True)
    error = torch.nn.BCEWithLogitsLoss()
    places, inside = (torch.from_numpy(part[rank::workers].copy()) for part in points())
    while state.epochs < EPOCHS:
        began = time.monotonic()
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(state.epochs))
        losses = []
        for some in order.split(BATCH)[: len(points()[0]) // workers // BATCH]:
            state.optimizer.zero_grad()
            lost = error(state.model(places[some]), inside[some])
            lost.backward()
            state.optimizer.step()
            losses.append(lost.detach())
        state.loss = hvd.allreduce(torch.stack(losses).mean(), name="loss").item()
        state.epochs += 1
        state.save()
        if rank == 0:
            print(f"epoch={state.epochs} loss={state.loss:.4f} workers={workers}", flush=True)
        time.sleep(max(0.0, began + EPOCH_SECONDS - time.monotonic()))
        state.check_host_updates()


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hvd.init()
    network = torch.nn.Sequential(torch.nn.Linear(2, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))
    descent = torch.optim.SGD(network.parameters(), lr=0.3, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(descent, named_parameters=network.named_parameters())
    state = hvd.elastic.TorchState(model=network, optimizer=optimizer, epochs=0, loss=1.0)
    train(state)
    return 0 if state.loss < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
