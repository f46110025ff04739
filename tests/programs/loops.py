"""Training loops as researchers write them: callbacks, meters, loggers, early stops, schedules, checkpoints, sweeps."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import io
import itertools
import json
import logging
import math
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, Callable

from tests.programs.harness import attempt, program


def data(torch, k, n=4):
    x = torch.arange(float(n * 2)).view(n, 2).sin() + k
    return x, x.sum(1, keepdim=True) * 0.5


def net_of(torch, wide=3):
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(2, wide), torch.nn.Tanh(), torch.nn.Linear(wide, 1))
    for n, p in enumerate(net.parameters()):
        with torch.no_grad():
            p.copy_((torch.arange(float(p.numel())).view_as(p) + n).cos() * 0.3)
    return net


@program
def callbacks_in_a_trainer(torch, compile):
    class Callback:
        def on_step(self, trainer, **info): ...
        def on_end(self, trainer): ...

    class History(Callback):
        def __init__(self):
            self.rows = []

        def on_step(self, trainer, **info):
            self.rows.append({"step": trainer.step_count, **info})

    class StopWhenGood(Callback):
        def __init__(self, limit):
            self.limit = limit

        def on_step(self, trainer, loss, **rest):
            if loss < self.limit:
                trainer.should_stop = True

    class Trainer:
        def __init__(self, net, callbacks):
            self.net, self.callbacks = net, callbacks
            self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
            self.step_count, self.should_stop = 0, False
            self.train_step = compile(self.train_step)

        def train_step(self, x, y):
            self.opt.zero_grad(set_to_none=True)
            loss = (self.net(x) - y).square().mean()
            loss.backward()
            self.opt.step()
            self.step_count += 1
            return loss.detach()

        def emit(self, event, **info):
            for callback in self.callbacks:
                getattr(callback, f"on_{event}")(self, **info)

        def fit(self, steps):
            for k in range(steps):
                loss = self.train_step(*data(torch, k % 2))
                self.emit("step", loss=round(loss.item(), 4), lr=self.opt.param_groups[0]["lr"])
                if self.should_stop:
                    break
            self.emit("end")

    history = History()
    trainer = Trainer(net_of(torch), [history, StopWhenGood(0.05)])
    trainer.fit(6)
    yield history.rows, trainer.step_count, trainer.net


@program
def meters_updated_inside(torch, compile):
    @dataclass
    class Meter:
        total: float = 0.0
        count: int = 0
        window: deque = field(default_factory=lambda: deque(maxlen=3))

        def update(self, value, n=1):
            self.total = self.total + value * n
            self.count += n
            self.window.append(value)

        @property
        def average(self):
            return self.total / max(self.count, 1)

    meters = defaultdict(Meter)
    net = net_of(torch)

    @compile
    def evaluate(x, y):
        with torch.no_grad():
            out = net(x)
            meters["loss"].update((out - y).abs().mean(), len(x))
            meters["norm"].update(out.norm())
        return out

    for k in range(4):
        yield evaluate(*data(torch, k))
        yield {name: (meter.average, meter.count, list(meter.window)) for name, meter in meters.items()}


@program
def logger_every_n_steps(torch, compile):
    stream = io.StringIO()
    logger = logging.getLogger("tests.programs.loops")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(funcName)s %(message)s"))
    logger.handlers[:] = [handler]
    state = {"step": 0}

    @compile
    def train_step(w, x):
        state["step"] += 1
        loss = (w * x).sum()
        if state["step"] % 2 == 0:
            logger.info("step %d done", state["step"])
        logger.debug("never shown %s", x)
        return loss * 2

    w = torch.ones(2, requires_grad=True)
    for k in range(5):
        loss = train_step(w, torch.ones(2) * k)
        loss.backward()
        yield loss, w.grad
    yield stream.getvalue()


@program
def early_stopping_with_patience(torch, compile):
    class EarlyStopping:
        def __init__(self, patience, delta=0.0):
            self.patience, self.delta = patience, delta
            self.best, self.bad, self.state = math.inf, 0, None

        def __call__(self, value, net):
            if value < self.best - self.delta:
                self.best, self.bad = value, 0
                self.state = copy.deepcopy(net.state_dict())
            else:
                self.bad += 1
            return self.bad >= self.patience

    net, stopping = net_of(torch), EarlyStopping(2, 1e-3)

    @compile
    def validate(x, y):
        return (net(x) - y).square().mean()

    stopped = []
    for k in (0, 1, 3, 0, 5, 6, 7):
        value = float(validate(*data(torch, k)))
        stopped.append(stopping(value, net))
        if stopped[-1]:
            break
    yield stopped, stopping.best, stopping.bad, dict(stopping.state)


@program
def hand_written_schedule(torch, compile):
    class Warmup:
        def __init__(self, opt, peak, warm):
            self.opt, self.peak, self.warm, self.n = opt, peak, warm, 0

        def step(self):
            self.n += 1
            scale = min(self.n / self.warm, 1.0) * 0.5 * (1 + math.cos(math.pi * self.n / 10))
            for group in self.opt.param_groups:
                group["lr"] = self.peak * scale
            return scale

    net = net_of(torch)
    opt = torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.9)
    schedule = Warmup(opt, 0.1, 3)

    @compile
    def train_step(x, y):
        scale = schedule.step()
        opt.zero_grad()
        loss = (net(x) - y).abs().mean()
        loss.backward()
        opt.step()
        return loss.detach(), scale

    for k in range(6):
        yield train_step(*data(torch, k % 3))
    yield net, opt.param_groups[0]["lr"], schedule.n


@program
def accumulation_with_a_context_manager(torch, compile):
    net = net_of(torch)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)

    class Accumulate:
        def __init__(self, every):
            self.every, self.seen = every, 0

        @contextlib.contextmanager
        def __call__(self):
            self.seen += 1
            yield self.seen % self.every == 0

    accumulate = Accumulate(2)

    @compile
    def train_step(x, y):
        with accumulate() as is_last:
            loss = (net(x) - y).square().mean() / accumulate.every
            loss.backward()
            if is_last:
                norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                opt.zero_grad()
                return loss.detach(), norm
        return loss.detach(), None

    for k in range(5):
        yield train_step(*data(torch, k))
    yield net


@program
def checkpoints_of_best_and_last(torch, compile):
    net = net_of(torch)
    saved = {}

    @compile
    def step(x, y, tag):
        out = net(x)
        score = (out - y).abs().mean()
        best = saved.get("best")
        if best is None or tag.endswith("!"):
            saved["best"] = {"tag": tag, "weights": {k: v.clone() for k, v in net.state_dict().items()}}
        saved["last"] = {"tag": tag, "score": score.detach()}
        return score

    for tag in ("a", "b", "c!", "d"):
        score = step(*data(torch, len(tag)), tag)
        score.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        yield score, saved["best"]["tag"], saved["last"]
    yield saved["best"]["weights"]


@program
def sweep_over_partial_configurations(torch, compile):
    @dataclass(frozen=True)
    class Run:
        lr: float = 0.1
        act: str = "tanh"
        tags: tuple = ()

        def name(self):
            return "-".join([self.act, f"{self.lr:g}", *self.tags])

    grid = [Run(lr=lr, act=act) for lr, act in itertools.product((0.1, 0.2), ("tanh", "relu"))]
    grid.append(dataclasses.replace(grid[0], tags=("again",)))
    acts = {"tanh": torch.tanh, "relu": torch.relu}

    @compile
    def step(w, x, run):
        loss = acts[run.act](x @ w).sum()
        (grad,) = torch.autograd.grad(loss, w)
        return run.name(), (w - run.lr * grad).detach(), loss.detach()

    results = {}
    for run in grid:
        w = torch.ones(2, requires_grad=True)
        for k in range(2):
            name, w, loss = step(w, data(torch, k)[0], run)
            w = w.requires_grad_()
        results[name] = (w, loss)
        yield name, loss
    yield results


@program
def timers_and_counters_around_steps(torch, compile):
    calls, times = collections.Counter(), []

    def timed(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            begin = time.perf_counter()
            try:
                return fn(*args, **kwargs)
            finally:
                calls[fn.__name__] += 1
                times.append(time.perf_counter() - begin >= 0)

        return inner

    @timed
    def forward(w, x):
        return (w * x).sin().sum()

    @compile
    def step(w, x):
        loss = forward(w, x)
        return loss, forward(w, x * 2)

    for k in range(3):
        yield step(torch.ones(2), torch.ones(2) * k), dict(calls), times


@program
def moving_average_of_weights(torch, compile):
    net = net_of(torch)
    shadow = {name: p.detach().clone() for name, p in net.named_parameters()}

    def ema(decay):
        for name, p in net.named_parameters():
            shadow[name].mul_(decay).add_(p.detach(), alpha=1 - decay)

    @contextlib.contextmanager
    def averaged():
        backup = {name: p.detach().clone() for name, p in net.named_parameters()}
        try:
            for name, p in net.named_parameters():
                p.data.copy_(shadow[name])
            yield net
        finally:
            for name, p in net.named_parameters():
                p.data.copy_(backup[name])

    @compile
    def step(x, y, k):
        loss = (net(x) - y).square().mean()
        for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters()))):
            p.data.sub_(g, alpha=0.1)
        ema(min(0.9, (1 + k) / (10 + k)))
        return loss.detach()

    @compile
    def evaluate(x):
        with torch.no_grad(), averaged() as model:
            return model(x)

    for k in range(4):
        x, y = data(torch, k)
        yield step(x, y, k), evaluate(x), net(x)
    yield shadow


@program
def nan_steps_are_skipped_and_told(torch, compile):
    told = []

    @compile
    def step(w, x, state):
        loss = (w * x).log().sum()
        if not torch.isfinite(loss):
            state["skipped"] = state.get("skipped", 0) + 1
            told.append(f"skipped {state['skipped']}")
            return None
        state["good"] = state.get("good", 0) + 1
        return loss

    state = {}
    for value in (1.0, 0.0, 2.0, -1.0, 3.0):
        yield step(torch.ones(2), torch.full((2,), value), state), state, told


@program
def a_dictionary_of_losses_with_weights(torch, compile):
    weights = {"main": 1.0, "l1": 0.01, "aux": 0.0}
    net = net_of(torch)

    def losses(x, y):
        out = net(x)
        yield "main", (out - y).square().mean()
        yield "l1", sum(p.abs().sum() for p in net.parameters())
        if weights["aux"]:
            yield "aux", out.mean()

    @compile
    def step(x, y):
        parts = dict(losses(x, y))
        total = sum(weights[name] * part for name, part in parts.items())
        return total, {name: part.detach() for name, part in parts.items()}

    for aux in (0.0, 0.0, 0.5, 0.5, 0.25):
        weights["aux"] = aux
        total, parts = step(*data(torch, 1))
        total.backward()
        yield total, parts, [p.grad for p in net.parameters()]


@program
def results_as_json_lines(torch, compile):
    lines = []

    class Writer:
        def __init__(self, **constant):
            self.constant = constant

        def write(self, **row):
            lines.append(json.dumps({**self.constant, **row}, sort_keys=True))

    writer = Writer(run="r1", seed=3)

    @compile
    def step(x, k):
        y = (x * k).tanh()
        writer.write(k=k, kind="train", shape=list(y.shape))
        return y.sum()

    for k in range(4):
        yield step(torch.ones(2, k + 1), k)
    yield lines


@program
def curriculum_by_length(torch, compile):
    class Curriculum:
        stages = ((2, 1.0), (4, 0.5), (8, 0.25))

        def __init__(self):
            self.stage, self.steps = 0, 0

        def __iter__(self):
            while self.stage < len(self.stages):
                yield self.stages[self.stage]
                self.steps += 1
                if self.steps % 2 == 0:
                    self.stage += 1

    curriculum = Curriculum()

    @compile
    def step(x, weight):
        return (x.cumsum(0) * weight).mean()

    seen = []
    for length, weight in curriculum:
        seen.append(step(torch.arange(float(length)), weight))
    yield seen, curriculum.steps


@program
def a_step_that_retries(torch, compile):
    class OutOfMemory(RuntimeError):
        pass

    budget = {"left": 3}

    def forward(x):
        if len(x) > budget["left"]:
            raise OutOfMemory(f"{len(x)} rows")
        return x.sin().sum(0)

    @compile
    def step(x, depth=0):
        try:
            return forward(x), depth
        except OutOfMemory as error:
            if len(x) == 1:
                raise
            halves = [step_again(half, depth + 1) for half in x.chunk(2)]
            return sum(value for value, _ in halves), (str(error), [d for _, d in halves])

    def step_again(x, depth):
        return forward(x) if depth > 3 else step(x, depth)

    for n in (2, 5, 2, 7, 3):
        yield attempt(step, torch.arange(float(n * 2)).view(n, 2))
    budget["left"] = 0
    yield attempt(step, torch.ones(2, 2))


Hook = Callable[[Any], None]
