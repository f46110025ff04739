"""What is compiled for sizes that a call decides, beside its static twin: the same program, the same sizes. CPU time.

    python benchmarks/twins.py [--only 'gpt*' softmax] [--rounds 15] [--json FILE]

Ours alone, in this process, with empty caches: each program is compiled with dynamic=True, and called at other sizes
first, so that it runs what sizes share; and with dynamic=False. Both are timed in turn, in samples of 20 ms or more. A
line gives the median CPU time of a call of each, the ratio of the medians (above 1: the symbolic one is slower) with
the quartiles of the rounds' ratios, and what it may be. Exit code 1 if one is slower. "fb": forward and backward.
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
from eager_side import Call, leaf, sample, there_and_back
from framework import F, nn, torch
from models import GPT
from resnet import resnet18

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """make: the program. inputs: of some sizes. sizes: those that are timed stand last."""

    make: Callable[[], Callable[..., Any]]
    inputs: Callable[..., Inputs]
    sizes: tuple[tuple[int, ...], ...]
    backward: bool = True
    at_most: float = 1.05


class AnyLength(GPT):
    """For all lengths up to that of its positions."""

    def forward(self, x: Any, y: Any) -> Any:
        h = self.tokens(x) + self.positions[: x.shape[1]]  # (B, T, width)
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


class States(nn.Module):
    """Those of two LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 64, 2)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


def pointwise(x: Any) -> Any:
    return torch.tanh(x * 2 + 1) * torch.sigmoid(x) - x


def softmax(x: Any) -> Any:
    return F.softmax(x, -1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, w.shape, w, b)


def tokens(batch: int, length: int) -> Inputs:
    x = torch.randint(0, 512, (batch, length))
    return x, x.roll(1, 1)


def images(batch: int, width: int) -> Inputs:
    return torch.randn(batch, 3, width, width), torch.arange(batch)


MATRICES, BATCHES = ((1000, 300), (700, 200), (1024, 384)), ((6, 60), (7, 70), (8, 96))
ROWS = {
    **{
        f"{function.__name__}{' fb' if backward else ''}": Row(lambda f=function: f, inputs, MATRICES, backward)
        for function, inputs in (
            (pointwise, lambda n, width: (leaf(n, width),)),
            (softmax, lambda n, width: (leaf(n, width),)),
            (layer_norm, lambda n, width: (leaf(n, width), leaf(width), leaf(width))),
        )
        for backward in (False, True)
    },
    "lstm fb": Row(States, lambda n, batch: (leaf(n, batch, 64),), ((30, 6), (40, 7), (32, 8)), at_most=1.1),
    "gpt fb": Row(lambda: AnyLength(4, 128, 4, 128, 512), tokens, BATCHES, at_most=1.1),
    "resnet18 fb": Row(resnet18, images, ((5, 24), (6, 40), (8, 32)), at_most=1.1),
}


def call_of(function: Callable[..., Any], inputs: Inputs, *, backward: bool) -> Call:
    if not backward:
        plain = [one.detach() for one in inputs]
        return lambda: function(*plain)
    if inputs[0].requires_grad:
        return there_and_back(function, *inputs)
    return lambda: function(*inputs).backward()


def measured(row: Row, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds a call, one a round: of the symbolic one, and of its static twin."""
    torch.manual_seed(0)
    program = row.make()
    twins = [torch.compile(copy.deepcopy(program), dynamic=dynamic) for dynamic in (True, False)]
    for sizes in row.sizes:
        inputs = row.inputs(*sizes)
        call_of(twins[0], inputs, backward=row.backward)()
    calls = [call_of(twin, inputs, backward=row.backward) for twin in twins]
    counts, times = [1, 1], ([], [])
    for number in range(-8, rounds):
        for place in (0, 1):
            took, counts[place] = sample(calls[place], counts[place])
            if number >= 0:
                times[place].append(took)
    return times


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], help="rows, by patterns of the shell")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", default="")
    return parser.parse_args()


def main() -> None:
    options = parse()
    print("| compiled | symbolic, us | static, us | ratio (quartiles) | at most |\n|---|---|---|---|---|", flush=True)
    found, missed = {}, []
    for name in (name for name in ROWS if any(fnmatch.fnmatch(name, pattern) for pattern in options.only)):
        most = ROWS[name].at_most
        symbolic, static = found[name] = measured(ROWS[name], options.rounds)
        medians = [statistics.median(times) for times in (symbolic, static)]
        ratio, each = medians[0] / medians[1], sorted(one / twin for one, twin in zip(symbolic, static))
        spread = f"{ratio:.2f} ({each[len(each) // 4]:.2f} to {each[3 * len(each) // 4]:.2f})"
        print(f"| {name} | {' | '.join(f'{s * 1e6:.1f}' for s in medians)} | {spread} | {most} |", flush=True)
        missed += [name] if ratio > most else []
    where = machine.describe()
    print(f"\n{options.rounds} rounds, CPU time, in turn. {where}")
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": where, "rows": found}, indent=1) + "\n")
    if missed:
        raise SystemExit(f"slower than they may be: {', '.join(missed)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DISTCOMPILE_CACHE_DIR"] = folder
        main()
