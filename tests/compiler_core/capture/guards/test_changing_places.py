"""`x[i]` with a number that changes: one graph where the place is only read or written, and right in any case.

Each program is called with numbers that go round, compiled and not: results, what it changed, gradients, and what a
write to its result does to its argument afterwards.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as torch

STEPS = 20


def shifted(x: Any, i: int) -> Any:
    x[i] += 1
    return x * 2


def chained(x: Any, i: int) -> Any:
    h = x * 2
    h[:, i] = x[i]
    h[i, i] = i
    return h


def kept_in_a_cache(x: Any, i: int) -> Any:
    cache = torch.zeros(4, 4)
    for k in range(2):
        cache[(i + k) % 4] = x[i] * (k + 1)
    return cache.sum(0)


def in_place(x: Any, i: int) -> Any:
    h = x + 1
    part = h[i]
    part.mul_(2)
    return h, part


def written_behind(x: Any, i: int) -> Any:
    h = x + 1
    part = h[i]
    h.mul_(3)
    h[0, 0] = 7
    return part + 0


def both(x: Any, i: int) -> Any:
    h = x + 1
    return h, h[i]


def facts(x: Any, i: int) -> Any:
    part = x[:, i]
    return part * 1, part.stride(), part.is_contiguous(), part.storage_offset()


def out_of_range(x: Any, i: int) -> Any:
    try:
        return x[i + 2] * 1
    except IndexError:
        return x.sum()


PROGRAMS: dict[str, tuple[Callable[[Any, int], Any], int]] = {
    "row": (lambda x, i: x[i] * 2, 2),
    "column": (lambda x, i: x[:, i].sum() + x[..., i], 2),
    "element": (lambda x, i: x[i, 3 - i] + x[i][i], 2),
    "negative": (lambda x, i: x[-1 - i] + x[i - 4, i], 2),
    "new dim": (lambda x, i: x[None, i, :, None] + x[i, None], 2),
    "window": (lambda x, i: x[i % 3 : i % 3 + 2] * 2, 2),
    "window of columns": (lambda x, i: x[1:, i % 3 : i % 3 + 2] + i, 2),
    "row of a result": (lambda x, i: (x @ x)[i] + (x * x)[:, i], 2),
    "view of a row": (lambda x, i: x[i].reshape(2, 2).t() * 2, 2),
    "prefix": (lambda x, i: x[: i + 1].sum(), 5),
    "returned": (lambda x, i: x[i], 5),
    "chained": (chained, 2),
    "cache": (kept_in_a_cache, 5),
    "shifted": (shifted, 2),
    "in place": (in_place, 5),
    "written behind": (written_behind, 2),
    "both": (both, 5),
    "facts": (facts, 5),
    "out of range": (out_of_range, 4),
}


def seen_of(function: Callable[[Any, int], Any], i: int, grad: bool) -> Any:
    """What can be seen of one call."""
    base = torch.arange(16.0).reshape(4, 4) / 8 + i
    leaf = base.requires_grad_() if grad else base
    x = leaf * 1 if grad else leaf
    result = function(x, i)
    results = result if isinstance(result, tuple) else (result,)
    tensors = [part for part in results if isinstance(part, torch.Tensor)]
    found = [part.detach().numpy().copy() if isinstance(part, torch.Tensor) else part for part in results]
    found.append(x.detach().numpy().copy())
    if grad:
        sum((part * part).sum() for part in tensors).backward()
        found.append(leaf.grad.numpy().copy())
    else:
        for part in tensors:
            part.add_(1)
        found += [part.numpy().copy() for part in (*tensors, x)]
    return found


def check(function: Callable[[Any, int], Any], compiled: int, grad: bool, backend: str = "aot_eager") -> None:
    torch.compiler.reset()
    run = torch.compile(function, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(STEPS):
            i = (0, 1, 2, 3)[step % 4]
            ours, theirs = seen_of(run, i, grad), seen_of(function, i, grad)
            assert len(ours) == len(theirs)
            for mine, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-5)
    assert len(run.explain().entries) <= compiled, run.explain().recompiles


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_without_compiling(name: str, grad: bool) -> None:
    function, compiled = PROGRAMS[name]
    check(function, compiled + 3 * grad, grad)


@pytest.mark.parametrize("seed", range(12))
def test_random_reads_and_writes(seed: int) -> None:
    """Reads, writes and in-place changes at changing places of an argument and of what is computed, in any order."""
    draw = random.Random(seed)
    places = ["i", "-1 - i", "(i + 1) % 4", "2"]
    lines = ["def f(x, i):", "    h, parts = x * 2, []"]
    for _ in range(6):
        tensor, place, other = draw.choice("xh"), draw.choice(places), draw.choice(places)
        key = draw.choice([place, f":, {place}", f"{place}, {other}", f"..., {place}"])
        lines.append(
            "    "
            + draw.choice(
                [
                    f"parts.append({tensor}[{key}])",
                    f"{tensor}[{key}] = {draw.choice('xh')}.sum() + i",
                    f"{tensor}[{key}] *= 0.5",
                    f"parts.append({tensor}[{key}] + 1)",
                    "parts and parts[-1].add_(1)",
                    "h = h + x",
                ]
            )
        )
    lines.append(f"    return (h, *parts)[{draw.choice(['0', '1'])}:] or h")
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    check(space["f"], 8, grad=False, backend="eager")


class Cached(torch.nn.Module):
    """Attention over a cache of keys and values that is filled one position a call."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.position = torch.nn.Linear(8, 8), 0
        self.register_buffer("keys", torch.zeros(2, 16, 8))
        self.register_buffer("values", torch.zeros(2, 16, 8))

    def forward(self, x: Any) -> Any:
        query = self.query(x)
        self.keys[:, self.position] = query
        self.values[:, self.position] = x
        self.position += 1
        scores = (query[:, None] * self.keys).sum(-1)
        scores = scores.masked_fill(torch.arange(16) >= self.position, -1e9)
        return (scores.softmax(-1)[..., None] * self.values).sum(1)


