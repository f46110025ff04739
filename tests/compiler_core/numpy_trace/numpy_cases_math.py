"""More of numpy_cases.py: single elements, order and statistics, linear algebra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.compiler_core.numpy_trace.numpy_cases import ALL, FLOATS, REALS, A, Case
from tests.compiler_core.numpy_trace.numpy_cases import absolute as _absolute
from tests.compiler_core.numpy_trace.numpy_cases import function_of as _of


def _elements() -> Iterator[Case]:
    yield Case(
        "where",
        lambda a, b: (
            np.where(a > 0, a, b),
            np.where(a, 1, 0),
            np.where(a > 0, a, 0.0),
            np.where(b != 0, np.float32(2), a),
        ),
        (A, (4,)),
    )
    yield Case("select", lambda a: np.select([a > 1, a > 0], [a, a * 2], default=0), (A,), REALS)
    yield Case("choose", lambda a, b: np.choose((a > 0).astype(int), [a, b], mode="clip"), (A, A))
    yield Case(
        "clip", lambda a: (np.clip(a, -1, 1), a.clip(0, None), np.clip(a, None, 1), np.clip(a, 0.5, 1.5)), (A,), REALS
    )
    yield Case("round", lambda a: (np.round(a), np.round(a, 2), a.round(1), np.rint(a), np.fix(a)), (A,), REALS)
    yield Case("nan_to_num", lambda a: np.nan_to_num(np.where(a > 1, np.nan, a)), (A,), FLOATS)
    yield Case(
        "isclose", lambda a, b: (np.isclose(a, b), np.isclose(a, a + 1e-9), np.isclose(a, b, atol=1)), (A, A), REALS
    )
    yield Case("sinc", lambda a: (np.sinc(a), np.i0(a)), (A,), FLOATS)
    yield Case("isin", lambda a: (np.isin(a, [1, 2, 0]), np.isin(a, [1], invert=True)), (A,), ("int32", "int64"))
    yield Case("infinities", lambda a: (np.isposinf(a), np.isneginf(a), np.isreal(a)), (A,))

    yield Case("other names", lambda a: (np.amax(a), np.amin(a, 0), np.around(a, 1), np.angle(a * 1.0)), (A,), REALS)
    yield Case("types", lambda a: (np.isrealobj(a), np.can_cast(a, np.float64), str(np.result_type(a, np.int8))), (A,))
    yield Case("neighbours", lambda a: (np.nextafter(a, a + 1), np.ldexp(a, 2)), (A,), FLOATS)
    yield Case(
        "like",
        lambda a: (
            np.zeros(3, like=a), np.ones((2, 2), dtype=int, like=a), np.empty(0, like=a), np.full(2, 7, like=a),
            np.eye(2, like=a), np.arange(3, like=a), np.identity(2, like=a), np.tri(2, like=a),
            np.array([1, 2], like=a), np.asarray([1.5], like=a), np.asanyarray(2, like=a),
            np.ascontiguousarray([1], like=a),
        ),
        (A,),
    )  # fmt: skip
    yield Case(
        "linspace", lambda a: (np.linspace(a[0], a[1], 4), np.linspace(0, a.max(), 3, endpoint=False)), (A,), REALS
    )

    def placed(a: Any) -> Any:
        a = a.copy()
        np.place(a, a > 0, 2)
        return a

    yield Case("place", placed, (A,))


def _ordering() -> Iterator[Case]:
    yield Case("sort", lambda a: (np.sort(a), np.sort(a, axis=0), np.sort(a, axis=None)), (A,))
    yield Case(
        "argsort", lambda a: (np.argsort(a), np.argsort(a, axis=0), a.argsort(kind="stable")), (A,), REALS, unique=True
    )
    yield Case(
        "searchsorted",
        lambda a, v: (np.searchsorted(np.sort(a), v), np.searchsorted(np.sort(a), v, side="right")),
        ((6,), A),
        REALS,
    )
    yield Case(
        "digitize", lambda a: (np.digitize(a, [-1, 0, 1]), np.digitize(a, [1.0, 0.5, -1], right=True)), (A,), REALS
    )
    yield Case(
        "median", lambda a: (np.median(a), np.median(a, axis=0), np.median(a, axis=1, keepdims=True)), ((4, 3),), REALS
    )
    yield Case(
        "quantile",
        lambda a: (np.quantile(a, 0.3), np.percentile(a, [25, 50], axis=0), np.quantile(a, 0.5, axis=1, keepdims=True)),
        ((5, 4),),
        REALS,
    )
    yield Case(
        "cov",
        lambda a, b: (np.cov(a), np.cov(a, rowvar=False), np.cov(a[0], a[1]), np.corrcoef(a)),
        ((3, 6), A),
        FLOATS,
    )
    yield Case(
        "histogram",
        lambda a: (*np.histogram(a, bins=5, range=(-2, 2)), np.histogram(a, [-3, 0, 1, 3], density=True)[0]),
        ((20,),),
        REALS,
    )
    yield Case(
        "interp",
        lambda x, f: (np.interp(x, [-2.0, 0.0, 1.0, 2.5], f), np.interp(x, [-2, 0, 1, 2], f, left=-9, right=9)),
        ((7,), (4,)),
        REALS,
    )
    yield Case(
        "diff",
        lambda a: (
            np.diff(a),
            np.diff(a, axis=0),
            np.diff(a, n=2),
            np.diff(a, prepend=0 if a.dtype != bool else False),
            np.ediff1d(a * 1),
        ),
        ((3, 5),),
        ALL,
    )
    yield Case("gradient", lambda a: (*np.gradient(a), np.gradient(a, 2.0, axis=1)), ((4, 5),), REALS)
    yield Case(
        "trapezoid",
        lambda a: (np.trapezoid(a), np.trapezoid(a, dx=0.5, axis=0), np.trapezoid(a, [0.0, 1.0, 3.0, 4.0])),
        (A,),
        REALS,
    )
    yield Case("convolve", lambda a, b: [np.convolve(a, b, m) for m in ("full", "same", "valid")], ((7,), (3,)), REALS)
    yield Case(
        "convolve even", lambda a, b: [np.convolve(b, a, m) for m in ("full", "same", "valid")], ((7,), (4,)), REALS
    )
    yield Case(
        "correlate", lambda a, b: [np.correlate(a, b, m) for m in ("full", "same", "valid")], ((7,), (4,)), REALS
    )
    yield Case(
        "correlate short", lambda a, b: [np.correlate(b, a, m) for m in ("full", "same", "valid")], ((7,), (4,)), REALS
    )
    yield Case(
        "polyval",
        lambda a: (np.polyval([1, 2, 3], a), np.vander(a[0]), np.vander(a[0], 2, increasing=True)),
        (A,),
        REALS,
    )

    yield Case("bincount", lambda a: np.bincount([0, 2, 2, 1], weights=a, minlength=5), ((4,),), REALS)
    yield Case("partition", lambda a: np.partition(a, 3)[3], ((7,),), REALS)
    yield Case("argpartition", lambda a: a[np.argpartition(a, 3)][3], ((7,),), REALS, unique=True)


def _linear() -> Iterator[Case]:
    S = (3, 3)
    safe = lambda a: a @ a.T + 3 * np.eye(3, dtype=a.dtype)  # noqa: E731
    yield Case(
        "dot", lambda a, b: (np.dot(a, b), a.dot(b), np.dot(a[0], b), np.dot(a[0], a[0]), np.dot(a, 2)), (A, (4, 2))
    )
    yield Case(
        "dot n-d", lambda a, b: (np.dot(a, b), np.tensordot(a, b, ([2], [1])), np.inner(a, a)), ((2, 3, 4), (2, 4, 3))
    )
    yield Case("vdot", lambda a: (np.vdot(a, a), np.inner(a[0], a[1]), np.outer(a, a[0])), (A,))
    yield Case("kron", lambda a, b: (np.kron(a, b), np.tensordot(a, b, 0)), ((2, 2), (3, 2)), REALS)
    yield Case("cross", lambda a, b: np.cross(a, b), ((5, 3), (3,)), REALS)
    yield Case(
        "einsum",
        lambda a, b: (
            np.einsum("ij,jk->ik", a, b),
            np.einsum("ij->j", a),
            np.einsum("ij,ij->", a, a),
            np.einsum("ii->i", b[:2, :2]),
        ),
        (A, (4, 2)),
        REALS,
    )
    yield Case(
        "norm",
        lambda a: (
            np.linalg.norm(a),
            np.linalg.norm(a, axis=1),
            np.linalg.norm(a, 1, axis=0),
            np.linalg.norm(a[0], np.inf),
            np.linalg.norm(a, "fro"),
            np.linalg.norm(a, axis=0, keepdims=True),
            np.linalg.norm(a, 2),
        ),
        (A,),
        REALS,
    )
    yield Case(
        "inv",
        lambda a: (
            np.linalg.inv(safe(a)),
            np.linalg.det(safe(a)),
            *np.linalg.slogdet(safe(a)),
            np.linalg.pinv(safe(a)),
        ),
        (S,),
        REALS,
    )
    yield Case(
        "solve",
        lambda a, b: (np.linalg.solve(safe(a), b), np.linalg.solve(safe(a), b[:, 0]), np.linalg.cholesky(safe(a))),
        (S, (3, 2)),
        REALS,
    )
    yield Case(
        "eigh",
        lambda a: (np.linalg.eigh(safe(a))[0], np.linalg.eigvalsh(safe(a)), np.linalg.svd(a, compute_uv=False)),
        (S,),
        REALS,
    )
    yield Case("svd", lambda a: (lambda u, s, v: (u * s) @ v)(*np.linalg.svd(a, full_matrices=False)), (A,), FLOATS)
    yield Case("qr", lambda a: (lambda q, r: q @ r)(*np.linalg.qr(a)), ((4, 3),), FLOATS)
    yield Case("matrix_power", lambda a: [np.linalg.matrix_power(a, n) for n in (0, 1, 3)], (S,), REALS)
    yield Case(
        "multi_dot", lambda a, b: (np.linalg.multi_dot([a, b, a]), np.linalg.cond(safe(b[:3, :3]))), (A, (4, 3)), FLOATS
    )
    for name in ["fft", "rfft", "ifft", "fft2"]:
        yield Case(name, _absolute(_of(np.fft, name)), (A,), FLOATS)
    yield Case(
        "irfft",
        lambda a: (np.fft.irfft(np.fft.rfft(a), n=4), np.fft.fftshift(a), np.fft.ifftshift(a, axes=1)),
        (A,),
        FLOATS,
    )

    yield Case("more transforms", _transforms, (A,), FLOATS)
    yield Case(
        "np.linalg's own",
        lambda a, b: (
            np.linalg.matmul(a, b), np.linalg.outer(a[0], a[1]), np.linalg.tensordot(a, b, axes=1),
            np.linalg.cross(b, b + 1), np.linalg.matrix_transpose(a), np.linalg.diagonal(a),
            np.linalg.trace(a), np.linalg.vector_norm(a, axis=0),
            np.linalg.svdvals(a), np.matrix_transpose(a),
        ),
        (A, (4, 3)),
        REALS,
    )  # fmt: skip


def _transforms(a: Any) -> Any:
    f = np.fft
    spectra = f.fftn(a), f.ifftn(a), f.ifft2(a), f.rfft2(a), f.rfftn(a), f.ihfft(a)
    return [abs(s) for s in spectra], f.irfft2(f.rfft2(a)), f.irfftn(f.rfftn(a)), f.hfft(f.ihfft(a)), f.ifft(a).real


CASES = [*_elements(), *_ordering(), *_linear()]
