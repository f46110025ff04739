"""torch.autograd.forward_ad and torch.func.jvp: levels, tangents through views and writes, and with reverse mode."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.autograd.forward_ad
import distcompile.nn.functional
from compiler_core.errors import GraphBreak

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X, V = np.array([0.3, 1.1, 2.0]), np.array([1.0, -2.0, 0.5])
M = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, 0.4], [0.1, 0.6, 1.8]])


class Case:
    """A primal, a tangent and a dual of them; and the library's names."""

    def __init__(self, t: Any) -> None:
        self.t, self.fw = t, t.autograd.forward_ad
        self.x, self.v = t.tensor(X), t.tensor(V)

    def dual(self, leaf: bool = False) -> Any:
        self.leaf = self.t.tensor(X).requires_grad_(leaf)
        return self.fw.make_dual(self.leaf, self.t.tensor(V))

    def tangent(self, *tensors: Any) -> Any:
        return [self.fw.unpack_dual(one).tangent for one in tensors]


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if hasattr(value, "detach"):
        value = np.asarray(value.detach())
    if isinstance(value, np.ndarray):
        return (value + 0.0).round(5).tolist()
    return value


def raised(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def unpacking(c: Case) -> Any:
    d = c.dual()
    primal, tangent = c.fw.unpack_dual(d)
    given = c.t.tensor(V)
    same = c.fw.unpack_dual(c.fw.make_dual(c.x, given)).tangent is given
    return (
        primal,
        tangent,
        same,
        d.requires_grad,
        c.tangent(c.x, d.detach(), d > 0, d.long()),
        repr(d).replace("distcompile.", "torch."),
        type(primal) is c.t.Tensor,
    )


def errors(c: Case) -> Any:
    d = c.dual()
    return [
        raised(lambda: c.fw.make_dual(d, c.v)),
        raised(lambda: c.fw.make_dual(c.x, c.v[:2])),
        raised(lambda: c.fw.make_dual(c.t.arange(3), c.v)),
        raised(c.fw.enter_dual_level),
        raised(lambda: c.fw.exit_dual_level(level=1)),
    ]


def writes(c: Case) -> Any:
    d = c.dual()
    z, w, u = c.t.zeros(3, dtype=c.t.float64), c.t.zeros(3, dtype=c.t.float64), c.t.zeros(2, 3, dtype=c.t.float64)
    z[0] = d[1]
    z.mul_(3)
    w.view(3).copy_(d)
    u[1].copy_(d)
    u.unsqueeze_(0)
    e = c.dual()
    e.add_(1)
    e.mul_(2)
    emptied = c.dual().zero_()
    over = c.dual()
    over[1] = 5.0
    return c.tangent(z, w, u, e, emptied, over)


def views(c: Case) -> Any:
    d = c.fw.make_dual(c.t.tensor(M), c.t.eye(3, dtype=c.t.float64))
    s = d.t()
    before = c.tangent(s, d.diagonal(), d[1:, ::2], d.unsqueeze(0), d.as_strided((2, 2), (3, 1)))
    s[0, 1] = 5.0
    return before, c.tangent(d, s), d, c.tangent(d.clone())


def without_recording(c: Case) -> Any:
    with c.t.no_grad():
        d = c.dual()
        return c.tangent(d.sin(), d * 2, d.clone(), d.double().float().double())


def functions(c: Case) -> Any:
    d, m = c.dual(), c.fw.make_dual(c.t.tensor(M), c.t.tensor(M).sin())
    t, F = c.t, c.t.nn.functional
    return c.tangent(
        *(t.linalg.inv(m), t.linalg.det(m), t.logsumexp(m, 0), t.cumsum(m, 0), m.var(0), m @ d, F.softmax(m, 1)),
        *(
            F.layer_norm(m, (3,)),
            F.gelu(d),
            t.max(d, 0).values,
            t.where(d > 1, d, d * d),
            t.floor(d),
            d.norm(),
            m.mean(),
        ),
        *(t.stack([d, d * 2]), t.einsum("ij,j->i", m, d), d**3, 2**d, t.atan2(d, d.flip(0)), d.abs(), d.sort().values),
    )


def a_network(c: Case) -> Any:
    nn = c.t.nn
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)).double()
    with c.t.no_grad():
        for p in net.parameters():
            p.copy_((c.t.arange(p.numel()) * 0.1 - 0.3).reshape(p.shape))
    out = net(c.dual()[None])
    (pushed,) = c.tangent(out)
    grads = c.t.autograd.grad(pushed.square().sum(), list(net.parameters()), allow_unused=True)
    return out, pushed, out.requires_grad, [0 if g is None else g.abs().sum() for g in grads]


