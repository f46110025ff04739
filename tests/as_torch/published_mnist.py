"""A script as people publish them: a convolutional network for images of digits. It imports torch, and knows no other.

    published_mnist.py --weights FILE --save FILE [--num-workers N] ...

In: initial weights, so that two libraries start alike. Out: a line `epoch E loss L` an epoch, the state dict saved.
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """Noise around a picture for each digit."""

    def __init__(self, count):
        draw = np.random.default_rng(0)
        pictures = draw.standard_normal((10, 1, 14, 14))
        self.targets = draw.integers(0, 10, count)
        self.images = (pictures[self.targets] + 0.5 * draw.standard_normal((count, 1, 14, 14))).astype(np.float32)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index]), int(self.targets[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2)
        self.fc = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x):
        x = torch.tanh(self.bn(self.conv1(x)))
        x = torch.tanh(self.conv2(x))
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    total = 0.0
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(data)
    print(f"epoch {epoch} loss {total / len(loader.dataset):.6f} lr {optimizer.param_groups[0]['lr']:.4f}")


def test(model, device, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            prediction = output.argmax(dim=1, keepdim=True)
            correct += prediction.eq(target.to(device).view_as(prediction)).sum().item()
    print(f"correct {correct} of {len(loader.dataset)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--weights")
    parser.add_argument("--save")
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Digits(192), batch_size=32, num_workers=args.num_workers)
    model = Net().to(device)
    if args.weights:
        with np.load(args.weights) as weights:
            model.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights.files})
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, loader, optimizer, epoch)
        test(model, device, loader)
        scheduler.step()
    if args.save:
        torch.save(model.state_dict(), args.save)
        again = Net()
        again.load_state_dict(torch.load(args.save, map_location=device, weights_only=True))
        test(again, device, loader)


if __name__ == "__main__":
    main()
