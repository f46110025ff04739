"""cond, map, scan, associative_scan and while_loop: torch's results and gradients, eager and as parts of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import BranchError, GraphBreak, IndexError_, LinAlgError
from distcompile.errors import ArgumentError
from distcompile.surface import loops

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
X, Y, ROWS = np.array([1.0, 2.0, -3.5]), np.array([0.0, 1.0, 2.0]), np.arange(12.0).reshape(4, 3) / 5 - 1


class Ours:
    cond, while_loop = dc.cond, dc.while_loop
    map, scan, associative_scan = loops.map, loops.scan, loops.associative_scan
    lib = dc


class Theirs:
    lib = torch
    cond, while_loop = torch.cond, torch.while_loop


def inverse(h: Any, a: Any) -> Any:
    return h.lib.linalg.inv(h.lib.outer(a, a) + h.lib.eye(3, dtype=a.dtype))


# h: the functions; s: the sign that chooses the branch; w: a tensor that the functions enclose
PROGRAMS = {
    "cond": lambda h, s, w, a, b, r: h.cond(a.sum() * s < 0, lambda a: a.sin(), lambda a: a * 3, (a,)),
    "cond of a closure": lambda h, s, w, a, b, r: h.cond(b.sum() * s > 0, lambda b: w * b, lambda b: w / (b + 1), (b,)),
    "cond, NaN on the other side": lambda h, s, w, a, b, r: h.cond(
        s > 0, lambda b: b * 2, lambda b: b.sqrt() + w, (b,)
    ),
    "cond, several results": lambda h, s, w, a, b, r: h.cond(
        s > 0,
        lambda a, b: (a * b, {"q": a.sum(), "n": a * 1}),
        lambda a, b: (b + w, {"q": b[0] * 1, "n": a - 1}),
        (a, b),
    ),
    "cond with a library": lambda h, s, w, a, b, r: h.cond(
        s > 0, lambda a: inverse(h, a) @ w, lambda a: h.lib.linalg.solve(inverse(h, a), a), (a,)
    ),
    "cond in cond": lambda h, s, w, a, b, r: h.cond(
        s > 0,
        lambda a, b: h.cond(b[0] > 0, lambda a: a.exp(), lambda a: inverse(h, a) @ a, (a,)),
        lambda a, b: b * w,
        (a, b),
    ),
    "map": lambda h, s, w, a, b, r: h.map(lambda x, y: {"p": x * y * w, "q": (x.sum(),)}, r, a),
    "map over a tree": lambda h, s, w, a, b, r: h.map(
        lambda d: d["x"] @ d["x"] * w + d["y"], {"x": r, "y": r[:, 0] * 1}
    ),
    "scan": lambda h, s, w, a, b, r: h.scan(lambda c, x: (c * x + w, (c + x).sum()), a * 1, r),
    "scan, reversed": lambda h, s, w, a, b, r: h.scan(lambda c, x: (c + x, c * x), r[:, 0] * 1, r, dim=1, reverse=True),
    "associative_scan": lambda h, s, w, a, b, r: h.associative_scan(
        lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (r, r * 2), 0, combine_mode="generic"
    ),
    "associative_scan, reversed": lambda h, s, w, a, b, r: h.associative_scan(
        lambda p, q: p * q, r, 1, reverse=True, combine_mode="generic"
    ),
}
LOOP = {
    "while_loop": lambda h, s, w, a, b, r: h.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * w), (h.lib.tensor(0), a)
    )[1],
}


def ran(h: Any, program: Any, sign: float, **how: Any) -> list[Any]:
    """Values, and the gradients of a, b, r and w: zeros are none."""
    tensors = [h.lib.tensor(array, requires_grad=True) for array in (X, Y, ROWS)]
    w = h.lib.tensor([0.5, -1.5, 2.0], dtype=h.lib.float64, requires_grad=True)
    s = h.lib.tensor(sign)

    def call(s: Any, w: Any, a: Any, b: Any, r: Any) -> Any:
        return program(h, s, w, a, b, r)

    results = (h.lib.compile(call, **how) if how else call)(s, w, *tensors)
    leaves = h.lib.utils._pytree.tree_leaves(results)
    sum((v * v).sum() for v in leaves if v.requires_grad).backward()
    gradients = [np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in (*tensors, w)]
    return [*(v.detach().numpy() for v in leaves), *gradients]


@pytest.fixture(scope="module")
def theirs() -> Any:
    from torch._higher_order_ops import associative_scan, map, scan

    Theirs.map, Theirs.scan, Theirs.associative_scan = map, scan, associative_scan
    return Theirs


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", [*PROGRAMS, *LOOP])
def test_it_is_torchs_eager_and_in_a_graph(name: str, sign: float, theirs: Any) -> None:
    if sign < 0 and "cond" not in name:
        pytest.skip("no branch")
    program = {**PROGRAMS, **LOOP}[name]
    torch._dynamo.reset()
    expected = ran(theirs, program, sign)
    ways: list[dict[str, Any]] = [{}, {"fullgraph": True}, {"fullgraph": True, "backend": "eager"}]
    for how in ways:
        for found, value in zip(ran(Ours, program, sign, **how), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12, err_msg=f"{name} {how}")


def test_a_loop_over_numbers_is_part_of_the_graph() -> None:
    call = dc.compile(lambda a: dc.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, a)), fullgraph=True)
    count, x = call(dc.tensor(Y))
    assert (count, x.tolist()) == (3, (Y * 8).tolist())


TURNS = {
    "counted": lambda t, a: t.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (t.tensor(0), a)),
    "by the data": lambda t, a: t.while_loop(lambda x: x.sum() < 100, lambda x: (x * 2 + 1,), (a,)),
    "not once": lambda t, a: t.while_loop(lambda x: x.sum() < -100, lambda x: (x * 2,), (a,)),
    "of whole numbers": lambda t, a: t.while_loop(
        lambda n, k: n != 1, lambda n, k: (t.where(n % 2 == 0, n // 2, 3 * n + 1), k + 1), (t.tensor(27), t.tensor(0))
    ),
    "with a choice": lambda t, a: t.while_loop(
        lambda i, x: i < 4,
        lambda i, x: (i + 1, t.cond(x.sum() > 10, lambda x: x - 5, lambda x: x * 3, (x,))),
        (t.tensor(0), a),
    ),
    "in a loop": lambda t, a: t.while_loop(
        lambda i, x: i < 3,
        lambda i, x: (i + 1, t.while_loop(lambda j, x: j < 2, lambda j, x: (j + 1, x + a), (t.tensor(0), x))[1]),
        (t.tensor(0), a * 1),
    ),
    "and more": lambda t, a: [
        x.float().sin() for x in t.while_loop(lambda x: x.sum() < 9, lambda x: (x * 2 + 1,), ((a * 2).to(t.bfloat16),))
    ],
}


@pytest.mark.parametrize("name", list(TURNS))
def test_a_loop_without_gradients_is_part_of_the_graph(name: str) -> None:
    torch._dynamo.reset()
    expected = [part.numpy() for part in TURNS[name](torch, torch.tensor(Y))]
    for backend in ("codegen", "aot_eager"):
        found = dc.compile(lambda a: TURNS[name](dc, a), fullgraph=True, backend=backend)(dc.tensor(Y))
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.numpy().dtype == theirs.dtype
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)


def chosen(a: Any) -> Any:
    return dc.cond(a.sum() > 0, lambda a: inverse(Ours, a) @ a, lambda a: a.sin() * a, (a,))


TRANSFORMS = {
    "grad": lambda x: dc.func.grad(lambda a: (chosen(a) ** 2).sum())(x),
    "hessian": lambda x: dc.func.hessian(lambda a: (chosen(a) ** 2).sum())(x),
    "jacrev": lambda x: dc.func.jacrev(chosen)(x),
    "jvp": lambda x: dc.func.jvp(chosen, (x,), (x * 2,)),
    "vmap": lambda x: dc.vmap(chosen)(dc.stack([x, -x])),
    "vmap of one truth value": lambda x: dc.vmap(
        lambda r: dc.cond(x.sum() > 0, lambda r: r.sin(), lambda r: r * 2, (r,))
    )(dc.stack([x, -x])),
    "vmap of grad": lambda x: dc.vmap(dc.func.grad(lambda a: chosen(a).sum()))(dc.stack([x, -x])),
    "autograd.functional": lambda x: dc.autograd.functional.hessian(lambda a: chosen(a).sum(), x),
}


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_transforms_of_a_choice_in_a_graph(name: str, sign: float) -> None:
    found = []
    for call in (TRANSFORMS[name], dc.compile(TRANSFORMS[name], fullgraph=True)):
        x = dc.tensor(X * sign, requires_grad=True)
        result = call(x)
        leaves = dc.utils._pytree.tree_leaves(result)
        sum((v * v).sum() for v in leaves).backward() if any(v.requires_grad for v in leaves) else None
        gradient = np.zeros(3) if x.grad is None else x.grad.numpy()
        found.append([*(v.detach().numpy() for v in leaves), gradient])
    for ours, expected in zip(*found[::-1], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)


def test_gradients_of_a_choice_are_those_of_finite_differences() -> None:
    call = dc.compile(lambda a: (chosen(a) ** 3).sum(), fullgraph=True)
    for sign in (1.0, -1.0):
        assert dc.autograd.gradcheck(call, (dc.tensor(X * sign, requires_grad=True),))


def test_the_other_branch_does_not_run() -> None:
    def fails(a: Any) -> Any:
        return dc.linalg.cholesky(-dc.eye(3, dtype=a.dtype)) * a

    call = dc.compile(lambda a: dc.cond(a.sum() > 0, lambda a: dc.outer(a, a), fails, (a,)), fullgraph=True)
    assert call(dc.tensor(Y)).shape == (3, 3)
    with pytest.raises(LinAlgError):
        call(dc.tensor(-Y))
    whole = dc.compile(lambda a: dc.cond(a.sum() > 0, lambda a: a // 2, lambda a: a // 0, (a,)), fullgraph=True)
    assert whole(dc.tensor([2, 4])).tolist() == [1, 2]
    places = dc.compile(
        lambda a: dc.cond(a.sum() > 0, lambda a: a[:2] * 1, lambda a: a[dc.tensor([0, 7])], (a,)), fullgraph=True
    )
    assert places(dc.tensor(Y)).tolist() == [0, 1]


def test_sizes_may_change() -> None:
    short = dc.compile(lambda a: dc.cond(a.sum() > 0, lambda a: a * 2, lambda a: a - 1, (a,)), fullgraph=True)
    long = dc.compile(
        lambda a: dc.cond(a.sum() > 0, lambda a: a @ dc.linalg.inv(dc.eye(len(a)) * 2), lambda a: a - 1, (a,)),
        fullgraph=True,
    )
    for n in (3, 4, 5):
        assert short(dc.ones(n)).tolist() == [2.0] * n
        assert long(dc.ones(n)).tolist() == [0.5] * n


def keeps(kept: list[int], a: Any) -> Any:
    kept.append(1)
    return a * 2


def test_branches_that_do_more_than_compute_end_the_graph() -> None:
    layer, weight = dc.nn.Dropout(0.5), dc.nn.Parameter(dc.ones(3, dtype=dc.float64))

    def writes(a: Any) -> Any:
        with dc.no_grad():
            return weight.mul_(2) * a

    def local(a: Any) -> Any:
        kept: list[int] = []
        return dc.cond(a.sum() > 0, lambda a: keeps(kept, a), lambda a: keeps(kept, a), (a,)) * len(kept)

    def of_a_value(a: Any) -> Any:
        b = a * 2
        return dc.cond(a.sum() > 0, lambda: b[:2].mul_(3) * 1, lambda: b[:2] * 1, ()), b

    def own(a: Any) -> Any:
        b, c = a.clone(), dc.zeros_like(a)
        c[0] = b.add_(1)[1]
        return b + c

    def steps(a: Any) -> Any:
        turns = iter([1, 2])
        return dc.cond(a.sum() > 0, lambda a: a * next(turns), lambda a: a * next(turns), (a,)) * next(turns)

    def counted(a: Any) -> Any:
        count = 0

        def counting(a: Any) -> Any:
            nonlocal count
            count += 1
            return a * 2

        return dc.cond(a.sum() > 0, counting, lambda a: a * 1, (a,)) * count

    with pytest.raises(GraphBreak, match="draws random numbers"):
        dc.compile(lambda a: dc.cond(a.sum() > 0, layer, lambda a: a * 1, (a,)), fullgraph=True, backend="eager")(
            dc.tensor(Y)
        )
    for program, why in (
        (steps, "an iterator"),
        (lambda a: dc.cond(a.sum() > 0, writes, lambda a: a * 1, (a,)), "writes to a tensor"),
        (counted, "changes what is there"),
        (of_a_value, "writes to a tensor"),
        (local, "changes what is there"),
        (lambda a: dc.cond(a.sum() > 0, lambda a: a.add_(1), lambda a: a * 1, (a,)), "writes to a tensor"),
        (lambda a: dc.cond(a.sum() > 0, lambda a: a[:2], lambda a: a * 1, (a,)), "shape of its result"),
    ):
        with pytest.raises(GraphBreak, match=why):
            dc.compile(program, fullgraph=True)(dc.tensor(Y))
    assert dc.compile(local)(dc.tensor(Y)).tolist() == (Y * 2).tolist()
    assert dc.compile(steps)(dc.tensor(Y)).tolist() == dc.compile(counted)(dc.tensor(Y)).tolist() == (Y * 2).tolist()
    found = dc.compile(of_a_value)(dc.tensor(Y))
    assert [part.tolist() for part in found] == [[0.0, 6.0], [0.0, 6.0, 4.0]]
    whole = dc.compile(lambda a: dc.cond(a.sum() > 0, own, lambda a: a * 1, (a,)), fullgraph=True)
    assert whole(dc.tensor(Y)).tolist() == own(dc.tensor(Y)).tolist()


def normalised(h: Any) -> list[Any]:
    """Two layers of batch norm, of which a branch each is taken by turns: results, buffers and gradients."""
    one, two, weight = h.nn.BatchNorm1d(3).double(), h.nn.BatchNorm1d(3).double(), h.tensor(ROWS, requires_grad=True)

    def call(x: Any) -> Any:
        y = one(x * weight)
        y = h.cond(x.sum() > 0, lambda y: one(y).sin() @ y.T, lambda y: two(y) @ two(y * y).T, (y,))
        return two(y[:, :3])

    call = h.compile(call, fullgraph=True) if h is dc else call
    results = []
    for sign in (1.0, -1.0, 1.0, 1.0, -1.0):
        found = call(h.tensor(np.sin(ROWS * 5) + sign))
        (found**3).sum().backward()
        results.append(found.detach())
    buffers = [*one.buffers(), *two.buffers()]
    return [x.numpy() for x in (*results, *buffers, *(p.grad for p in (*one.parameters(), *two.parameters(), weight)))]


def test_batch_norm_in_a_branch_writes_its_buffers_if_that_is_taken(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch, "cond", lambda pred, yes, no, given: yes(*given) if pred else no(*given))
    for ours, theirs in zip(normalised(dc), normalised(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


def test_dropout_in_a_branch_draws_at_every_call() -> None:
    layer = dc.nn.Dropout(0.5)
    call = dc.compile(
        lambda a: dc.cond(a.sum() > 0, lambda a: layer(a) @ dc.eye(64), lambda a: a * 3, (a,)), fullgraph=True
    )
    masks = []
    for _ in range(2):
        a = dc.ones(64, requires_grad=True)
        found = call(a)
        found.sum().backward()
        assert set(found.tolist()) == {0.0, 2.0}
        assert a.grad.tolist() == found.tolist()
        masks.append(found.tolist())
    assert masks[0] != masks[1]
    assert call(-dc.ones(64)).tolist() == [-3.0] * 64


def test_branches_return_alike() -> None:
    for yes, no, why in (
        (lambda a: a.int(), lambda a: a, "same dtype"),
        (lambda a: a.sum(), lambda a: a, "same dim"),
        (lambda a: (a,), lambda a: [a], "pytree"),
        (lambda a: (a, 1), lambda a: (a, a), "a tensor where"),
    ):
        with pytest.raises(BranchError, match=why):
            dc.compile(lambda a, yes=yes, no=no: dc.cond(a.sum() > 0, yes, no, (a,)), fullgraph=True)(dc.tensor(Y))


REFUSED = {
    "a predicate of two": (lambda h, t: h.cond(t > 0, t.sin, t.cos), ArgumentError),
    "a string": (lambda h, t: h.cond("a", t.sin, t.cos), ArgumentError),
    "no function": (lambda h, t: h.cond(t[0] > 0, 3, t.cos), ArgumentError),
    "numbers as operands": (lambda h, t: h.cond(t[0] > 0, t.sin, t.cos, (3,)), ArgumentError),
    "a tensor as operands": (lambda h, t: h.cond(t[0] > 0, t.sin, t.cos, t), ArgumentError),
    "map of a number": (lambda h, t: h.map(lambda x: x, 3), ArgumentError),
    "map of nothing": (lambda h, t: h.map(lambda x: x * 1, t[:0]), ArgumentError),
    "map of two lengths": (lambda h, t: h.map(lambda x: x[0] * 1, (t, t[:1])), ArgumentError),
    "map to a number": (lambda h, t: h.map(lambda x: 3, t), BranchError),
    "scan without init": (lambda h, t: h.scan(lambda c, x: (c, x), [], t), ArgumentError),
    "scan of nothing": (lambda h, t: h.scan(lambda c, x: (c + x, x * 1), t[0], t[:0]), ArgumentError),
    "scan along another dim": (lambda h, t: h.scan(lambda c, x: (c + x, x * 1), t[0], t, dim=5), IndexError_),
    "scan to one": (lambda h, t: h.scan(lambda c, x: c + x, t[0], t), BranchError),
    "scan to another carry": (lambda h, t: h.scan(lambda c, x: ((c + x).int(), x * 1), t[0], t), BranchError),
    "scan without results": (lambda h, t: h.scan(lambda c, x: (c + x, None), t[0], t), BranchError),
    "while to fewer": (lambda h, t: h.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1,), (t[0], t)), BranchError),
    "while to others": (
        lambda h, t: h.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.int()), (t[0], t)),
        BranchError,
    ),
    "while by two": (lambda h, t: h.while_loop(lambda x: x < 3, lambda x: (x + 1,), (t,)), BranchError),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_torch_refuses(name: str, theirs: Any) -> None:
    call, error = REFUSED[name]
    torch._dynamo.reset()
    with pytest.raises((RuntimeError, IndexError, AssertionError)) as raised:
        call(theirs, torch.tensor([1.0, 2.0]))
    with pytest.raises(error):
        call(Ours, dc.tensor([1.0, 2.0]))
    assert issubclass(error, IndexError if isinstance(raised.value, IndexError) else RuntimeError)
