"""A script as people publish them: a deep convolutional GAN of 64x64 pictures, which it makes itself.

    published_dcgan.py [--ngf N] [--ndf N] [--steps N] [--double]

Out: a line a step: both losses, and what the discriminator says of pictures and of inventions.
"""

import argparse
import random

import torch
from torch import nn, optim
from torch.utils.data import DataLoader


def weights_init(m):
    kind = m.__class__.__name__
    if kind.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif kind.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def generator(nz, ngf):
    layers, width = [nn.ConvTranspose2d(nz, ngf * 8, 4, 1, 0, bias=False)], ngf * 8
    while width > ngf:
        layers += [nn.BatchNorm2d(width), nn.ReLU(True), nn.ConvTranspose2d(width, width // 2, 4, 2, 1, bias=False)]
        width //= 2
    layers += [nn.BatchNorm2d(ngf), nn.ReLU(True), nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def discriminator(ndf):
    layers, width = [nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)], ndf
    while width < ndf * 8:
        layers += [nn.Conv2d(width, width * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(width * 2)]
        layers.append(nn.LeakyReLU(0.2, inplace=True))
        width *= 2
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 4, 1, 0, bias=False), nn.Sigmoid())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--nz", type=int, default=100)
    parser.add_argument("--ngf", type=int, default=16)
    parser.add_argument("--ndf", type=int, default=16)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=999)
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()
    if args.double:
        torch.set_default_dtype(torch.float64)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    colours = torch.rand(args.steps * args.batch_size, 3, 1, 1) * 2 - 1
    images = (colours + 0.2 * torch.randn(args.steps * args.batch_size, 3, 64, 64)).clamp(-1, 1)
    loader = DataLoader(images, batch_size=args.batch_size, shuffle=True)
    netG, netD = generator(args.nz, args.ngf), discriminator(args.ndf)
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCELoss()
    fixed = torch.randn(args.batch_size, args.nz, 1, 1)
    optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))
    for step, real in enumerate(loader):
        netD.zero_grad()
        label = torch.full((real.size(0),), 1.0)
        output = netD(real).view(-1)
        real_loss = criterion(output, label)
        real_loss.backward()
        of_real = output.mean().item()
        fake = netG(torch.randn(real.size(0), args.nz, 1, 1))
        label.fill_(0.0)
        output = netD(fake.detach()).view(-1)
        fake_loss = criterion(output, label)
        fake_loss.backward()
        before = output.mean().item()
        optimizerD.step()
        netG.zero_grad()
        label.fill_(1.0)
        output = netD(fake).view(-1)
        loss = criterion(output, label)
        loss.backward()
        optimizerG.step()
        both = (real_loss + fake_loss).item()
        after = output.mean().item()
        print(f"step {step} loss {both:.6f} loss {loss.item():.6f} D {of_real:.4f} {before:.4f} {after:.4f}")
    netG.eval()
    with torch.no_grad():
        print(f"invented: mean {netG(fixed).mean().item():.5f}")


if __name__ == "__main__":
    main()
