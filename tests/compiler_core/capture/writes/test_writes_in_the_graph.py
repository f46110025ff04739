"""Writes to what was there before a compiled call: through views, to parameters under no_grad, with gradients, and in
place changes of shape, memory and history.

Every program runs under torch, here eager, and compiled by three backends, several calls each: results, what the
arguments then hold, which of them requires a gradient, gradients and versions must agree, in one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile

torch = pytest.importorskip("torch")

Program = Callable[..., Any]
CALLS = 3


class Case:
    """run(lib, *args). make(lib): the arguments of each call, or of all calls if `keeps`. after(lib, result, args).

    versions: "torch" where torch counts as we do, "eager" where eager does, "" where only values count.
    """

    def __init__(
        self,
        run: Program,
        make: Program,
        after: Program | None = None,
        keeps: bool = False,
        versions: str = "torch",
    ) -> None:
        self.run, self.make, self.after, self.keeps, self.versions = run, make, after, keeps, versions


def arange(lib: Any, *shape: int, grad: bool = False) -> Any:
    values = lib.arange(1.0, 1.0 + int(np.prod(shape)), dtype=lib.float64).reshape(shape)
    return lib.clone(values).requires_grad_(grad) if grad else lib.clone(values)


def backward(lib: Any, result: Any, args: Any) -> None:
    loss = (result * result).sum() if hasattr(result, "sum") else sum((r * r).sum() for r in result if r.requires_grad)
    loss.backward()


def look(tensor: Any, versions: bool) -> Any:
    if not hasattr(tensor, "detach"):
        return [look(t, versions) for t in tensor] if isinstance(tensor, (list, tuple)) else tensor
    grad = tensor.grad if tensor.is_leaf else None
    return {
        "value": tensor.detach().tolist(),
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "grad": None if grad is None else grad.tolist(),
        **({"version": tensor._version} if versions else {}),
    }


def story(case: Case, lib: Any, wrap: Callable[[Program], Program], versions: bool) -> list[Any]:
    """What can be seen after each of the calls."""
    function = wrap(lambda *args: case.run(lib, *args))
    seen = []
    args = case.make(lib)
    for number in range(CALLS):
        if number and not case.keeps:
            args = case.make(lib)
        result = function(*args)
        seen.append([look(result, False), look(args, versions)])
        if case.after is not None:
            case.after(lib, result, args)
        seen.append([look(result, False), look(args, versions)])
    return seen


def close(a: Any, b: Any, path: str = "") -> None:
    assert type(a) is type(b), path
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            close(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for k, (x, y) in enumerate(zip(a, b)):
            close(x, y, f"{path}[{k}]")
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=1e-9, nan_ok=True), path
    else:
        assert a == b, path


# ---- programs: the library, then the arguments


def set_item(lib: Any, x: Any) -> Any:
    x[0] = 1
    return x * 2


def deep_view(lib: Any, x: Any) -> Any:
    x.view(-1)[1:3].mul_(2)
    return x.sum()


def into_argument(lib: Any, x: Any) -> Any:
    x.add_(1).mul_(3)
    return x[0] * 2


def base_and_view(lib: Any, base: Any, view: Any) -> Any:
    before = view * 1
    base.add_(1)
    after = view * 1
    view.mul_(2)
    return before, after, base * 1, view * 1


def two_views(lib: Any, a: Any, b: Any) -> Any:
    a.add_(10)
    b.mul_(2)
    return a * 1, b * 1


def read_then_write(lib: Any, a: Any, b: Any) -> Any:
    y = b * 2
    a.zero_()
    return y


def no_grad_update(lib: Any, p: Any, x: Any) -> Any:
    y = (p * x).sum()
    with lib.no_grad():
        p.mul_(0.5)
        p.add_(x, alpha=0.25)
    return y + (p * 3).sum()


def ema(lib: Any, slow: Any, fast: Any) -> None:
    with lib.no_grad():
        slow.mul_(0.9).add_(fast, alpha=0.1)


def data_update(lib: Any, p: Any, x: Any) -> Any:
    p.data.add_(x)
    p.detach().mul_(2)
    return (p * p).sum()


def copy_under_no_grad(lib: Any, p: Any, x: Any) -> Any:
    with lib.no_grad():
        p.copy_(x * 2)
        p[0] = 5
        p[1:].view(-1).add_(1)
    return p * x


def views_after_update(lib: Any, p: Any, x: Any) -> Any:
    row = p[0]
    with lib.no_grad():
        p.add_(1)
    return row * x[0], p[1] * 2


def update_view(lib: Any, p: Any, x: Any) -> Any:
    with lib.no_grad():
        p[0].add_(1)
        lib.flatten(p)[-1:].zero_()
    return (p * x).sum()


def inner_detached(lib: Any, p: Any, x: Any) -> Any:
    y = p * x
    y.detach().mul_(2)
    with lib.no_grad():
        y[0].add_(1)
    return y * 1


def recorded(lib: Any, x: Any, w: Any) -> Any:
    x.mul_(w)
    return x.sum() + 1


def recorded_view(lib: Any, x: Any, w: Any) -> Any:
    x[0].mul_(w[0])
    return x * 2


def recorded_relu(lib: Any, p: Any, x: Any) -> Any:
    x.relu_()
    return p * x


def overwritten(lib: Any, p: Any, x: Any) -> Any:
    y = p * x
    y.zero_()
    return y + 1


def overwritten_by(lib: Any, p: Any, x: Any) -> Any:
    y = p * x
    y.copy_(x)
    return y


def partly_overwritten(lib: Any, p: Any, x: Any) -> Any:
    y = p * x
    y[0] = 0
    return y


def unsqueeze(lib: Any, x: Any) -> Any:
    x.unsqueeze_(0)
    return x * 2


def turned(lib: Any, x: Any) -> Any:
    x.t_()
    x.add_(1)
    y = x[0]
    x.unsqueeze_(1).squeeze_(1).transpose_(0, 1)
    return y * 1, x.sum()


def reshaped_inside(lib: Any, x: Any) -> Any:
    y = x * 2
    y.t_().unsqueeze_(-1)
    y.mul_(3)
    return y


def new_data(lib: Any, p: Any, x: Any) -> Any:
    p.data = p.data - 0.5 * x
    return (p * x).sum()


def swapped_data(lib: Any, x: Any, y: Any) -> Any:
    x.data = y * 2
    x.add_(1)
    return x * 1


def shared_data(lib: Any, x: Any, y: Any) -> Any:
    x.data = y
    x.add_(1)
    return y * 1


def detached(lib: Any, x: Any, w: Any) -> Any:
    y = w * x
    z = y * 1
    y.detach_()
    return y * 2, z


def detached_argument(lib: Any, x: Any, w: Any) -> Any:
    x.detach_()
    return x * w


def make_x(lib: Any) -> Any:
    return (arange(lib, 2, 3),)


def make_column(lib: Any) -> Any:
    make_column.number += 1  # type: ignore[attr-defined]
    return (arange(lib, 3, 4)[:, make_column.number % 3],)  # type: ignore[attr-defined]


make_column.number = 0  # type: ignore[attr-defined]


def make_p_x(lib: Any) -> Any:
    return arange(lib, 2, 3, grad=True), arange(lib, 2, 3)


def make_x_w(lib: Any) -> Any:
    return arange(lib, 2, 3), arange(lib, 2, 3, grad=True)


def make_base_view(lib: Any) -> Any:
    base = arange(lib, 2, 3)
    return base, base[1]


def make_two_views(lib: Any) -> Any:
    base = arange(lib, 4, 3)
    return base[0:3], base.t()[1]


def make_apart(lib: Any) -> Any:
    base = arange(lib, 4, 3)
    return base[0:2], base[2:4]


def make_nonleaf(lib: Any) -> Any:
    p = arange(lib, 2, 3, grad=True)
    return p, p * 2 - 7


CASES: dict[str, Case] = {
    "item set": Case(set_item, make_x),
    "a view of a view": Case(deep_view, make_x),
    "a view as argument": Case(into_argument, make_column),
    "a view and its base": Case(base_and_view, make_base_view),
    "a base and its view": Case(lambda lib, v, b: base_and_view(lib, b, v), lambda lib: make_base_view(lib)[::-1]),
    "two views that overlap": Case(two_views, make_two_views),
    "two views apart": Case(two_views, make_apart),
    "read, then written beside": Case(read_then_write, make_two_views),
    "no_grad update": Case(no_grad_update, make_p_x, None),
    "ema": Case(ema, lambda lib: (arange(lib, 2, 3), arange(lib, 2, 3, grad=True)), keeps=True),
    "ema of parameters": Case(ema, lambda lib: (arange(lib, 3, grad=True), arange(lib, 3, grad=True)), keeps=True),
    "data update": Case(data_update, make_p_x, backward, versions="eager"),
    "copy under no_grad": Case(copy_under_no_grad, make_p_x, backward),
    "views after an update": Case(views_after_update, make_p_x, backward),
    "update of a view": Case(update_view, make_p_x, backward, keeps=True),
    "detached inside": Case(inner_detached, make_p_x, backward),
    "recorded write": Case(recorded, make_x_w, backward),
    "recorded write, then the argument": Case(recorded, make_x_w, lambda lib, r, a: a[0].sum().backward()),
    "recorded write to a view": Case(recorded_view, make_x_w, lambda lib, r, a: backward(lib, a[0], a)),
    "recorded write to a nonleaf": Case(recorded_relu, make_nonleaf, backward),
    "recorded write to a nonleaf, used": Case(recorded_relu, make_nonleaf, lambda lib, r, a: backward(lib, a[1], a)),
    "overwritten": Case(overwritten, make_p_x, backward),
    "overwritten by a copy": Case(overwritten_by, make_p_x, backward),
    "partly overwritten": Case(partly_overwritten, make_p_x, backward),
    "unsqueeze_": Case(unsqueeze, make_x, versions="eager"),
    "unsqueeze_ again and again": Case(
        lambda lib, x: x.unsqueeze_(0).sum(), make_x, lambda lib, r, a: a[0].squeeze_(0), keeps=True, versions="eager"
    ),
    "turned": Case(turned, make_x, versions="eager"),
    "returned": Case(lambda lib, x: x.t_(), make_x, lambda lib, r, a: r.add_(1), versions="eager"),
    "turned with a gradient": Case(lambda lib, p, x: x.t_() * 2, make_nonleaf, backward, versions="eager"),
    "reshaped inside": Case(reshaped_inside, make_x, versions="eager"),
    "new data": Case(new_data, make_p_x, backward, keeps=True, versions=""),
    "data swapped": Case(swapped_data, lambda lib: (arange(lib, 2, 3), arange(lib, 3, 2)), versions=""),
    "data shared": Case(
        shared_data,
        lambda lib: (arange(lib, 2, 3), arange(lib, 3, 2)),
        lambda lib, r, a: a[0].mul_(2),
        versions="",
    ),
    "detach_": Case(detached, make_x_w),
    "detach_ of an argument": Case(detached_argument, lambda lib: make_nonleaf(lib)[::-1], backward),
}


@pytest.mark.parametrize("name", CASES)
def test_eager_is_torch(name: str) -> None:
    case = CASES[name]
    make_column.number = 0  # type: ignore[attr-defined]
    theirs = story(case, torch, lambda f: f, case.versions == "torch")
    make_column.number = 0  # type: ignore[attr-defined]
    close(story(case, distcompile, lambda f: f, case.versions == "torch"), theirs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("name", CASES)
def test_compiled_is_eager(name: str, backend: str) -> None:
    case = CASES[name]
    compiled: list[Any] = []

    def wrap(function: Program) -> Program:
        compiled.append(distcompile.compile(function, backend=backend, fullgraph=True))
        return compiled[0]  # type: ignore[no-any-return]

    make_column.number = 0  # type: ignore[attr-defined]
    eager = story(case, distcompile, lambda f: f, bool(case.versions))
    make_column.number = 0  # type: ignore[attr-defined]
    close(story(case, distcompile, wrap, bool(case.versions)), eager)
    assert len(compiled[0].explain().entries) == 1


def test_a_view_of_what_then_turned_in_place_keeps_its_history() -> None:
    def run(lib: Any) -> Any:
        w = arange(lib, 2, 3, grad=True)
        x = w * 2
        row = x[1]
        x.t_()
        x.mul_(3)
        row.mul_(w[0] + 1)
        ((row * row).sum() + (x * 2).sum()).backward()
        return look((w, x, row), False)

    close(run(distcompile), run(torch))
