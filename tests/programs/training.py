"""Training scripts as people write them, with all their parts together."""

from __future__ import annotations

import copy
import math
from collections import defaultdict

from tests.programs.harness import program


def net_of(torch, *sizes):
    nn = torch.nn
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    net = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(torch.linspace(-0.4, 0.4 + 0.1 * k, p.numel()).view(p.shape))
    return net


def data_of(torch, n=8):
    x = torch.linspace(-1, 1, 2 * n).view(n, 2)
    return x, (x[:, :1] * x[:, 1:]).sin()


@program(codegen=True)
def script_with_everything(torch, compile):
    net = net_of(torch, 2, 4, 1)
    ema = copy.deepcopy(net)
    opt = torch.optim.AdamW(net.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)
    log, best, patience = [], math.inf, 0
    x, y = data_of(torch)

    @compile
    def train_step(x, y, step):
        loss = torch.nn.functional.mse_loss(net(x), y)
        (loss / 2).backward()
        if (step + 1) % 2 == 0:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            schedule.step()
            opt.zero_grad()
            with torch.no_grad():
                for a, p in zip(ema.parameters(), net.parameters()):
                    a.lerp_(p, 0.1)
        if step % 3 == 0:
            log.append((step, round(loss.item(), 4)))
            print("step", step)
        return loss.detach()

    for step in range(8):
        loss = train_step(x, y, step)
        if loss < best - 1e-3:
            best, patience = loss.item(), 0
        else:
            patience += 1
        if patience >= 3:
            break
        yield loss
    yield log, net, ema


@program
def trainer_class_with_callbacks(torch, compile):
    class Trainer:
        def __init__(self, net, callbacks):
            self.net, self.callbacks, self.step, self.history = net, callbacks, 0, defaultdict(list)
            self.opt = torch.optim.SGD(net.parameters(), lr=0.3)
            self.loss_fn = compile(self.loss)

        def loss(self, x, y):
            return ((self.net(x) - y) ** 2).mean()

        def emit(self, event, **info):
            for c in self.callbacks:
                getattr(c, event, lambda *a, **k: None)(self, **info)

        def fit(self, x, y, epochs):
            for _ in range(epochs):
                self.emit("before_step")
                self.opt.zero_grad()
                loss = self.loss_fn(x, y)
                loss.backward()
                self.opt.step()
                self.step += 1
                self.emit("after_step", loss=loss.detach())
                yield loss

    class Recorder:
        def after_step(self, trainer, loss):
            trainer.history["loss"].append(loss)

    class Decay:
        def before_step(self, trainer):
            for g in trainer.opt.param_groups:
                g["lr"] *= 0.9

    trainer = Trainer(net_of(torch, 2, 3, 1), [Recorder(), Decay()])
    yield from trainer.fit(*data_of(torch), 4)
    yield trainer.history["loss"], trainer.step, trainer.opt.param_groups[0]["lr"]


@program
def loop_until_the_loss_is_small(torch, compile):
    w = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    opt = torch.optim.SGD([w], lr=0.3)

    @compile
    def loss_of():
        return (w**2).sum()

    steps, loss = 0, loss_of()
    while loss > 0.05 and steps < 20:
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss = loss_of()
        steps += 1
    yield steps, loss, w


@program
def adversarial_pair(torch, compile):
    gen, disc = net_of(torch, 2, 3, 2), net_of(torch, 2, 3, 1)
    opt_g = torch.optim.SGD(gen.parameters(), lr=0.1)
    opt_d = torch.optim.SGD(disc.parameters(), lr=0.1)
    F = torch.nn.functional

    @compile
    def d_loss(real, noise):
        fake = gen(noise).detach()
        return F.softplus(-disc(real)).mean() + F.softplus(disc(fake)).mean()

    @compile
    def g_loss(noise):
        return F.softplus(-disc(gen(noise))).mean()

    x, _ = data_of(torch)
    for k in range(3):
        opt_d.zero_grad()
        d = d_loss(x, x * 0.5)
        d.backward()
        opt_d.step()
        opt_g.zero_grad()
        g = g_loss(x * 0.1 * k)
        g.backward()
        opt_g.step()
        yield d, g
    yield gen, disc


