"""More of numpy_cases.py: what moves elements about, and indexing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.compiler_core.numpy_trace.numpy_cases import ALL, REALS, A, Case


def _shaping() -> Iterator[Case]:
    B = (2, 3, 4)
    yield Case(
        "reshape", lambda a: (a.reshape(4, -1), a.reshape((6, 4)), np.reshape(a, -1), a.reshape(3, 8, order="F")), (B,)
    )
    yield Case("ravel", lambda a: (a.ravel(), np.ravel(a, order="F"), a.flatten(), a.flatten("F"), a.T.ravel()), (B,))
    yield Case(
        "transpose",
        lambda a: (a.T, a.transpose(1, 0, 2), np.transpose(a, (2, 0, 1)), a.transpose(), a.swapaxes(0, 2)),
        (B,),
    )
    yield Case(
        "axes",
        lambda a: (np.moveaxis(a, 0, -1), np.rollaxis(a, 2), np.expand_dims(a, (0, 2)), np.squeeze(a[:, :1])),
        (B,),
    )
    yield Case("broadcast", lambda a, b: (np.broadcast_to(b, (3, 4)), *np.broadcast_arrays(a, b)), (A, (4,)))
    yield Case("atleast", lambda a: (np.atleast_1d(a[0]), np.atleast_2d(a), np.atleast_3d(a)), ((4,),))
    yield Case(
        "flip",
        lambda a: (np.flip(a), np.flip(a, 1), np.fliplr(a), np.flipud(a), np.rot90(a), a[::-1], a[:, ::-2]),
        (A,),
    )
    yield Case("roll", lambda a: (np.roll(a, 2), np.roll(a, -1, axis=0), np.roll(a, (1, 2), axis=(0, 1))), (A,))
    yield Case(
        "concatenate",
        lambda a, b: (
            np.concatenate([a, b]),
            np.concatenate((a, b), axis=None),
            np.concatenate([a, b.astype(np.float32)]),
        ),
        (A, (2, 4)),
    )
    yield Case(
        "stack",
        lambda a, b: (
            np.stack([a, b]),
            np.stack([a, b], axis=-1),
            np.vstack([a, b]),
            np.hstack([a, b]),
            np.dstack([a, b]),
            np.column_stack([a, b]),
        ),
        (A, A),
    )
    yield Case(
        "stack 1-d",
        lambda a, b: (np.vstack([a, b]), np.hstack([a, b]), np.column_stack([a, b]), np.append(a, b)),
        ((3,), (3,)),
    )
    yield Case("block", lambda a, b: np.block([[a, b], [b, a]]), ((2, 2), (2, 2)))
    yield Case(
        "split",
        lambda a: (
            *np.split(a, 2, axis=1),
            *np.array_split(a, 2),
            *np.split(a, [1, 2]),
            *np.hsplit(a, 2),
            *np.vsplit(a, 3),
        ),
        (A,),
    )
    yield Case("dsplit", lambda a: np.dsplit(a, 2), ((2, 3, 4),))
    yield Case("tile", lambda a: (np.tile(a, 2), np.tile(a, (2, 1, 2))), (A,))
    yield Case(
        "repeat",
        lambda a: (np.repeat(a, 2), np.repeat(a, 2, axis=1), np.repeat(a, [1, 0, 2], axis=0), a.repeat(3)),
        (A,),
    )
    yield Case("resize", lambda a: np.resize(a, (2, 9)), (A,))
    yield Case(
        "pad",
        lambda a: (
            np.pad(a, 1),
            np.pad(a, ((0, 1), (2, 0)), constant_values=1),
            np.pad(a, 1, mode="edge"),
            np.pad(a, 2, mode="reflect"),
            np.pad(a, 1, "wrap"),
            np.pad(a, 1, "symmetric"),
        ),
        (A,),
    )
    yield Case(
        "take",
        lambda a: (
            np.take(a, [0, 2]),
            np.take(a, 1),
            a.take([[0, 1], [1, 0]], axis=1),
            np.take(a, [9, -9], mode="wrap"),
        ),
        (A,),
    )
    yield Case(
        "take_along_axis", lambda a: np.take_along_axis(a, np.argsort(a, axis=1), axis=1), (A,), REALS, unique=True
    )
    yield Case(
        "diagonal",
        lambda a: (
            np.diagonal(a),
            np.diag(a),
            a.diagonal(1),
            np.diag(a[0]),
            np.diag(a[0], 1),
            np.trace(a),
            np.diagflat(a),
        ),
        ((3, 4),),
    )
    yield Case("triangles", lambda a: (np.tril(a), np.triu(a, 1), np.tril(a, -1)), (A,))
    yield Case(
        "insert",
        lambda a: (np.insert(a, 1, 5), np.insert(a, 1, 1, axis=1), np.delete(a, 1, axis=0), np.delete(a, [0, 2])),
        (A,),
    )
    yield Case(
        "meshgrid",
        lambda a, b: (*np.meshgrid(a, b), *np.meshgrid(a, b, indexing="ij"), *np.meshgrid(a, b, sparse=True)),
        ((3,), (4,)),
    )
    yield Case(
        "likes",
        lambda a: (
            np.zeros_like(a),
            np.empty_like(a).shape,
            np.ones_like(a),
            np.full_like(a, 2),
            np.zeros_like(a, dtype=np.int64),
            np.ones_like(a, shape=(2,)),
        ),
        (A,),
    )
    yield Case(
        "astype",
        lambda a: (a.astype(np.float32), a.astype(np.int32), a.astype("float64"), a.astype(bool), a.astype(float)),
        (A,),
    )
    yield Case("copy", lambda a: (a.copy(), np.copy(a), a.T.copy()), (A,))
    yield Case("real", lambda a: (a.real, a.imag, np.real(a), np.iscomplexobj(a)), (A,))
    yield Case(
        "about",
        lambda a: (
            a.shape,
            a.ndim,
            a.size,
            a.itemsize,
            a.nbytes,
            a.strides,
            a.T.strides,
            len(a),
            str(a.dtype),
            np.shape(a),
            np.ndim(a),
            np.size(a, 1),
        ),
        (A,),
    )


def _indexing() -> Iterator[Case]:
    C = (4, 5)
    yield Case(
        "items", lambda a: (a[0], a[1, 2], a[-1], a[1:3], a[:, 1], a[..., 0], a[None, :, 2], a[::2, 1:4:2], a[()]), (C,)
    )
    yield Case(
        "arrays",
        lambda a: (
            a[[0, 2]],
            a[[0, 1], [1, 2]],
            a[:, [0, 0]],
            a[np.array([1, -1])],
            a[np.ix_([0, 2], [1, 3])],
            a[1, [0, 2]],
        ),
        (C,),
    )
    yield Case(
        "int beside arrays",
        lambda a: (a[0, :, [1, 2]], a[[0, 1], :, 1], a[:, 0, [1, 2]], a[[[0], [1]], 2]),
        ((3, 4, 5),),
    )
    yield Case(
        "a traced int beside arrays",
        lambda a: (a[np.argmax(a[:, 0, 0]), :, [1, 2]], a[[0, 1], :, np.argmax(a[0, 0])]),
        ((3, 4, 5),),
    )
    yield Case(
        "traced places",
        lambda a: (a[np.argmax(a)], a[np.argmax(a, axis=0) % 3], a[abs(a * 1).argmin()], a[a.argsort()]),
        ((6,),),
        REALS,
        unique=True,
    )
    yield Case("uint8 places", lambda a: a[np.array([0, 1], np.uint8)], (C,))
    yield Case("backwards", lambda a: (a[::-1], a[3:0:-1, ::2], a[2, ::-1], a[::-2, [0, 1]], a[1:3:-1]), (C,))

    def writes(a: Any) -> Any:
        a = a.copy()
        a[0] = 1
        a[1:3, ::2] = a[1:3, ::2] + a[0, 0]
        a[:, 1] = a[:, 2]
        a[[0, 3], [1, 1]] = 0
        a[a > 1] = 1
        a[-1, -1] = 2.7 if a.dtype.kind == "f" else 2
        a[::-1, 0] = a[:, 4]
        return a

    def views(a: Any) -> Any:
        a = a.copy()
        row, turned, line = a[1], a.T, a.reshape(-1)
        row[...] = 1
        turned[0] = 0
        line[3] += line[3]
        return a, row, turned, line

    def augmented(a: Any) -> Any:
        a = a.copy()
        b = a
        a *= 2
        a += a[0]
        a[1] *= a[2]
        return a, b, a is b

    def swap(a: Any) -> Any:
        a = a[0].copy()
        first = a[0]
        a[0] = a[1]
        a[1] = first
        return a

    def at(a: Any) -> Any:
        a = a.copy()
        np.add.at(a, [0, 0, 1], 1)
        return a

    def filled(a: Any) -> Any:
        a = a.copy()
        np.fill_diagonal(a, 1)
        np.copyto(a[0], a[1])
        np.put(a, [0, 7], [1, 0])
        np.putmask(a, a == 1, 0)
        a[2].fill(1)
        a[3].sort()
        np.put_along_axis(a, np.array([[0], [1], [2], [0]]), 1, axis=1)
        return a

    def masked_rows(a: Any) -> Any:
        a = a.copy()
        a[a[:, 0] > 0] = 0
        a[a[:, 1] > 0] = a[0]
        return a

    for function in (writes, views, augmented, swap, at, filled, masked_rows):
        yield Case(function.__name__, function, (C,), REALS if function in (augmented, at) else ALL)


CASES = [*_shaping(), *_indexing()]
