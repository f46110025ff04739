"""A script as people publish them: a variational autoencoder of 28x28 pictures, which it makes itself.

    published_vae.py [--images N] [--epochs N] [--double]

Out: a line `loss L` every few steps, and of pictures that the decoder dreams up their mean.
"""

import argparse

import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 400)
        self.fc21 = nn.Linear(400, 20)
        self.fc22 = nn.Linear(400, 20)
        self.fc3 = nn.Linear(20, 400)
        self.fc4 = nn.Linear(400, 784)

    def encode(self, x):
        hidden = F.relu(self.fc1(x))
        return self.fc21(hidden), self.fc22(hidden)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(again, x, mu, logvar):
    entropy = F.binary_cross_entropy(again, x.view(-1, 784), reduction="sum")
    return entropy - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=6400)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=5)
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()
    if args.double:
        torch.set_default_dtype(torch.float64)
    torch.manual_seed(args.seed)
    shapes = F.interpolate((torch.rand(10, 1, 7, 7) > 0.6).to(torch.get_default_dtype()), scale_factor=4)
    which = torch.randint(10, (args.images,))
    images = (shapes[which] * torch.rand(args.images, 1, 1, 1) + 0.1 * torch.rand(args.images, 1, 28, 28)).clamp(0, 1)
    loader = DataLoader(images, batch_size=args.batch_size, shuffle=True)
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        model.train()
        total = 0
        for step, data in enumerate(loader):
            optimizer.zero_grad()
            again, mu, logvar = model(data)
            loss = loss_function(again, data, mu, logvar)
            loss.backward()
            total += loss.item()
            optimizer.step()
            if step % args.log_interval == 0:
                print(f"epoch {epoch} step {step} loss {loss.item() / len(data):.6f}")
        print(f"epoch {epoch} average loss {total / len(images):.4f}")
        with torch.no_grad():
            print(f"dreamt: loss {model.decode(torch.randn(64, 20)).mean().item():.6f}")


if __name__ == "__main__":
    main()
