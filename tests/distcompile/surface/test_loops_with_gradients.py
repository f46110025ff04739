"""torch.while_loop with gradients: torch's, of any order, under transforms, and in graphs.

Eager code is the judge where torch's gradients are not those of the turns.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import BatchError, GraphBreak
from distcompile.surface import loops
from tests.distcompile.surface.test_control_flow_against_torch import Ours, X, Y, ran, theirs, torch

pytestmark = pytest.mark.torch
assert theirs  # a fixture


TURNED = {
    "counted": lambda h, s, w, a, b, r: h.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, (x * w).sin()), (h.lib.tensor(0), a)
    ),
    "by the data": lambda h, s, w, a, b, r: h.while_loop(
        lambda x: x.abs().sum() < 400, lambda x: (x * 1.5 + w * x[0],), (a,)
    ),
    "several carries": lambda h, s, w, a, b, r: h.while_loop(
        lambda i, x, d, m: i < 4,
        lambda i, x, d, m: (i + 1, x * d["y"] + b, {"y": d["y"].sin() + x.mean()}, m ^ (x > 0)),
        (h.lib.tensor(0), a, {"y": r[0] * 1}, a > 9),
    ),
    "of two precisions": lambda h, s, w, a, b, r: h.while_loop(
        lambda x, y: y.sum() < 40, lambda x, y: (x * w, y + (x * x).float() + 1), (a, b.float())
    ),
    "in a loop": lambda h, s, w, a, b, r: h.while_loop(
        lambda i, x: i < 3,
        lambda i, x: (
            i + 1,
            h.while_loop(lambda j, y: j <= i, lambda j, y: (j + 1, (y * w + a).sin()), (h.lib.tensor(0), x))[1] + x,
        ),
        (h.lib.tensor(0), b),
    )[1],
    "with a choice": lambda h, s, w, a, b, r: h.while_loop(
        lambda i, x: i < 4,
        lambda i, x: (i + 1, h.cond(x.sum() > 0, lambda x: x - w, lambda x: (x * a).cos(), (x,))),
        (h.lib.tensor(0), a),
    )[1],
    "a layer": lambda h, s, w, a, b, r: h.while_loop(
        lambda i, x: i < 3,
        lambda i, x: (i + 1, h.lib.nn.functional.layer_norm(h.lib.tanh(r @ x)[:3] + x, (3,), w)),
        (h.lib.tensor(0), a),
    )[1],
    "a detached carry": lambda h, s, w, a, b, r: h.while_loop(
        lambda i, x, y: i < 3, lambda i, x, y: (i + 1, x * w, y.detach() * x), (h.lib.tensor(0), a, b)
    )[2],
}


@pytest.mark.parametrize("name", list(TURNED))
def test_a_loop_with_gradients_is_part_of_the_graph(name: str, theirs: Any) -> None:
    torch._dynamo.reset()
    expected = ran(theirs, TURNED[name], 1.0)
    for how in ({}, {"fullgraph": True}, {"fullgraph": True, "backend": "aot_eager"}):
        for found, value in zip(ran(Ours, TURNED[name], 1.0, **how), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-9, err_msg=f"{name} {how}")


def turned(w: Any, x: Any) -> Any:
    return dc.while_loop(lambda x: x.abs().sum() < 60, lambda x: ((x * w).sin() * 3 + x * 1.3,), (x,))[0]


def descended(x: Any, w: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        with dc.enable_grad():
            leaf = y.detach().requires_grad_()
            (slope,) = dc.autograd.grad(((leaf - w) ** 4).sum(), leaf)
        return i + 1, (y - 0.01 * slope) * w

    return dc.while_loop(lambda i, y: i < 3, turn, (dc.tensor(0), x))[1]


def again(x: Any, w: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        return i + 1, dc.utils.checkpoint.checkpoint(lambda y: (y * w).sin(), y, use_reentrant=False)

    return dc.while_loop(lambda i, y: i < 3, turn, (dc.tensor(0), x))[1]


def in_a_branch(x: Any, w: Any) -> Any:
    def cubed(x: Any) -> Any:
        leaf = (x * w).detach().requires_grad_()
        return dc.autograd.grad((leaf**3).sum(), leaf)[0] @ w * w + leaf.detach() * w

    return dc.cond(x.sum() < 0, cubed, lambda x: x * w, (x,))


@pytest.mark.parametrize("program", [descended, again, in_a_branch])
def test_a_gradient_or_a_checkpoint_in_a_turn(program: Any) -> None:
    found = []
    for call in (
        program,
        dc.compile(program, fullgraph=True),
        dc.compile(program, fullgraph=True, backend="aot_eager"),
    ):
        x, w = dc.tensor(X, requires_grad=True), dc.tensor([0.5, -1.5, 2.0], dtype=dc.float64, requires_grad=True)
        value = call(x, w)
        (value**2).sum().backward()
        found.append([value.detach().numpy(), np.zeros(3) if x.grad is None else x.grad.numpy(), w.grad.numpy()])
    for made in found[1:]:
        for ours, expected in zip(made, found[0], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-9)


def test_a_loop_that_does_not_turn_passes_gradients_on() -> None:
    """torch 2.13 runs a turn back that was not run."""
    call = dc.compile(lambda a, w: dc.while_loop(lambda x: x.sum() > 99, lambda x: (x * w,), (a,))[0], fullgraph=True)
    a, w = dc.tensor(X, requires_grad=True), dc.tensor(Y, requires_grad=True)
    call(a, w).sum().backward()
    assert (a.grad.tolist(), w.grad.tolist()) == ([1.0] * 3, [0.0] * 3)


SECOND = {
    "create_graph": lambda f, x: dc.autograd.grad((f(x) ** 2).sum(), x, create_graph=True)[0],
    "grad": lambda f, x: dc.func.grad(lambda x: (f(x) ** 2).sum())(x),
    "hessian": lambda f, x: dc.func.hessian(lambda x: (f(x) ** 2).sum())(x),
    "jacrev": lambda f, x: dc.func.jacrev(f)(x),
    "jvp": lambda f, x: dc.func.jvp(f, (x,), (x * 2,))[1],
}


@pytest.mark.parametrize("name", list(SECOND))
def test_derivatives_of_a_loop(name: str) -> None:
    """Eager code is the judge: outside of what is compiled, and, but for the tape's own, inside."""
    w = dc.tensor([0.5, -1.5, 2.0], dtype=dc.float64, requires_grad=True)
    ways: list[Any] = [lambda x: SECOND[name](lambda x: turned(w, x), x)]
    loop = dc.compile(lambda x: turned(w, x), fullgraph=True)
    ways += [lambda x: SECOND[name](loop, x)]
    ways += [dc.compile(ways[0], fullgraph=True)] if name != "create_graph" else []
    found = []
    for call in ways:
        x = dc.tensor(X, requires_grad=True)
        w.grad = None
        value = call(x)
        (value**2).sum().backward()
        found.append([value.detach().numpy(), x.grad.numpy(), w.grad.numpy()])
    for made in found[1:]:
        for ours, expected in zip(made, found[0], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-8)


