"""A DDP script as it is written for torch: gloo, a sampler that shares the data out, a learning-rate schedule.

In: the environment that torchrun gives. Out: rank 0 prints the parameters after two epochs as one line of JSON. One
process with batches of 16 and two with batches of 8 see the same batches.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(32, 4)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        dist.init_process_group("gloo")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = Net().to(device)
    wrapped = DDP(model) if world_size > 1 else model
    train = torch.compile(wrapped) if args.compile else wrapped
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    x = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, x[:, :4].argmax(1))
    sampler = DistributedSampler(data, shuffle=False) if world_size > 1 else None
    loader = DataLoader(data, batch_size=16 // world_size, sampler=sampler)
    for epoch in range(2):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(train(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        scheduler.step()
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps({name: value.tolist() for name, value in model.state_dict().items()}))
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
