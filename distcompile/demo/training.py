"""The training loop: batches by DistributedSampler, DDP, AdamW with warm-up and cosine decay, held-out loss.

In: settings, corpus, the default process group. Out: `DemoRun`: the trained model, the losses, the time of each part of
a step. Held-out losses are means over all ranks. The clocks are this rank's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import distcompile as torch
from distcompile import Tensor
from distcompile.data import DataLoader, DistributedSampler
from distcompile.ddp import DistributedDataParallel
from distcompile.demo.display import Display
from distcompile.demo.model import GPT, ModelSizes
from distcompile.demo.text import Corpus, Windows

HELD_OUT_BATCHES = 8  # a rank
WARM_UP = 0.1  # of all steps; shorter, and some seeds get stuck at the letters' frequencies
MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the command line can set. backend: of `compile`, or "none" for no compilation at all. batch: a rank's."""

    steps: int = 160
    layers: int = 3
    width: int = 128
    time: int = 64
    batch: int = 8
    learning_rate: float = 4e-3
    backend: str = "codegen"
    bucket_cap_mb: float = 1.0
    seed: int = 0
    evaluate_every: int = 40


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step on this rank, seconds. backward holds the wait for communication that it could not hide."""

    data_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float  # clipping included


@dataclass
class DemoRun:
    """A finished training run. held_out: (step, loss)."""

    module: GPT
    model: DistributedDataParallel
    step_function: Callable[[Tensor, Tensor], Tensor]
    losses: list[float] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)
    times: list[StepTimes] = field(default_factory=list)
    first_step_s: float = 0.0
    tokens_per_s: float = 0.0

    @property
    def loss_fell(self) -> bool:
        """Whether the held-out loss is lower than before training, and a number."""
        return self.held_out[-1][1] < self.held_out[0][1]


def learning_rate_factor(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine down to a tenth."""
    warm_up = max(1, int(WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def mean_over_ranks(value: float) -> float:
    """The mean of every rank's `value`."""
    mean = torch.tensor(value)
    torch.distributed.all_reduce(mean, torch.distributed.ReduceOp.AVG)
    return float(mean)


def endless(windows: Windows, settings: DemoSettings) -> Iterator[tuple[Tensor, Tensor]]:
    """This rank's batches, epoch after epoch, reshuffled."""
    sampler = DistributedSampler(windows, seed=settings.seed, drop_last=True)
    loader = DataLoader(windows, batch_size=settings.batch, sampler=sampler, drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


class Trainer:
    """Holds what a step needs; `run` is the loop."""

    def __init__(self, settings: DemoSettings, corpus: Corpus) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        module = GPT(ModelSizes(len(corpus.vocabulary), settings.layers, settings.width, time=settings.time))
        model = DistributedDataParallel(module, bucket_cap_mb=settings.bucket_cap_mb)
        compiled = model if settings.backend == "none" else torch.compile(model, backend=settings.backend)
        self.result = DemoRun(module, model, compiled)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.1
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate_factor(step, settings.steps)
        )
        self.batches = endless(Windows(corpus.training, settings.time), settings)
        held_out = Windows(corpus.held_out, settings.time)
        sampler = DistributedSampler(held_out, drop_last=True)
        loader = DataLoader(held_out, batch_size=settings.batch, sampler=sampler, drop_last=True)
        self.held_out = [batch for batch, _ in zip(loader, range(HELD_OUT_BATCHES))]

    def run(self, display: Display) -> DemoRun:
        """Train; returns the finished run."""
        settings, result = self.settings, self.result
        tokens_a_step = settings.batch * settings.time * torch.distributed.get_world_size()
        self._evaluate(0, display)
        busy_s = 0.0
        for step in range(1, settings.steps + 1):
            begun = time.perf_counter()
            loss = self._step()
            taken_s = time.perf_counter() - begun
            result.losses.append(loss)
            if step == 1:
                result.first_step_s = taken_s
            else:
                busy_s += taken_s
                result.tokens_per_s = tokens_a_step * (step - 1) / busy_s
            display.step(step, loss, result.tokens_per_s)
            if step % settings.evaluate_every == 0 or step == settings.steps:
                self._evaluate(step, display)
        return result

    def _step(self) -> float:
        """One training step; returns this rank's loss."""
        clock = [time.perf_counter()]
        x, y = next(self.batches)
        clock.append(time.perf_counter())
        self.optimizer.zero_grad()
        loss = self.result.step_function(x, y)
        clock.append(time.perf_counter())
        loss.backward()
        clock.append(time.perf_counter())
        torch.nn.utils.clip_grad_norm_(self.result.model.parameters(), MAX_GRADIENT_NORM)
        self.optimizer.step()
        self.scheduler.step()
        clock.append(time.perf_counter())
        self.result.times.append(StepTimes(*(b - a for a, b in pairwise(clock))))
        return float(loss)

    def _evaluate(self, step: int, display: Display) -> None:
        """Held-out loss, over all ranks' parts."""
        model = self.result.model
        model.eval()
        with torch.no_grad():
            losses = [float(self.result.step_function(x, y)) for x, y in self.held_out]
        model.train()
        loss = mean_over_ranks(sum(losses) / len(losses))
        self.result.held_out.append((step, loss))
        display.evaluation(step, loss, self.result.tokens_per_s)
