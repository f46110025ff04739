"""Sorting, masks and index tensors in compiled code: in the graph wherever shapes do not depend on data.

Every program runs under torch, here eager, and compiled by three backends, several calls each; values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile
from tests.compiler_core.capture.writes.test_writes_in_the_graph import Case, arange, backward, close, story

torch = pytest.importorskip("torch")

Program = Callable[[Any, Any, Any], Any]


def index(lib: Any, *values: int) -> Any:
    return lib.tensor(values)


def sorting(lib: Any, p: Any, x: Any) -> Any:
    values, places = lib.sort(p * x, dim=1, descending=True)
    top, where = lib.topk(p, 2, dim=1)
    return values, places * 1, top, where * 1, lib.argsort(x, dim=0), lib.msort(p), p.sort(0).values


def masked_set(lib: Any, p: Any, x: Any) -> Any:
    y = p * 2
    y[x > 3] = 0
    y[x < 2] = y[0, 0]
    x[x > 4] = -1.0
    return y, x * 1


def masked_rows(lib: Any, p: Any, x: Any) -> Any:
    y = p * 1
    y[lib.tensor([True, False])] = 7.0
    y[x[:, 0] > 2] *= 1
    return y


def mask_beside_index(lib: Any, p: Any, x: Any) -> Any:
    y = p * 1
    y[0, lib.tensor([True, False, True])] = 5.0
    y[:, x[0] > 2] = 1.0
    z = lib.stack([p, p * 2])
    z[..., x[0] > 4] = 0.0
    z[:, x[:, 0] > 2] = 3.0
    z[1, x > 5] = -1.0
    z[:1, x[:, 1] > 2, 1:] = x[0, 0]
    return y, z


def masked_tensor_set(lib: Any, p: Any, x: Any) -> Any:
    y = p * 1
    y[x > 3] = lib.tensor(2.5, dtype=lib.float64)
    return y


def masked_values(lib: Any, p: Any, x: Any) -> Any:
    y = p * 1
    y[lib.ones_like(x).bool()] = (x * 3).reshape(-1)
    return y, p * 2


def fills(lib: Any, p: Any, x: Any) -> Any:
    y = p * 3
    y.masked_fill_(x > 3, 1.5)
    z = y.masked_fill(x < 2, 0.0)
    x.masked_fill_(x > 5, 0.0)
    return y, z, x * 1


def scatters(lib: Any, p: Any, x: Any) -> Any:
    places = lib.tensor([[0, 1, 0], [1, 0, 1]])
    y = p * 1
    y.scatter_(1, places, x)
    z = lib.zeros(2, 3, dtype=lib.float64).scatter_add(1, places, p)
    w = (x * 1).index_add_(0, index(lib, 1, 0), p)
    v = (x * 1).index_copy_(0, index(lib, 1), p[:1])
    return y, z, w, v, lib.gather(p, 1, places), x.scatter_(0, places, 9.0) * 1


def puts(lib: Any, p: Any, x: Any) -> Any:
    y = p * 1
    y.index_put_((index(lib, 0, 1), index(lib, 2, 0)), x[0, :2])
    z = (x * 1).index_put_((index(lib, 1, 1),), p, accumulate=True)
    x.index_put_((index(lib, 0),), p.detach()[1:])
    return y, z, x * 1


def index_tensors(lib: Any, p: Any, x: Any) -> Any:
    rows, columns = index(lib, 1, 0, 1), index(lib, 2, 1, 0)
    y = p[rows] * 1
    y[rows, columns] = 0
    y[:, index(lib, 0)] += x[0, 0]
    return y, p[rows, columns], p[:, columns], p.index_select(1, columns), lib.take(p, columns)


def where_and_choose(lib: Any, p: Any, x: Any) -> Any:
    y = lib.where(p > x, p, x * 2)
    values, places = p.max(dim=1)
    return y, values, places * 1, p.cummax(1).values, lib.kthvalue(p, 2).values, lib.median(p, 1).values


def bucketed(lib: Any, p: Any, x: Any) -> Any:
    edges = lib.tensor([1.5, 3.5, 5.5], dtype=lib.float64)
    one_hot = lib.nn.functional.one_hot(lib.bucketize(x, edges), 4)
    return one_hot.to(lib.float64) * p.unsqueeze(-1), lib.searchsorted(edges, x)


def diagonals(lib: Any, p: Any, x: Any) -> Any:
    y = p[:, :2] * 1
    y.fill_diagonal_(4.0)
    y.diagonal().add_(1)
    return y, lib.tril(p).triu_(), p.unfold(1, 2, 1)[0] * 1


def make(lib: Any) -> Any:
    make.number += 1  # type: ignore[attr-defined]
    return arange(lib, 2, 3, grad=True) / 1, arange(lib, 2, 3).flip(make.number % 2)  # type: ignore[attr-defined]


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        *(sorting, masked_set, mask_beside_index, masked_tensor_set, fills, scatters, puts, index_tensors),
        *(where_and_choose, bucketed, diagonals),
    )
}
BREAKING: dict[str, Program] = {
    "masked_rows": masked_rows,
    "selection by a mask": lambda lib, p, x: (p[x > 3] * 2, x[x < 3]),
    "as many values as the mask holds": masked_values,
    "where": lambda lib, p, x: (lib.where(x > 3)[0], p * 1),
    "nonzero": lambda lib, p, x: (lib.nonzero(x > 3), p * 1),
    "masked_select": lambda lib, p, x: (lib.masked_select(p, x > 3) * 2,),
    "unique": lambda lib, p, x: (lib.unique(x), p * 1),
    "a tensor where a mask is": lambda lib, p, x: (lib.masked_fill(p, x > 3, 1.0), x[x > 4] + 1),
}


def observed(program: Program, lib: Any, wrap: Callable[[Any], Any]) -> Any:
    make.number = 0  # type: ignore[attr-defined]
    return story(Case(program, make, backward), lib, wrap, True)


@pytest.mark.parametrize("name", [*PROGRAMS, *BREAKING])
def test_eager_is_torch(name: str) -> None:
    program = {**PROGRAMS, **BREAKING}[name]
    close(observed(program, distcompile, lambda f: f), observed(program, torch, lambda f: f))


NATIVE = ("sorting", "masked_set", "scatters")  # what each op does in machine code, its conformance tests tell


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "aot_eager") for name in (*PROGRAMS, *BREAKING)), *((name, "codegen") for name in NATIVE)],
)
def test_compiled_is_eager(name: str, backend: str) -> None:
    program = {**PROGRAMS, **BREAKING}[name]

    def wrap(function: Any) -> Any:
        return distcompile.compile(function, backend=backend, fullgraph=name in PROGRAMS)

    close(observed(program, distcompile, wrap), observed(program, distcompile, lambda f: f))