def forward_over_reverse(c: Case) -> Any:
    d = c.dual(leaf=True)
    (g,) = c.t.autograd.grad((d**3).sum() + d.prod(), c.leaf)
    d = c.dual(leaf=True)
    (d.sin() * d).sum().backward()
    return g, c.tangent(g), c.leaf.grad, c.tangent(c.leaf.grad)


def reverse_over_forward(c: Case) -> Any:
    d = c.dual(leaf=True)
    (pushed,) = c.tangent((d.sin() * d).sum())
    return pushed, c.t.autograd.grad(pushed, c.leaf)


def own_function(c: Case) -> Any:
    class Scale(c.t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, by: float) -> Any:
            ctx.save_for_forward(x)
            ctx.by = by
            return x * by, x.clone()

        @staticmethod
        def jvp(ctx: Any, v: Any, by: Any) -> Any:
            (x,) = ctx.saved_tensors
            return v * ctx.by * x, v + 1

    class Plain(c.t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    return c.tangent(*Scale.apply(c.dual(), 3.0)), raised(lambda: Plain.apply(c.dual())), Plain.apply(c.x)


def func_inside(c: Case) -> Any:
    d = c.dual()
    return c.tangent(c.t.func.grad(lambda a: a.sin().sum())(d), c.t.func.vmap(lambda a: a.sin() * 2)(d))


IN_A_LEVEL = [
    *(unpacking, errors, writes, views, without_recording, functions, a_network, forward_over_reverse),
    *(reverse_over_forward, own_function, func_inside),
]


@pytest.mark.parametrize("program", IN_A_LEVEL, ids=lambda p: p.__name__)
def test_in_a_level(program: Callable[[Case], Any]) -> None:
    found = []
    for t in (torch, dc):
        with t.autograd.forward_ad.dual_level():
            found.append(plain(program(Case(t))))
    assert found[0] == found[1]


def test_outside_of_levels() -> None:
    for t in (torch, dc):
        c = Case(t)
        with c.fw.dual_level():
            d = c.dual()
        assert c.tangent(d) == [None]
        assert "tangent" not in repr(d)
        assert raised(lambda c=c: c.fw.make_dual(c.x, c.v)) == "RuntimeError"
        assert raised(c.fw.exit_dual_level) == "RuntimeError"
        assert c.fw.enter_dual_level() == 0
        c.fw.exit_dual_level()
        inside = t.autograd.forward_ad.dual_level()(lambda c=c: c.tangent(c.dual() * 2))
        assert plain(inside()) == [(V * 2).tolist()]


def test_a_tangent_of_another_level_counts_no_more() -> None:
    for t in (torch, dc):
        c = Case(t)
        with c.fw.dual_level():
            d = c.dual()
        with c.fw.dual_level():
            assert c.tangent(d, d * 2) == [None, None]


def test_another_thread_has_no_level() -> None:
    c = Case(dc)
    found: list[Any] = []
    with c.fw.dual_level():
        d = c.dual()
        thread = threading.Thread(target=lambda: found.extend([c.tangent(d, d * 2), raised(lambda: c.dual())]))
        thread.start()
        thread.join(60)
    assert found == [[None, None], "RuntimeError"]


def test_nothing_stands_in_the_tensors_places_afterwards() -> None:
    before = {name: vars(dc.Tensor)[name] for name in ("__bind__", "__whole__", "_assign", "_snapshot")}
    c = Case(dc)
    with c.fw.dual_level():
        assert vars(dc.Tensor)["__bind__"] is not before["__bind__"]
    with pytest.raises(ZeroDivisionError), c.fw.dual_level():
        raise ZeroDivisionError
    assert before == {name: vars(dc.Tensor)[name] for name in before}


def test_a_compiled_function_runs_eager_in_a_level() -> None:
    c, calls = Case(dc), []

    def body(x: Any) -> Any:
        calls.append(1)
        return x.sin() * 2

    compiled = dc.compile(body)
    for _ in range(2):
        compiled(c.x)
    with c.fw.dual_level():
        assert plain(c.tangent(compiled(c.dual()))) == plain([2 * np.cos(X) * V])
    graphs = len(compiled.explain().entries)
    compiled(c.x)
    assert len(compiled.explain().entries) == graphs


def test_a_level_in_compiled_code_is_a_break() -> None:
    def body(x: Any, v: Any) -> Any:
        with dc.autograd.forward_ad.dual_level():
            return dc.autograd.forward_ad.unpack_dual(dc.autograd.forward_ad.make_dual(x, v) ** 2).tangent

    c = Case(dc)
    assert plain(dc.compile(body)(c.x, c.v)) == plain(body(c.x, c.v)) == plain(2 * X * V)
    with pytest.raises(GraphBreak, match="forward mode level"):
        dc.compile(body, fullgraph=True)(c.x, c.v)


def ones(c: Case) -> Any:
    return (c.t.ones(3, dtype=c.t.float64),)


def third(c: Case, x: Any) -> Any:
    def jvp(f: Any) -> Any:
        return lambda x: c.t.func.jvp(f, (x,), ones(c))[1]

    return jvp(jvp(jvp(lambda x: x**4)))(x)


def no_confusion(c: Case, x: Any) -> Any:
    """d/dx x * (d/dy (x + y) at 1) is 1, not 2: the classic of perturbations that are taken for one another."""
    return c.t.func.jvp(lambda x: x * c.t.func.jvp(lambda y: x + y, ones(c), ones(c))[1], (x,), ones(c))


def by_its_own_jvp(c: Case, x: Any) -> Any:
    class Cube(c.t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx: Any, v: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 30 * x * x * v

    return c.t.func.jvp(Cube.apply, (x,), ones(c))


def times(by: Any) -> Any:
    return lambda y: y * by


def needed(tensors: Any) -> Any:
    return [one.requires_grad for one in tensors]


FUNC: dict[str, Callable[[Case, Any], Any]] = {
    "third": third,
    "no confusion": no_confusion,
    "its own jvp": by_its_own_jvp,
    "over grad": lambda c, x: c.t.func.jvp(c.t.func.grad(lambda x: (x.sin() * x.sum()).sum()), (x,), (c.v,)),
    "grad over": lambda c, x: c.t.func.grad(lambda x: c.t.func.jvp(lambda x: x.exp() * x, (x,), (c.v,))[1].sum())(x),
    "over hessian": lambda c, x: c.t.func.jvp(c.t.func.hessian(lambda x: (x**4).sum() * x[0]), (x,), (c.v,)),
    "over vmap": lambda c, x: c.t.func.jvp(c.t.func.vmap(lambda a: a.sin() * a), (x,), (c.v,)),
    "under vmap": lambda c, x: c.t.func.vmap(lambda v: c.t.func.jvp(lambda x: x.prod() * x, (x,), (v,))[1])(
        c.t.eye(3, dtype=c.t.float64)
    ),
    "aux": lambda c, x: c.t.func.jvp(lambda x: (x**2, x.detach()), (x,), (c.v,), has_aux=True),
    "no dependence": lambda c, x: c.t.func.jvp(lambda x: (x * 2, c.t.ones(2)), (x,), (c.v,)),
    "linearize": lambda c, x: c.t.func.linearize(lambda x: x.sin() * x.sum(), x)[1](c.v),
    "functional": lambda c, x: c.t.autograd.functional.jvp(lambda x: x.sin() * x.sum(), x, c.v),
    "jacfwd": lambda c, x: c.t.func.jacfwd(lambda x: x.sin() * x.sum())(x),
    "a parameter outside": lambda c, x: needed(c.t.func.jvp(times(x.clone().requires_grad_()), (x,), (c.v,))),
}


@pytest.mark.parametrize("name", FUNC)
def test_func(name: str) -> None:
    theirs, ours = (plain(FUNC[name](Case(t), t.tensor(X))) for t in (torch, dc))
    assert theirs == ours


def test_hessian_vector_products_agree() -> None:
    def f(x: Any) -> Any:
        return (x**3).sum() + x.prod() * x.sin().sum()

    x, v = dc.tensor(X), dc.tensor(V)
    products = [
        dc.func.jvp(dc.func.grad(f), (x,), (v,))[1],
        dc.func.grad(lambda x: dc.func.jvp(f, (x,), (v,))[1])(x),
        dc.autograd.functional.hvp(f, x, v)[1],
        dc.func.hessian(f)(x) @ v,
    ]
    for product in products[1:]:
        np.testing.assert_allclose(product.numpy(), products[0].numpy(), rtol=1e-12)
