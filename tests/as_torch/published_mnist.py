"""A script as people publish them: the convolutional network for handwritten digits, on pictures that it makes itself.

    published_mnist.py [--images N] [--epochs N] [--num-workers N] [--save FILE] [--double]

Model, optimizer and schedule are those of the first example that people run. Out: a line `loss L` every few steps, and
what share of other pictures is told right after every epoch.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def pictures(count, strokes):
    """28x28: one of ten drawings, moved by a pixel or two, and noise."""
    labels = torch.randint(10, (count,))
    images = 0.4 * torch.randn(count, 1, 28, 28)
    shifts = torch.randint(-2, 3, (count, 2)).tolist()
    for image, label, (down, right) in zip(images, labels.tolist(), shifts):
        image += torch.roll(strokes[label], (down, right), (1, 2))
    return TensorDataset(images, labels)


def test(model, loader):
    model.eval()
    total, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            total += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(1).eq(target).sum().item()
    print(f"test loss {total / len(loader.dataset):.6f} correct {correct} of {len(loader.dataset)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=4)
    parser.add_argument("--save")
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    if args.double:
        torch.set_default_dtype(torch.float64)
    strokes = F.interpolate((torch.rand(10, 1, 7, 7) > 0.6).to(torch.get_default_dtype()), scale_factor=4)
    options = {"batch_size": args.batch_size, "num_workers": args.num_workers, "shuffle": True}
    train_loader = DataLoader(pictures(args.images, strokes), **options)
    test_loader = DataLoader(pictures(args.images // 8, strokes), **options)
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for step, (data, target) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            if step % args.log_interval == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.6f}")
        test(model, test_loader)
        scheduler.step()
    if args.save:
        torch.save(model.state_dict(), args.save)
        again = Net()
        again.load_state_dict(torch.load(args.save, weights_only=True))
        test(again, test_loader)


if __name__ == "__main__":
    main()
