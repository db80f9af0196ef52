"""Data-parallel training with PyTorch, of a fixed number of processes or of an elastic one.

`python train.py` finds the others by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; `torchrun train.py` by its PET_*
variables, and starts again with the present workers when one is lost or joins.  Each process keeps its progress in a
file of its own pod, and the one with the most progress sends it to the others: a new pod learns from its peers.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from points import points
from torch.nn.parallel import DistributedDataParallel

EPOCHS = int(os.environ.get("EPOCHS", "12"))
EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0"))
"""The least time for an epoch: long enough to watch a worker go and another one come."""
STEPS = 21
"""Of an epoch; the points of one are shared by all processes, so that another number of them changes nothing else."""
WANTED_LOSS = 0.25
"""A coin's is 0.69."""
SNAPSHOT = Path(os.environ.get("SNAPSHOT", "/tmp/snapshot")).with_suffix(f".{os.environ.get('LOCAL_RANK', '0')}")  # noqa: S108


def resume(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Everybody goes on from where the furthest has come; the number of steps that are done."""
    state = torch.load(SNAPSHOT) if SNAPSHOT.exists() else {"steps": 0}
    came: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(came, state["steps"])
    if max(came):
        told = [state]
        dist.broadcast_object_list(told, src=came.index(max(came)))
        network.load_state_dict(told[0]["network"])
        optimizer.load_state_dict(told[0]["optimizer"])
    return max(came)


def keep(steps: int, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Whole or not at all: this process may be killed at any time."""
    unfinished = SNAPSHOT.with_suffix(".unfinished")
    torch.save({"steps": steps, "network": network.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
    unfinished.replace(SNAPSHOT)


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    network = torch.nn.Sequential(torch.nn.Linear(2, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.3, momentum=0.9)
    done = resume(network, optimizer)
    print(f"group workers={workers} rank={rank} epochs={done // STEPS}", flush=True)
    model = DistributedDataParallel(network)
    error = torch.nn.BCEWithLogitsLoss()
    places, inside = map(torch.from_numpy, points())
    loss, losses = torch.zeros(1), []
    for step in range(done, EPOCHS * STEPS):
        began = time.monotonic()
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(step // STEPS))
        some = order.chunk(STEPS)[step % STEPS][rank::workers]
        optimizer.zero_grad()
        lost = error(model(places[some]), inside[some])
        lost.backward()
        optimizer.step()
        losses.append(lost.detach())
        # After every step: it is small, and a lost worker costs no more than that.
        keep(step + 1, network, optimizer)
        if (step + 1) % STEPS == 0:
            loss, losses = torch.stack(losses).mean(), []
            dist.all_reduce(loss)
            loss /= workers
            print(f"epoch={(step + 1) // STEPS} loss={loss.item():.4f} workers={workers}", flush=True)
        time.sleep(max(0.0, began + EPOCH_SECONDS / STEPS - time.monotonic()))
    dist.barrier()
    dist.destroy_process_group()
    return 0 if loss.item() < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
