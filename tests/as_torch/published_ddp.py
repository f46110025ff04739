"""A script as people publish them: DistributedDataParallel from a launcher's variables, with snapshots to resume from.

    published_ddp.py EPOCHS SNAPSHOT

In: RANK, LOCAL_RANK, WORLD_SIZE in the environment (torchrun, distcompile-run); a snapshot, if there is one.
Out: rank 0 prints `epoch E loss L` (the mean over ranks).
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, loader, optimizer, snapshot):
        self.rank = int(os.environ["LOCAL_RANK"])
        self.loader, self.optimizer, self.snapshot, self.epochs_run = loader, optimizer, snapshot, 0
        if os.path.exists(snapshot):
            state = torch.load(snapshot, map_location="cpu")
            model.load_state_dict(state["MODEL_STATE"])
            self.epochs_run = state["EPOCHS_RUN"]
            print(f"rank {self.rank} resumes at epoch {self.epochs_run}")
        self.model = DDP(model)

    def epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for source, targets in self.loader:
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(source), targets)
            loss.backward()
            self.optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        if self.rank == 0:
            print(f"epoch {epoch} loss {(total[0] / total[1]).item():.6f}")
            torch.save({"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}, self.snapshot)
        dist.barrier()


def main(epochs, snapshot):
    dist.init_process_group(backend="gloo")
    x = torch.arange(64 * 5, dtype=torch.float32).reshape(64, 5).sin()
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            values = torch.arange(parameter.numel(), dtype=torch.float32)
            parameter.copy_(((values + number) * 1.7).cos().view_as(parameter) * 0.3)
    dataset = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))
    trainer = Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=0.1), snapshot)
    for epoch in range(trainer.epochs_run, epochs):
        trainer.epoch(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