def test_a_loop_under_vmap_runs_while_any_example_wants() -> None:
    w, rows = dc.tensor([0.5, -1.5, 2.0], dtype=dc.float64), dc.tensor(X) * dc.tensor([[1.0], [0.3], [100.0]])
    for of_one in (lambda x: turned(w, x), dc.func.grad(lambda x: (turned(w, x) ** 2).sum())):
        expected = dc.stack([of_one(row) for row in rows])
        for call in (dc.vmap(of_one), dc.vmap(dc.compile(of_one)), dc.compile(dc.vmap(of_one), fullgraph=True)):
            np.testing.assert_allclose(call(rows).numpy(), expected.numpy(), rtol=1e-9)
    whole = dc.compile(dc.vmap(lambda x: dc.while_loop(lambda y: y.sum() < 9, lambda y: (y + x,), (x * 1,))[0]))
    assert whole(dc.ones(2, 3) * dc.tensor([[1.0], [2.0]])).tolist() == [[3.0] * 3, [4.0] * 3]
    with pytest.raises(GraphBreak, match="enclose what each example of vmap has"):
        dc.compile(dc.vmap(lambda x: dc.while_loop(lambda y: y.sum() < 9, lambda y: (y + x,), (x * 1,))[0]),
                   fullgraph=True)(rows)  # fmt: skip
    with pytest.raises(BatchError, match="carries a number"):
        dc.vmap(lambda x: dc.while_loop(lambda i, x: x.sum() < 9, lambda i, x: (i + 1, x + 1), (0, x)))(rows)


