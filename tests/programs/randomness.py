"""Random numbers: seeds, dropout, noise, Python's and NumPy's generators; compiled draws what eager draws."""

from __future__ import annotations

import random

import numpy as np

from tests.programs.harness import program


@program
def dropout_trains_and_evaluates(torch, compile):
    net = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Identity())
    f = compile(net)
    for _ in range(3):
        yield f(torch.ones(8))
    net.eval()
    yield f(torch.ones(8))
    net.train()
    yield f(torch.ones(8))


@program
def noise_and_seeds(torch, compile):
    @compile
    def noisy(x, scale):
        return x + scale * torch.randn_like(x) + torch.rand(2).sum()

    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        yield noisy(torch.zeros(2), 0.5)
        yield torch.rand(1)


@program
def python_random(torch, compile):
    rng = random.Random(3)

    @compile
    def jitter(x):
        k = rng.randint(1, 5)
        return x * k + random.random()

    random.seed(11)
    for _ in range(4):
        yield jitter(torch.ones(2))
    yield rng.random(), random.random()


@program
def numpy_random(torch, compile):
    state = np.random.RandomState(5)

    @compile
    def mix(x):
        lam = float(np.random.beta(2.0, 2.0))
        order = state.permutation(3)
        return x * lam, order[0] + 0.0

    for _ in range(3):
        yield mix(torch.ones(2))
    yield state.randint(100)


@program
def stochastic_depth(torch, compile):
    class Skip(torch.nn.Module):
        def __init__(self, p):
            super().__init__()
            self.p = p

        def forward(self, x):
            if self.training:
                keep = (torch.rand(x.shape[0], 1) >= self.p).float()
                return x + x.tanh() * keep / (1 - self.p)
            return x + x.tanh()

    net = Skip(0.3)
    f = compile(net)
    for _ in range(2):
        yield f(torch.ones(4, 2))
    net.eval()
    yield f(torch.ones(4, 2))


@program
def sampling_tokens(torch, compile):
    @compile
    def sample(logits, n):
        probs = logits.softmax(-1)
        return torch.multinomial(probs, n, replacement=True), torch.randperm(3).sort().values

    for _ in range(2):
        yield sample(torch.tensor([0.0, 1.0, 2.0]), 5)


@program
def generator_objects(torch, compile):
    generator = torch.Generator()
    generator.manual_seed(42)

    def noise(n):
        return torch.randn(n, generator=generator)

    @compile
    def add(x, eps):
        return x + eps * 0.1

    for n in (2, 3):
        yield add(torch.zeros(n), noise(n))


@program
def gumbel_softmax_and_reparametrisation(torch, compile):
    @compile
    def encode(mu, logvar):
        std = (0.5 * logvar).exp()
        z = mu + std * torch.randn_like(std)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum()
        return z, kl

    for k in range(3):
        yield encode(torch.zeros(2), torch.full((2,), 0.1 * k))


@program
def shuffled_batches(torch, compile):
    data = torch.arange(6.0)

    @compile
    def epoch(scale):
        order = list(range(6))
        random.shuffle(order)
        return sum(data[k] * scale / (i + 1) for i, k in enumerate(order))

    random.seed(1)
    for scale in (1.0, 1.0, 2.0):
        yield epoch(scale)
