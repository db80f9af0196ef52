"""Data-parallel training with DeepSpeed's engine, on as many workers as its launcher starts.

`deepspeed --hostfile=/job/hostfile train.py` in the launcher: it starts this program on every worker that the file
names, by pdsh and ssh, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.  A group stays as it was launched.
"""

import argparse
import os
import sys
import time

import deepspeed
import torch
from points import points

BATCH = 64
WANTED_LOSS = 0.25
"""A coin's is 0.69."""
CONFIG = {"train_micro_batch_size_per_gpu": BATCH}
"""Without ZeRO: the gloo of this PyTorch cannot gather as its stages do."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0, help="from DeepSpeed's launcher")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--epoch-seconds", type=float, default=0.0, help="the least time for an epoch")
    return parser.parse_args()


def main() -> int:
    wanted = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))
    descent = torch.optim.SGD(network.parameters(), lr=0.3, momentum=0.9)
    engine, *_ = deepspeed.initialize(model=network, optimizer=descent, config=CONFIG)
    rank, workers = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    print(f"group workers={workers} rank={rank} host={os.uname().nodename}", flush=True)
    error = torch.nn.BCEWithLogitsLoss()
    places, inside = (torch.from_numpy(part[rank::workers].copy()) for part in points())
    loss = torch.ones(1)
    for epoch in range(wanted.epochs):
        began = time.monotonic()
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(epoch))
        losses = []
        for some in order.split(BATCH)[: len(points()[0]) // workers // BATCH]:
            lost = error(engine(places[some]), inside[some])
            engine.backward(lost)
            engine.step()
            losses.append(lost.detach())
        loss = torch.stack(losses).mean()
        deepspeed.comm.all_reduce(loss)
        loss /= workers
        if rank == 0:
            print(f"epoch={epoch + 1} loss={loss.item():.4f} workers={workers}", flush=True)
        time.sleep(max(0.0, began + wanted.epoch_seconds - time.monotonic()))
    return 0 if loss.item() < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
