"""A DDP script as tutorials write it: `spawn` starts the ranks, and does so twice. The second time, what `case` says.

    published_spawn.py CASE            train, fail, exit

In: nothing. Out: rank 0 prints `loss L` of its steps; FAIL and EXIT end the second run in rank 1.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank, world_size, case):
    setup(rank, world_size)
    torch.manual_seed(0)
    ddp_model = DDP(ToyModel())
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.1)
    x = torch.arange(40 * 10, dtype=torch.float32).reshape(40, 10).sin()[rank::world_size]
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.MSELoss()(ddp_model(x), x[:, :5])
        loss.backward()
        optimizer.step()
    dist.all_reduce(loss)
    if rank == 0:
        print(f"loss {loss.item() / world_size:.6f}", flush=True)
    if case == "leave":
        return
    if rank == 1 and case == "fail":
        raise ValueError("the second rank fails")
    if rank == 1 and case == "exit":
        sys.exit(7)
    dist.destroy_process_group()


def run_demo(demo_fn, world_size, case):
    mp.spawn(demo_fn, args=(world_size, case), nprocs=world_size, join=True)


def main(case):
    run_demo(demo_basic, 2, "leave")
    run_demo(demo_basic, 2, case)


if __name__ == "__main__":
    main(sys.argv[1])