def test_a_cache_of_keys_and_values_is_filled_by_one_graph() -> None:
    plain, other = Cached(), Cached()
    other.load_state_dict(plain.state_dict())
    compiled = torch.compile(other, backend="aot_eager")
    with torch.no_grad():
        for _ in range(16):
            x = torch.randn(2, 8)
            np.testing.assert_allclose(compiled(x).numpy(), plain(x).numpy(), atol=1e-6)
    assert len(compiled.explain().entries) <= 2


PARTS: dict[str, Any] = {
    "narrow": lambda x, k: torch.narrow(x, 0, k, 2) * 2,
    "narrow of the last dim": lambda x, k: x.narrow(-1, k, 2) + 1,
    "narrow by names": lambda x, k: x.narrow(dim=0, start=k, length=3) + 0,
    "select": lambda x, k: x.select(0, k) * 2,
    "narrow, written": lambda x, k: [y := x.clone(), y.narrow(0, k, 2).fill_(1.5)][0],
    "select, written": lambda x, k: [y := x.clone(), torch.select(y, 0, k).copy_(x[0])][0],
    "narrow, differentiated": lambda x, k: torch.autograd.grad(
        (y := x.clone().requires_grad_()).narrow(0, k, 2).square().sum(), y
    )[0],
}


@pytest.mark.parametrize("name", PARTS)
def test_narrow_and_select_by_a_number_that_changes(name: str) -> None:
    compiled = torch.compile(PARTS[name], fullgraph=True)
    x = torch.randn(8, 8)
    for k in (1, 2, 3, 4, 0, 5, 2):
        assert torch.equal(compiled(x, k), PARTS[name](x, k))
    assert len(compiled.explain().entries) == 2
    with pytest.raises((RuntimeError, IndexError)):
        compiled(x, 8)
