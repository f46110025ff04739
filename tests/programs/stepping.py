"""Training steps compiled whole, with parts that keep state of their own: scalers, averages, optimizers, decorators."""

from __future__ import annotations

import contextlib

from tests.programs.harness import program
from tests.programs.optimizing import batch, small_net


@program
def gradients_clipped_by_value(torch, compile):
    net = small_net(torch)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    @compile
    def train_step(x, y):
        opt.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)
        opt.step()

    for k in range(4):
        train_step(*batch(torch, k))
        yield net


@program
def gradient_scaler(torch, compile):
    net = small_net(torch)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    @compile
    def train_step(x, y):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(opt)
        scaler.update()
        return loss.detach()

    for k in range(6):
        x, y = batch(torch, k)
        yield train_step(x, y / 0 if k == 3 else y), scaler.get_scale()
        yield net


@program
def averages_in_a_decorated_method(torch, compile):
    class Average:
        def __init__(self, net):
            self.calls = 0
            self.shadow = {name: p.detach().clone() for name, p in net.named_parameters()}

        @torch.no_grad()
        def update(self, net):
            self.calls += 1
            decay = min(0.9, (1 + self.calls) / (10 + self.calls))
            for name, p in net.named_parameters():
                self.shadow[name] = decay * self.shadow[name] + (1 - decay) * p

        @contextlib.contextmanager
        def swapped(self, net):
            saved = {name: p.detach().clone() for name, p in net.named_parameters()}
            with torch.no_grad():
                for name, p in net.named_parameters():
                    p.copy_(self.shadow[name])
            try:
                yield
            finally:
                with torch.no_grad():
                    for name, p in net.named_parameters():
                        p.copy_(saved[name])

    net = small_net(torch)
    average, opt = Average(net), torch.optim.SGD(net.parameters(), lr=0.1)

    @compile
    def train_step(x, y):
        loss = ((net(x) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update(net)
        return loss.detach()

    @compile
    def evaluate(x):
        with torch.no_grad(), average.swapped(net):
            return net(x)

    for k in range(4):
        x, y = batch(torch, k)
        yield train_step(x, y), average.calls, average.shadow
        yield evaluate(x), net


@program
def breaks_in_decorated_functions(torch, compile):
    log = []

    @torch.no_grad()
    def told(x):
        log.append(torch.is_grad_enabled())
        print("told")
        log.append(torch.is_grad_enabled())
        return told(x - 1) if x.sum() > 3 else x * 2

    @compile
    def run(x):
        return told(x) + x, torch.is_grad_enabled()

    for k in range(4):
        yield run(torch.ones(2, requires_grad=True) * (k + 1)), log, torch.is_grad_enabled()


@program
def own_optimizer_compiled(torch, compile):
    class Sign(torch.optim.Optimizer):
        def __init__(self, parameters, lr):
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["mean"], state["step"] = torch.zeros_like(p), 0
                    state["step"] += 1
                    p.add_((state["mean"] * 0.9 + p.grad).sign_(), alpha=-group["lr"])
                    state["mean"].mul_(0.5).add_(p.grad)

    net = small_net(torch)
    opt = Sign(net.parameters(), 0.1)
    step = compile(opt.step)
    for k in range(5):
        x, y = batch(torch, k)
        opt.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        step()
        opt.param_groups[0]["lr"] *= 0.9
        yield net, list(opt.state.values())
