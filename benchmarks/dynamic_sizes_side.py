"""One side of dynamic_sizes.py: a program over 20 lengths, twice, in this process. Prints one JSON line.

    [BENCH_FRAMEWORK=torch] [BENCH_DEVICE=cuda] python dynamic_sizes_side.py gpt|lstm|cache dynamic|default|eager

gpt, lstm: training steps on batches of 20 lengths, the last of them smaller. cache: a token at a time, decoded with
keys and values that grow. What Python runs of a call the model's forward counts: compiled calls do not get there.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from framework import NAME, F, identity, nn, torch
from models import Block, LanguageModel

LENGTHS = (24, 17, 31, 40, 12, 29, 35, 21, 38, 15, 27, 33, 19, 36, 23, 14, 39, 26, 18, 30)
VOCABULARY, BATCH, LAST_BATCH = 512, 8, 5


class Counted(nn.Module):
    """A model, and how many of its calls Python ran."""

    def __init__(self) -> None:
        super().__init__()
        self.eager = 0

    def count(self) -> None:
        if not torch.compiler.is_compiling():
            self.eager += 1


class GPT(Counted):
    """Decoder-only transformer with learned positions, for all lengths up to 64; the loss is the mean cross entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, 64), nn.Embedding(64, 64)
        self.blocks = nn.ModuleList([Block(64, 4) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, VOCABULARY, bias=False)

    def forward(self, x: Any, y: Any) -> Any:
        self.count()
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))  # (B, T, width)
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


class LSTM(Counted):
    """An LSTM language model. Tokens: (T, B)."""

    def __init__(self) -> None:
        super().__init__()
        self.model = LanguageModel(64, VOCABULARY)

    def forward(self, x: Any, y: Any) -> Any:
        self.count()
        return self.model(x.t(), y.t().contiguous())


class Decoder(Counted):
    """A layer of attention over the keys and values of the tokens so far: those of one more each call."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        self.count()
        q, k, v = (t.view(x.shape[0], 1, 4, 16).transpose(1, 2) for t in self.qkv(x).split(64, dim=2))
        keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)  # (B, heads, T, 16)
        a = F.scaled_dot_product_attention(q, keys, values)
        return self.out(a.transpose(1, 2).reshape(x.shape[0], 1, 64)), keys, values


def training(model: Any, compiled: Any) -> Iterator[float]:
    """One pass over the batches: the loss of each."""
    for number, length in enumerate(LENGTHS, 1):
        batch = LAST_BATCH if number == len(LENGTHS) else BATCH
        x = (torch.arange(batch * length) * 7919 % VOCABULARY).view(batch, length)
        model.zero_grad()
        loss = compiled(x, x.roll(1, 1))
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        yield loss.item()


def decoding(model: Any, compiled: Any) -> Iterator[float]:
    """20 tokens, after a prompt of 4."""
    x = torch.linspace(-1, 1, 2 * 64).view(2, 1, 64)
    keys = values = torch.linspace(-1, 1, 2 * 4 * 4 * 16).view(2, 4, 4, 16)
    with torch.no_grad():
        for _ in LENGTHS:
            x, keys, values = compiled(x, keys, values)
            yield x.sum().item()


def filled(model: Any) -> Any:
    """The same numbers on both sides."""
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_((torch.arange(p.numel()) * (7 + number) % 101).view(p.shape) / 505 - 0.1)
    return model


def cpu_s() -> float:
    """CPU time of this process, and of all that it started: those that compile may outlive what they compile."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) + _descendants_s()


def _descendants_s() -> float:
    """Of processes that live, with their children that have ended; Linux's /proc knows them (elsewhere: nothing)."""
    facts: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            facts[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    family = {os.getpid()}
    while more := {pid for pid, fact in facts.items() if int(fact[1]) in family} - family:
        family |= more
    ticks = sum(int(ticks) for pid in family - {os.getpid()} for ticks in facts[pid][11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def captured(compiled: Any) -> tuple[int, int | None]:
    """(graphs that were captured, what was compiled of these for sizes)."""
    if NAME == "torch":
        return torch._dynamo.utils.counters["stats"]["unique_graphs"], None
    entries = compiled.explain().entries
    return len(entries), sum(max(len(entry.made), 1) for entry in entries)


def main() -> None:
    program, mode = sys.argv[1:]
    kinds: dict[str, tuple[Any, Callable[[Any, Any], Iterator[float]]]] = {
        "gpt": (GPT, training), "lstm": (LSTM, training), "cache": (Decoder, decoding),
    }  # fmt: skip
    kind, run = kinds[program]
    if "BENCH_DEVICE" in os.environ:
        torch.set_default_device(os.environ["BENCH_DEVICE"])
    model = filled(kind())
    options = {"dynamic": True} if mode == "dynamic" else {}
    compiled = model if mode == "eager" else torch.compile(model, **options)
    begun = cpu_s()
    losses = list(run(model, compiled))
    middle = cpu_s()
    losses += run(model, compiled)
    times = {"first_s": round(middle - begun, 3), "again_s": round(cpu_s() - middle, 3)}
    captures, made = (0, None) if mode == "eager" else captured(compiled)
    counts = {"captures": captures, "made": made, "eager": model.eager, "calls": 2 * len(LENGTHS)}
    print(json.dumps({**identity(), "program": program, **counts, **times, "losses": losses}), flush=True)


if __name__ == "__main__":
    main()