@program
def policy_gradient_with_a_baseline(torch, compile):
    policy = net_of(torch, 2, 3, 2)
    opt = torch.optim.SGD(policy.parameters(), lr=0.1)
    baseline, rewards_seen = 0.0, []

    @compile
    def loss_of(states, actions, returns):
        logp = policy(states).log_softmax(-1)
        chosen = logp.gather(1, actions[:, None]).squeeze(1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        return -(chosen * returns).mean() - 0.01 * entropy

    x, _ = data_of(torch, 4)
    for k in range(4):
        rewards = torch.tensor([1.0, 0.0, 0.5, 2.0]) * (k + 1)
        baseline = 0.9 * baseline + 0.1 * rewards.mean().item()
        rewards_seen.append(round(baseline, 5))
        opt.zero_grad()
        loss = loss_of(x, torch.tensor([0, 1, 0, 1]), rewards - baseline)
        loss.backward()
        opt.step()
        yield loss
    yield rewards_seen, policy


@program
def evaluation_between_epochs(torch, compile):
    class Meter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.total, self.count = 0.0, 0

        def update(self, value, n=1):
            self.total += value * n
            self.count += n

        @property
        def mean(self):
            return self.total / max(1, self.count)

    nn = torch.nn
    net = nn.Sequential(net_of(torch, 2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    nn.init.constant_(net[2].weight, 0.5)
    nn.init.zeros_(net[2].bias)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    f, meter = compile(net), Meter()
    x, y = data_of(torch)
    for _ in range(2):
        net.train()
        meter.reset()
        for part in range(2):
            rows = slice(part * 4, part * 4 + 4)
            loss = ((f(x[rows]) - y[rows]) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.update(loss.item(), 4)
        net.eval()
        with torch.no_grad():
            score = ((f(x) - y) ** 2).mean()
        yield round(meter.mean, 4), score, net.training
    yield net


@program
def contrastive_memory_bank(torch, compile):
    class Bank:
        def __init__(self, size, dim):
            self.data, self.pointer = torch.zeros(size, dim), 0

        def enqueue(self, keys):
            n = keys.shape[0]
            self.data[self.pointer : self.pointer + n] = keys.detach()
            self.pointer = (self.pointer + n) % self.data.shape[0]

    net, bank = net_of(torch, 2, 2), Bank(4, 2)
    F = torch.nn.functional

    @compile
    def loss_of(x):
        q = F.normalize(net(x), dim=-1)
        k = F.normalize(net(x + 0.1).detach(), dim=-1)
        logits = torch.cat([(q * k).sum(-1, keepdim=True), q @ bank.data.clone().t()], dim=1) / 0.5
        loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))
        bank.enqueue(k)
        return loss

    x, _ = data_of(torch, 2)
    for k in range(4):
        net.zero_grad()
        loss = loss_of(x + 0.1 * k)
        loss.backward()
        yield loss, bank.data, bank.pointer
    yield net


@program
def multi_task_with_weights(torch, compile):
    nn = torch.nn

    class MultiTask(nn.Module):
        def __init__(self, tasks):
            super().__init__()
            self.trunk = net_of(torch, 2, 3)
            self.heads = nn.ModuleDict({t: net_of(torch, 3, n) for t, n in tasks.items()})
            self.log_vars = nn.ParameterDict({t: nn.Parameter(torch.zeros(())) for t in tasks})

        def forward(self, x, targets):
            h = self.trunk(x)
            losses = {}
            for name, target in targets.items():
                out = self.heads[name](h)
                kind = nn.functional.cross_entropy if target.dtype == torch.int64 else nn.functional.mse_loss
                s = self.log_vars[name]
                losses[name] = kind(out, target) * torch.exp(-s) + s
            return sum(losses.values()), losses

    net = MultiTask({"a": 1, "b": 3})
    f = compile(net)
    x, y = data_of(torch, 3)
    labels = torch.tensor([0, 2, 1])
    for targets in ({"a": y, "b": labels}, {"a": y}, {"b": labels}, {"a": y, "b": labels}):
        net.zero_grad(set_to_none=True)
        total, losses = f(x, targets)
        total.backward()
        yield total, losses, [n for n, p in net.named_parameters() if p.grad is None]


@program
def curriculum_and_checkpoints(torch, compile):
    net = net_of(torch, 2, 3, 1)
    opt = torch.optim.Adam(net.parameters(), lr=0.05)
    saved = {}
    x, y = data_of(torch)

    @compile
    def loss_of(x, y):
        return (net(x) - y).pow(2).mean()

    for k, n in enumerate((2, 4, 8, 8)):
        opt.zero_grad()
        loss = loss_of(x[:n], y[:n])
        loss.backward()
        opt.step()
        if k == 1:
            saved = {
                "net": copy.deepcopy(net.state_dict()),
                "opt": copy.deepcopy(opt.state_dict()),
                "loss": loss.item(),
            }
        yield loss
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])
    yield loss_of(x, y), saved["loss"]
    yield net


@program
def meta_learning_inner_loop(torch, compile):
    meta = torch.nn.Parameter(torch.tensor([0.5, 0.5]))

    def predict(params, x):
        return x @ params

    @compile
    def adapted_loss(tasks, inner_lr):
        total = 0.0
        for x, y in tasks:
            error = predict(meta, x) - y
            grad = 2 * x.t() @ error / len(x)
            fast = meta - inner_lr * grad
            total = total + ((predict(fast, x) - y) ** 2).mean()
        return total / len(tasks)

    tasks = [(torch.eye(2) * k, torch.ones(2)) for k in (1.0, 2.0)]
    for lr in (0.1, 0.2, 0.1):
        meta.grad = None
        loss = adapted_loss(tasks, lr)
        loss.backward()
        yield loss, meta


@program
def mixed_precision_step(torch, compile):
    net = net_of(torch, 2, 4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = data_of(torch)

    @compile
    def loss_of(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(x)
        return torch.nn.functional.mse_loss(out.float(), y)

    for _ in range(3):
        opt.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        opt.step()
        yield [p.grad.dtype for p in net.parameters()], loss.dtype, round(loss.item(), 1)
