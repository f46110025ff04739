"""Random programs of views, writes, changes of shape and history on tensors that share memory: compiled is eager.

A program is a list of steps over five arguments (a buffer, a parameter, a tensor with a history, one without, a view of
the buffer) and what it has made of them. Compared call by call: results, arguments, versions, gradients, and what a
write to a result then changes. Three verdicts count as equal: an AutogradError of eager's own backward, where compiled
code kept the old value; a graph break, whose call runs in pieces; and the same error in both.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import distcompile
from compiler_core.errors import GraphBreak

CALLS = 3
Step = tuple[Any, ...]
ARGUMENTS = ("buffer", "parameter", "made", "plain", "view")
WINDOWS: tuple[Callable[[Any], Any], ...] = (
    *(lambda t: t[0], lambda t: t[1:], lambda t: t.t(), lambda t: t.view(-1) if t.is_contiguous() else t),
    *(lambda t: t[..., 1:], lambda t: t.unsqueeze(0), lambda t: t.detach(), lambda t: t[..., 0] if t.ndim > 1 else t),
)
WRITES: tuple[Callable[[Any, Any], Any], ...] = (
    *(lambda t, v: t.add_(1), lambda t, v: t.mul_(0.5), lambda t, v: t.copy_(v), lambda t, v: t.zero_()),
    *(lambda t, v: t.sub_(v), lambda t, v: t.fill_(v.sum())),
)
CHANGES: tuple[Callable[[Any], Any], ...] = (
    lambda t: t.unsqueeze_(0),
    lambda t: t.t_() if t.ndim == 2 else t,
    lambda t: t.squeeze_(0) if t.ndim > 2 and t.shape[0] == 1 else t,
)


def steps_of(rng: random.Random) -> tuple[list[Step], list[str]]:
    """A program's steps, and the names that it returns."""
    names, steps = list(ARGUMENTS), []
    for number in range(rng.randint(3, 8)):
        kind = rng.choice(["window", "write", "write", "silent", "silent", "compute", "compute", "change"])
        a, b, made = rng.choice(names), rng.choice(names), f"made{number}"
        table: tuple[Any, ...] = {"window": WINDOWS, "change": CHANGES, "compute": (0, 1, 2)}.get(kind, WRITES)
        steps.append((kind, made, a, b, rng.randrange(len(table))))
        if kind in ("window", "compute"):
            names.append(made)
    return steps, [rng.choice(names) for _ in range(3)]


def fitting(t: Any, value: Any) -> Any:
    return value if tuple(value.shape) == tuple(t.shape) else value.sum() * 0.1


def program(steps: list[Step], returned: list[str]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        held = dict(zip(ARGUMENTS, args))
        for kind, made, a, b, which in steps:
            t = held[a]
            if kind == "window":
                held[made] = WINDOWS[which](t)
            elif kind == "compute":
                value = fitting(t, held[b])
                held[made] = t * value if which == 0 else t + value if which == 1 else t * 1
            elif kind == "change":
                CHANGES[which](t)
            elif kind == "write":
                WRITES[which](t, fitting(t, held[b]))
            else:
                with distcompile.no_grad():
                    WRITES[which](t, fitting(t, held[b]))
        return [held[name] for name in returned]

    return run


def arguments(rng: random.Random, which: int) -> list[Any]:
    numbers = distcompile.arange(1.0, 13.0, dtype=distcompile.float64).reshape(3, 4)
    buffer, parameter = numbers + rng.random(), (numbers * 0.1).requires_grad_()
    view = (lambda t: t[1], lambda t: t[:, 1], lambda t: t.view(-1)[2:6], lambda t: t.t())[which](buffer)
    return [buffer, parameter, parameter * 2, numbers * 0.5, view]


def look(tensors: Any) -> list[Any]:
    return [(t.detach().tolist(), t.requires_grad, t.is_leaf) for t in tensors]


def story(function: Callable[..., Any], seed: int) -> list[Any]:
    """What can be seen of some calls."""
    rng, seen = random.Random(seed), []
    which = rng.randrange(4)
    for _ in range(CALLS):
        args = arguments(rng, which)
        try:
            results = function(*args)
        except GraphBreak:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it must be the same)
            seen.append(type(error).__name__)
            continue
        seen.append([look(results), look(args), [t._version for t in args]])
        seen.append(gradient(results, args))
        with distcompile.no_grad():
            for result in results:
                result.add_(0.25)
        seen.append([look(results), look(args)])
    return seen


def gradient(results: Any, args: Any) -> Any:
    parts = [(t * t * (k + 1)).sum() for k, t in enumerate((*results, *args)) if t.requires_grad and t is not args[1]]
    if parts:
        try:
            sum(parts).backward()
        except RuntimeError as error:
            return type(error).__name__
    return None if args[1].grad is None else args[1].grad.tolist()


def equal(eager: Any, compiled: Any) -> bool:
    if eager == "AutogradError":
        return True
    if isinstance(eager, list | tuple) and isinstance(compiled, list | tuple):
        return len(eager) == len(compiled) and all(map(equal, eager, compiled))
    if isinstance(eager, float) and isinstance(compiled, float):
        return math.isclose(eager, compiled, rel_tol=1e-9, abs_tol=1e-12) or (eager != eager and compiled != compiled)
    return bool(eager == compiled)


def check(seed: int, backend: str) -> bool:
    """Whether the program was one graph. Fails if compiled is not eager."""
    steps, returned = steps_of(random.Random(seed))
    run = program(steps, returned)
    eager = story(run, seed)
    try:
        compiled, whole = story(distcompile.compile(run, backend=backend, fullgraph=True), seed), True
    except GraphBreak:
        compiled, whole = story(distcompile.compile(run, backend=backend), seed), False
    assert equal(eager, compiled), f"seed {seed}, {backend}: {steps} -> {returned}\n{eager}\n{compiled}"
    return whole


@pytest.mark.parametrize(("backend", "count"), [("aot_eager", 24), ("eager", 16), ("codegen", 2)])
def test_random_programs(backend: str, count: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = [check(seed, backend) for seed in range(count)]
    assert sum(whole) > 0.85 * count


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 500, 100))
def test_many_random_programs(first: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(first, first + 100):
            check(seed, "aot_eager" if seed % 3 else "eager")