def norms(norm: Any, x: Any, most: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        return i + 1, dc.cond(y.sum() > 0, lambda y: norm(y) + 0.1, lambda y: norm(y * 2) * y + 0.2, (y,))

    first = dc.while_loop(lambda i, y: i < most, turn, (dc.tensor(0), norm(x)))[1]
    return norm(dc.while_loop(lambda i, y: i < most, turn, (dc.tensor(0), first))[1])


def test_buffers_that_a_turn_writes_go_from_turn_to_turn() -> None:
    found = []
    for how in ({}, {"backend": "codegen"}, {"backend": "aot_eager"}):
        norm = dc.nn.BatchNorm1d(3).double()
        call = dc.compile(lambda x, m: norms(norm, x, m), fullgraph=True, **how) if how else partial(norms, norm)  # noqa: B023
        made = []
        for turns in (2, 0, 3):
            x = dc.tensor(np.sin(np.arange(12.0).reshape(4, 3) * 3 + turns), requires_grad=True)
            value = call(x, dc.tensor(turns))
            (value**3).sum().backward()
            made += [value.detach().numpy(), x.grad.numpy()]
        assert norm.num_batches_tracked.item() == 2 * 5 + 2 * 3
        found.append([*made, *(b.numpy() for b in norm.buffers()), *(p.grad.numpy() for p in norm.parameters())])
    for made in found[1:]:
        for ours, expected in zip(made, found[0], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-7, atol=1e-9)


def test_what_a_turn_may_not_write() -> None:
    total = dc.zeros(3, dtype=dc.float64)
    for turn, test, why in (
        (lambda i, y: (i + 1, total.add_(y)), lambda i, y: i < 3, "hands it on"),
        (lambda i, y: (i + 1, y * 2), lambda i, y: total.add_(1).sum() < 9, "its test writes"),
        (lambda i, y: (i + 1, y.mul_(2) * 1), lambda i, y: i < 3, "writes to a tensor"),
        (lambda i, y: (i + 1, dc.rand_like(y)), lambda i, y: i < 3, "draws random numbers"),
    ):
        call = dc.compile(lambda a, c=test, b=turn: dc.while_loop(c, b, (dc.tensor(0), a * 1)), fullgraph=True)
        with pytest.raises(GraphBreak, match=why):
            call(dc.tensor(Y))
    assert total.tolist() == [0.0] * 3


LONG = {
    "a cell": lambda h, s, w, a, b, r: h.scan(lambda c, x: ((c * w + x).tanh(), (c + x).sum()), a * 1, r),
    "reversed, along the last dim": lambda h, s, w, a, b, r: h.scan(
        lambda c, x: (c.sin() + x * w[0], (c * x, {"q": x * 2})), r[:, 0] * 1, r, dim=1, reverse=True
    ),
    "trees": lambda h, s, w, a, b, r: h.scan(
        lambda c, x: (
            {"n": c["n"] + 1, "h": [(c["h"][0] * b + x["u"]).cos() * w]},
            (c["n"] * 2, x["u"] * c["h"][0], x["v"].float()),
        ),
        {"n": h.lib.tensor(3), "h": [a * 1]},
        {"u": r, "v": r * 2},
    ),
    "a carry that is left alone": lambda h, s, w, a, b, r: h.scan(lambda c, x: ((c[0], x * w), c[1] * 1), (a, b), r),
    "a scan in a scan": lambda h, s, w, a, b, r: h.scan(
        lambda c, x: h.scan(lambda d, y: (d * y + w.sum(), d * 1), c, x), h.lib.zeros_like(w[0]), r
    ),
    "in a loop": lambda h, s, w, a, b, r: h.while_loop(
        lambda i, x: i < 2, lambda i, x: (i + 1, h.scan(lambda c, y: (c * y, c + w), x, r)[0] + x), (h.lib.tensor(0), a)
    )[1],
}


@pytest.fixture
def unrolled(monkeypatch: Any) -> None:
    monkeypatch.setattr(loops, "MOST_UNROLLED", 1)


@pytest.mark.parametrize("name", list(LONG))
def test_a_long_scan_is_one_op_of_the_graph(name: str, theirs: Any, monkeypatch: Any) -> None:
    torch._dynamo.reset()
    expected = ran(Ours, LONG[name], 1.0)
    if name in ("a cell", "reversed, along the last dim", "a scan in a scan"):  # torch fails at the others
        for found, value in zip(ran(theirs, LONG[name], 1.0), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-9)
    monkeypatch.setattr(loops, "MOST_UNROLLED", 1)
    for how in ({"fullgraph": True}, {"fullgraph": True, "backend": "aot_eager"}):
        for found, value in zip(ran(Ours, LONG[name], 1.0, **how), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-9, err_msg=f"{name} {how}")


@pytest.mark.usefixtures("unrolled")
@pytest.mark.parametrize("name", list(SECOND))
def test_derivatives_of_a_long_scan(name: str) -> None:
    rows = dc.tensor(X) * dc.tensor([[1.0], [0.3], [0.5]])

    def summed(x: Any) -> Any:
        carry, ys = loops.scan(lambda c, r: ((c * r + x).sin(), c * x), x * 1, rows)
        return carry + ys.sum(0)

    compiled = dc.compile(summed, fullgraph=True)
    ways = [lambda x: SECOND[name](summed, x), lambda x: SECOND[name](compiled, x)]
    ways += [dc.compile(ways[0], fullgraph=True)] if name != "create_graph" else []
    found = []
    for call in ways:
        x = dc.tensor(X, requires_grad=True)
        value = call(x)
        (value**2).sum().backward()
        found.append([value.detach().numpy(), x.grad.numpy()])
    for made in found[1:]:
        for ours, expected in zip(made, found[0], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-8)


@pytest.mark.usefixtures("unrolled")
@pytest.mark.parametrize("loop", ["while_loop", "scan"])
@pytest.mark.parametrize("name", ["vmap", "vmap of vmap", "vmap of grad", "vmap of jacrev", "grad of vmap"])
def test_loops_under_vmap_are_in_the_graph(loop: str, name: str) -> None:
    w = dc.tensor([0.5, -1.5, 2.0], dtype=dc.float64, requires_grad=True)
    rows = dc.tensor(X) * dc.tensor([[1.0], [0.3], [0.5]])

    def of_one(x: Any) -> Any:
        if loop == "while_loop":
            return turned(w, x)
        carry, ys = loops.scan(lambda c, r: ((c * r + w).sin(), c * r.sum()), x * 1, dc.stack([x, x * 2, x * 3]))
        return carry + ys.sum(0)

    way: Any = {
        "vmap": lambda: dc.vmap(of_one)(rows),
        "vmap of vmap": lambda: dc.vmap(dc.vmap(of_one))(dc.stack([rows, rows * 1.1])),
        "vmap of grad": lambda: dc.vmap(dc.func.grad(lambda x: (of_one(x) ** 2).sum()))(rows),
        "vmap of jacrev": lambda: dc.vmap(dc.func.jacrev(of_one))(rows),
        "grad of vmap": lambda: dc.func.grad(lambda r: (dc.vmap(of_one)(r) ** 2).sum())(rows),
    }[name]
    found = []
    for call in (way, dc.compile(way, fullgraph=True)):
        w.grad = None
        value = call()
        (value**2).sum().backward()
        found.append([value.detach().numpy(), w.grad.numpy()])
    for ours, expected in zip(*found[::-1], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-7)


def normed(norm: Any) -> Any:
    return lambda x: loops.scan(lambda c, r: (norm(r + c), c * 1), dc.zeros_like(x[0]), x)


def test_turns_that_do_more_than_compute_stand_for_themselves(monkeypatch: Any) -> None:
    rows = np.sin(np.arange(24.0).reshape(3, 4, 2) * 3)
    found = []
    for most in (128, 1):
        monkeypatch.setattr(loops, "MOST_UNROLLED", most)
        norm = dc.nn.BatchNorm1d(2).double()
        carry, ys = dc.compile(normed(norm), fullgraph=True)(dc.tensor(rows))
        found.append([carry.detach().numpy(), ys.detach().numpy(), *(b.numpy() for b in norm.buffers())])
        assert norm.num_batches_tracked.item() == 3
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9)
    drop = dc.nn.Dropout(0.5)
    call = dc.compile(lambda x: loops.scan(lambda c, r: (drop(r), c * 1), x[0], x)[0], fullgraph=True)
    assert set(call(dc.ones(3, 64)).tolist()) == {0.0, 2.0}
