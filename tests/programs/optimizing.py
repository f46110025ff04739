"""Optimizers, schedulers, gradient clipping and accumulation, averages of weights, inside and outside of compile."""

from __future__ import annotations

import copy

from tests.programs.harness import program


def small_net(torch, value=0.3):
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(torch.linspace(-value, value * (k + 1), p.numel()).view(p.shape))
    return net


def batch(torch, k):
    x = torch.arange(6.0).reshape(3, 2) / 6 + 0.1 * k
    return x, x.sum(1, keepdim=True)


@program(codegen=True)
def zero_grad_inside(torch, compile):
    net = small_net(torch)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    @compile
    def loss_of(x, y):
        opt.zero_grad()
        return ((net(x) - y) ** 2).mean()

    for k in range(4):
        loss = loss_of(*batch(torch, k))
        loss.backward()
        yield loss, net
        opt.step()
    yield net


@program
def whole_step_compiled(torch, compile):
    net = small_net(torch)
    opt = torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.1)

    @compile
    def train_step(x, y):
        opt.zero_grad(set_to_none=True)
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    for k in range(4):
        yield train_step(*batch(torch, k)).detach()
    yield net


@program
def gradient_clipping(torch, compile):
    net = small_net(torch)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @compile
    def forward(x, y):
        return ((net(x) - y) ** 2).sum()

    @compile
    def clip_and_step(limit):
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), limit)
        opt.step()
        opt.zero_grad()
        return norm

    for k in range(3):
        forward(*batch(torch, k)).backward()
        yield clip_and_step(0.5)
    yield net


@program
def accumulation_over_micro_batches(torch, compile):
    net = small_net(torch)
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    f = compile(net)
    every = 2
    for k in range(4):
        x, y = batch(torch, k)
        loss = ((f(x) - y) ** 2).mean() / every
        loss.backward()
        if (k + 1) % every == 0:
            opt.step()
            opt.zero_grad()
        yield loss, net


@program
def learning_rate_schedule(torch, compile):
    net = small_net(torch)
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + step))

    @compile
    def loss_of(x, y):
        return (net(x) - y).abs().mean()

    for k in range(4):
        opt.zero_grad()
        loss_of(*batch(torch, k)).backward()
        opt.step()
        schedule.step()
        yield opt.param_groups[0]["lr"], net[0].weight.detach()


@program
def exponential_moving_average(torch, compile):
    net = small_net(torch)
    average = copy.deepcopy(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    @compile
    def step(x, y, decay):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), net.parameters()):
                a.mul_(decay).add_(p, alpha=1 - decay)
        return loss.detach()

    for k in range(4):
        yield step(*batch(torch, k), 0.9)
    yield average
    yield net


@program
def averages_in_a_dict(torch, compile):
    net = small_net(torch)
    shadow = {n: p.detach().clone() for n, p in net.named_parameters()}

    @compile
    def update(decay):
        for name, p in net.named_parameters():
            shadow[name] = decay * shadow[name] + (1 - decay) * p.detach()

    for k in range(3):
        update(0.5)
        with torch.no_grad():
            net[0].weight.add_(0.1 * k)
        yield shadow


@program
def gradients_set_to_none_by_hand(torch, compile):
    w = torch.nn.Parameter(torch.ones(2))

    @compile
    def loss_of(x):
        w.grad = None
        return (w * x).sum()

    for k in range(3):
        loss = loss_of(torch.ones(2) * k)
        yield w.grad
        loss.backward()
        yield w


@program
def own_sgd(torch, compile):
    net = small_net(torch)

    @compile
    def train(x, y, lr):
        loss = ((net(x) - y) ** 2).mean()
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads):
                p -= lr * g
        return loss.detach()

    for k in range(4):
        yield train(*batch(torch, k), 0.1)
    yield net


@program
def parameter_groups(torch, compile):
    net = small_net(torch)
    decay = [p for p in net.parameters() if p.ndim > 1]
    rest = [p for p in net.parameters() if p.ndim <= 1]
    opt = torch.optim.SGD([{"params": decay, "weight_decay": 0.1}, {"params": rest, "lr": 0.5}], lr=0.1)

    @compile
    def closure(x, y):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        return loss, [g["lr"] for g in opt.param_groups]

    for k in range(3):
        loss, rates = closure(*batch(torch, k))
        loss.backward()
        opt.step()
        opt.param_groups[0]["lr"] *= 0.5
        yield loss, rates
    yield net


@program
def frozen_layers(torch, compile):
    net = small_net(torch)
    f = compile(net)
    x, y = batch(torch, 0)
    ((f(x) - y) ** 2).mean().backward()
    yield net
    for p in net[0].parameters():
        p.requires_grad_(False)
        p.grad = None
    ((f(x) - y) ** 2).mean().backward()
    yield net
    net[0].weight.requires_grad_(True)
    ((f(x) - y) ** 2).mean().backward()
    yield net


@program
def lbfgs_like_closure(torch, compile):
    w = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    opt = torch.optim.SGD([w], lr=0.1)
    evaluations = 0

    def closure():
        nonlocal evaluations
        evaluations += 1
        opt.zero_grad()
        loss = value()
        loss.backward()
        return loss

    @compile
    def value():
        return (w**4).sum() + w.prod()

    for _ in range(3):
        yield opt.step(closure)
    yield evaluations, w


@program
def unused_output_leaves_no_gradient(torch, compile):
    a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))

    @compile
    def both(x):
        return (a * x).sum(), (b * x).sum()

    first, second = both(torch.ones(2))
    first.backward()
    yield a, b
    first, second = both(torch.ones(2) * 2)
    second.backward()
    yield a, b
