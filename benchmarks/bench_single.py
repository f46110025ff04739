"""One process: the first step (compilation included) and the median training step. Prints one JSON line.

    [BENCH_FRAMEWORK=torch] [OMP_NUM_THREADS=2] python bench_single.py MODEL eager|compile|whole [--repeats N]
                                                                      [--first-only] [--beside N]

MODEL: one of models.py, or chain10k, chain10m (sin(cos(x)), forward only). compile: the model is compiled. whole: the
step is, as one graph; PyTorch compiles the model and the optimizer's step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

from framework import NAME, identity, torch
from models import chain, make
from timing import repeat_ms, seconds, summary


def chain_step(name: str, mode: str) -> tuple[Callable[[], object], int]:
    """The pointwise case's step, and how many to time together."""
    numel = {"chain10k": 10_000, "chain10m": 10_000_000}[name]
    x = torch.randn(numel)
    function = torch.compile(chain) if mode == "compile" else chain
    return lambda: function(x), 200 if numel == 10_000 else 1


def training_step(name: str, mode: str) -> Callable[[], object]:
    """zero_grad, forward, backward, gradients clipped if the case wants it, optimizer step; returns the loss."""
    case = make(name)
    optimizer = case.optimizer(case.model.parameters())
    is_ours = NAME != "torch"
    function = case.model if mode == "eager" or (mode == "whole" and is_ours) else torch.compile(case.model)
    if mode == "whole" and not is_ours:
        optimizer.step = torch.compile(optimizer.step)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = function(*case.batch)
        loss.backward()
        if case.clip is not None:
            torch.nn.utils.clip_grad_norm_(case.model.parameters(), case.clip)
        optimizer.step()
        return loss.detach()

    return torch.compile(step, fullgraph=True) if mode == "whole" and is_ours else step


@contextlib.contextmanager
def beside(number: int) -> Iterator[None]:
    """With `number` other processes that compute all the time."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("mode", choices=("eager", "compile", "whole"))
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--first-only", action="store_true")
    parser.add_argument("--beside", type=int, default=0, help="busy processes beside it, after the first step")
    options = parser.parse_args()
    if options.model.startswith("chain"):
        step, inner = chain_step(options.model, options.mode)
    else:
        step, inner = training_step(options.model, options.mode), 1
    result: dict[str, object] = {**identity(), "model": options.model, "mode": options.mode}
    result["first_s"] = round(seconds(step), 3)
    if not options.first_only:
        with beside(options.beside):
            result |= summary(repeat_ms(step, options.repeats, inner=inner), "step")
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
