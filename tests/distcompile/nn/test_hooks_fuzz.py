"""Random module trees with random hooks, compiled: the same story as torch's eager, by every backend.

A program is drawn from a seed: nested modules (residual, several in and out, an input nobody uses, no parameters),
hooks of every kind on them (forward ones that compute, backward ones that look, scale, branch on data, hand nothing
on), hooks on tensors inside and on parameters, frozen parameters. What is compared: the log of backward hooks with
their values, and every gradient.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.capture import compile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WIDTH = 3
Log = list[Any]


def numbers(p: Any, rng: np.random.Generator, *shape: int) -> Any:
    return p.tensor((rng.integers(-4, 5, shape) / 4.0).astype(np.float32).tolist())


def summary(gradient: Any) -> Any:
    return None if gradient is None else round(float(gradient.detach().double().sum()), 3)


def tree(p: Any, rng: np.random.Generator, log: Log, depth: int) -> Any:
    """A module that maps (2, WIDTH) to (2, WIDTH)."""
    kind = rng.choice(["linear", "tanh", "mul", "residual", "pair", "sequence", "hooked", "frozen"])
    if depth == 0:
        kind = rng.choice(["linear", "tanh", "mul"])

    class Mul(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = p.nn.Parameter(numbers(p, rng, WIDTH))

        def forward(self, x: Any) -> Any:
            return x * self.scale

    class Residual(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tree(p, rng, log, depth - 1)

        def forward(self, x: Any) -> Any:
            return x + self.inner(x)

    class Two(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = tree(p, rng, log, depth - 1), tree(p, rng, log, depth - 1)

        def forward(self, x: Any, unused: Any, y: Any, n: int = 2) -> Any:
            return self.a(x) * n, self.b(y), y + x

    class Pair(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two, self.use = Two(), int(rng.integers(3))
            dress(p, rng, log, self.two)

        def forward(self, x: Any) -> Any:
            outputs = self.two(x, x * 2, x.sin())
            return outputs[self.use] + outputs[0]

    class Hooked(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.factor = tree(p, rng, log, depth - 1), float(rng.integers(1, 4))

        def forward(self, x: Any) -> Any:
            h = self.inner(x)
            before = h * 2
            if h.requires_grad:
                h.register_hook(lambda g: None if g is None else log.append(["tensor", summary(g)]))
                h.register_hook(lambda g: None if g is None else g * self.factor)
            return before + h.tanh()

    class Frozen(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tree(p, rng, log, depth - 1)

        def forward(self, x: Any) -> Any:
            return self.inner(x.detach()) + x

    if kind == "linear":
        made = p.nn.Linear(WIDTH, WIDTH)
        with p.no_grad():
            for parameter in made.parameters():
                parameter.copy_(numbers(p, rng, *parameter.shape))
    elif kind == "sequence":
        made = p.nn.Sequential(*(tree(p, rng, log, depth - 1) for _ in range(int(rng.integers(1, 4)))))
    else:
        classes = {"mul": Mul, "residual": Residual, "pair": Pair, "hooked": Hooked, "frozen": Frozen}
        made = p.nn.Tanh() if kind == "tanh" else classes[kind]()
    dress(p, rng, log, made)
    return made


def dress(p: Any, rng: np.random.Generator, log: Log, module: Any) -> None:
    """Random hooks on `module`."""
    name = f"{type(module).__name__}{len(log)}"
    log.append(name)  # so that names differ; cleared before the first call
    several = type(module).__name__ == "Two"
    for choice in rng.permutation(["pre", "post", "back", "back pre", "drop"])[: int(rng.integers(0, 4))]:
        prepend = bool(rng.integers(2))
        factor = float(rng.integers(1, 4))
        if choice == "pre":
            module.register_forward_pre_hook(lambda m, a, f=factor: (a[0] * f, *a[1:]), prepend=prepend)
        elif choice == "post" and not several:
            module.register_forward_hook(lambda m, a, o, f=factor: o - f * a[0], prepend=prepend)
        elif choice == "back":
            module.register_full_backward_hook(looking(log, f"{name} full", factor), prepend=prepend)
        elif choice == "back pre":
            module.register_full_backward_pre_hook(
                lambda m, go, n=f"{name} pre": log.append([n, [summary(g) for g in go]]), prepend=prepend
            )
        elif choice == "drop" and rng.integers(4) == 0:
            module.register_full_backward_hook(lambda m, gi, go: (None,) * len(gi), prepend=prepend)


def looking(log: Log, name: str, factor: float) -> Callable[..., Any]:
    def hook(module: Any, grad_input: Any, grad_output: Any) -> Any:
        log.append([name, [summary(g) for g in grad_input], [summary(g) for g in grad_output]])
        first = grad_input[0]
        if first is None or float(first.sum()) < 0:
            return None
        return (first * factor, *grad_input[1:])

    return hook


def story(p: Any, seed: int, backend: str | None) -> Log:
    rng, log = np.random.default_rng(seed), []
    module = p.nn.Sequential(tree(p, rng, log, 2), tree(p, rng, log, 2))
    for parameter in module.parameters():
        if rng.integers(4) == 0:
            parameter.requires_grad_(False)
        elif rng.integers(4) == 0:
            parameter.register_hook(lambda g: None if g is None else g * 2)
    log.clear()
    run = module if backend is None else compile(module, backend=backend, fullgraph=True)
    for number in range(2):
        x = numbers(p, np.random.default_rng([seed, number]), 2, WIDTH)
        if seed % 3:
            x.requires_grad_()
        module.zero_grad()
        out = run(x)
        if out.requires_grad:
            out.sum().backward()
        log.append([summary(x.grad), *(summary(parameter.grad) for parameter in module.parameters())])
    return log


def same(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(ours, list) and isinstance(theirs, list):
        assert len(ours) == len(theirs), (where, ours, theirs)
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            same(a, b, f"{where}[{k}]")
    elif isinstance(ours, float) and isinstance(theirs, float):
        assert ours == pytest.approx(theirs, abs=3e-3, rel=1e-3), where
    else:
        assert ours == theirs, where


@pytest.mark.parametrize("seed", range(12))
def test_random_hooks_tell_torchs_story(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = story(torch, seed, None)
        for backend in (None, "eager", "aot_eager", "codegen") if seed % 4 == 0 else ("aot_eager",):
            same(story(dc, seed, backend), theirs, f"seed {seed} {backend}: ")
