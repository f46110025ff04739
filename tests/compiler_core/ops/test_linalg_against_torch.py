"""torch.linalg's functions against torch: values and gradients, eager and compiled; errors; empty batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import DTypeError, LinAlgError, ShapeError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Call = Callable[[Any, Any, Any], Any]

CALLS: dict[str, Call] = {
    "cholesky": lambda t, a, b: t.linalg.cholesky(a @ a.mT + t.eye(3, dtype=a.dtype)),
    "cholesky upper": lambda t, a, b: t.linalg.cholesky(a @ a.mT + t.eye(3, dtype=a.dtype), upper=True),
    "cholesky_solve": lambda t, a, b: t.cholesky_solve(b, t.tril(a) + 3 * t.eye(3, dtype=a.dtype)),
    "eigvalsh": lambda t, a, b: t.linalg.eigvalsh(a + a.mT),
    "eigh": lambda t, a, b: t.linalg.eigh(a + a.mT).eigenvectors.abs(),
    "svdvals": lambda t, a, b: t.linalg.svdvals(b),
    "svd": lambda t, a, b: [abs(x) for x in t.linalg.svd(b, full_matrices=False)],
    "svd tall": lambda t, a, b: t.svd(b.mT).V.abs(),
    "qr": lambda t, a, b: [*t.linalg.qr(a)],
    "qr tall": lambda t, a, b: [*t.linalg.qr(b)],
    "qr wide": lambda t, a, b: [*t.qr(b.mT)],
    "lu": lambda t, a, b: [*t.linalg.lu(a)],
    "lu tall": lambda t, a, b: [*t.linalg.lu(b)][1:],
    "lu wide": lambda t, a, b: [*t.linalg.lu_factor(b.mT)],
    "lu_solve": lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b),
    "lu_unpack": lambda t, a, b: [*t.lu_unpack(*t.linalg.lu_factor(a))],
    "solve": lambda t, a, b: t.linalg.solve(a, b),
    "solve right": lambda t, a, b: t.linalg.solve(a, b.mT, left=False),
    "solve vector": lambda t, a, b: t.linalg.solve(a[0], b[0, :, 0]),
    "inv": lambda t, a, b: t.linalg.inv(a),
    "solve_triangular": lambda t, a, b: t.linalg.solve_triangular(a.triu(), b, upper=True),
    "unit triangular": lambda t, a, b: t.linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
    "det": lambda t, a, b: t.linalg.det(a),
    "det of a singular matrix": lambda t, a, b: t.det(a * t.arange(3)),
    "slogdet": lambda t, a, b: t.linalg.slogdet(a)[1],
    "matrix_exp": lambda t, a, b: t.linalg.matrix_exp(a),
    "pinv": lambda t, a, b: t.linalg.pinv(b),
    "pinv wide": lambda t, a, b: t.pinverse(b.mT),
    "lstsq": lambda t, a, b: t.linalg.lstsq(b, a)[0],
    "nuclear norm": lambda t, a, b: t.linalg.matrix_norm(b, "nuc"),
    "spectral norm": lambda t, a, b: t.linalg.norm(b, 2, dim=(1, 2)),
    "vector norm": lambda t, a, b: t.linalg.vector_norm(b, 3.0, dim=1),
    "cond": lambda t, a, b: t.linalg.cond(a),
    "matrix_rank": lambda t, a, b: t.linalg.matrix_rank(a.detach() * t.arange(3)),
    "matrix_power": lambda t, a, b: t.linalg.matrix_power(a, -3),
    "multi_dot": lambda t, a, b: t.linalg.multi_dot([a[0], b[0], b[1].mT, a[1]]),
    "cross": lambda t, a, b: t.linalg.cross(a, b[:, :, :1].mT.expand(2, 3, 3)),
    "vander": lambda t, a, b: t.linalg.vander(b[0, 0], N=4),
    "householder": lambda t, a, b: t.linalg.householder_product(b, a[:, 0, :2]),
    "tensorinv": lambda t, a, b: t.linalg.tensorinv(a[0].reshape(1, 3, 3), ind=2),
}


def arrays() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    return rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 2))


def results(library: Any, call: Call, wrap: Callable[..., Any]) -> list[Any]:
    """Results and gradients."""
    a, b = (library.tensor(x, requires_grad=True) for x in arrays())
    got = wrap(lambda a, b: call(library, a, b))(a, b)
    got = [*got] if isinstance(got, (list, tuple)) else [got]
    weighted = [(k + 1) * (x * library.cos(x.detach() * 7)).sum() for k, x in enumerate(got) if x.requires_grad]
    if weighted:
        sum(weighted).backward()
    return [*(x.detach().numpy() for x in got), *(None if x.grad is None else x.grad.numpy() for x in (a, b))]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("what", CALLS)
def test_linalg(what: str, compiled: bool) -> None:
    wrap = (lambda f: dc.compile(f, fullgraph=True)) if compiled else lambda f: f
    for got, want in zip(results(dc, CALLS[what], wrap), results(torch, CALLS[what], lambda f: f), strict=True):
        if want is None or got is None:
            assert not np.any(want if got is None else got)
            continue
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9)


def test_failures_are_named() -> None:
    with pytest.raises(LinAlgError, match="cholesky"):
        dc.linalg.cholesky(-dc.eye(2))
    with pytest.raises(dc.linalg.LinAlgError, match="ingular"):
        dc.linalg.inv(dc.zeros(2, 2))
    with pytest.raises(ShapeError, match="square"):
        dc.linalg.det(dc.zeros(2, 3))
    with pytest.raises(ShapeError, match="2 dimensions"):
        dc.linalg.svd(dc.zeros(3))
    with pytest.raises(DTypeError):
        dc.linalg.det(dc.zeros(2, 2, dtype=dc.float16))


def test_a_failure_in_compiled_code_is_named_too() -> None:
    compiled = dc.compile(lambda a: dc.linalg.cholesky(a) * 2, fullgraph=True)
    np.testing.assert_allclose(compiled(dc.eye(2)).numpy(), 2 * np.eye(2))
    with pytest.raises(LinAlgError, match="cholesky"):
        compiled(-dc.eye(2))
    assert "calls back" not in str(compiled.explain())  # LAPACK is called by the native code itself (test_lapack.py)


def test_info_says_where_it_failed() -> None:
    assert dc.linalg.cholesky_ex(dc.eye(3)).info.item() == 0
    assert dc.linalg.lu_factor_ex(dc.tensor([[1.0, 1.0], [1.0, 1.0]])).info.item() == 2


@pytest.mark.parametrize("wrap", [lambda f: f, dc.compile])
def test_what_has_an_info_does_not_spoil_the_rest(wrap: Callable[[Any], Any]) -> None:
    half = np.random.default_rng(0).standard_normal((2, 3, 3))
    definite = half @ half.transpose(0, 2, 1) + np.eye(3)
    definite[1, 2, 2], half[1] = -5, 1
    results = []
    for lib, run in ((torch, lambda f: f), (dc, wrap)):

        def function(p: Any, s: Any, b: Any, lib: Any = lib) -> Any:
            return lib.linalg.cholesky_ex(p), lib.linalg.inv_ex(s), lib.linalg.solve_ex(s, b)

        p, s = lib.tensor(definite).requires_grad_(), lib.tensor(half).requires_grad_()
        found = run(function)(p, s, lib.tensor(half[:, :, 0]))
        sum((value[0] * value[0]).sum() for value, _ in found).backward()
        results.append([*(value[0] for value, _ in found), *(info for _, info in found), p.grad[0], s.grad[0]])
    for got, want in zip(*results[::-1], strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), atol=1e-9)


def test_an_info_is_an_error_where_it_is_asked_for() -> None:
    for function in (dc.linalg.cholesky_ex, dc.linalg.inv_ex):
        for run in (function, dc.compile(lambda x, function=function: function(x, check_errors=True).result)):
            with pytest.raises(LinAlgError):
                run(dc.zeros(2, 2), **({} if run is not function else {"check_errors": True}))
