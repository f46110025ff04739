"""Eager definitions of composites that work row by row: loops that the compiler makes of their compositions.

In: a Composite that says it works by rows (ops/whole.py). Out: its definition for arrays of f32 or f64, forward and
backward; its kernels, for definitions that use them (rules.py).
For each set of parameters that are there it is a library of its own, made at its first call on a machine; later it
comes from the artefact cache, with what the forward keeps and the backward reads (`told`). See pointwise.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from compiler_core.eager.native import LARGE, Kernel, RowKernels, kernels, loaded, text_of
from compiler_core.eager.operands import Grads, dense_or_none
from compiler_core.eager.pointwise import identity, told
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Backward, Composite, Forward, Made, define


class RowFunctions:
    """The kernels: functions of arrays, how many last dims a row has, and numbers, that say whether they computed.

    forward: x, *parameters, out, *kept. backward: g, x or out, *parameters, *kept, *cotangents. None stands for what is
    not there, or not wanted. kept: a number an array; reads: operands by number.
    """

    def __init__(self, library: RowKernels, composite: Composite) -> None:
        types = (ctypes.py_object, ctypes.c_int64, *(ctypes.c_double,) * len(composite.numbers))
        self.forms = library.forms(composite.name, *types)  # a status that is not 0: it did not compute
        self.forward = _caller(self.forms)
        self.backward = _caller(library.forms(f"{composite.name}_backward", *types))
        said = library.forms(f"{composite.name}_told", ctypes.py_object)[0](())
        self.kept, self.reads = range(said >> 32), frozenset(k for k in range(32) if said >> k & 1)


def _caller(forms: tuple[Kernel, Kernel]) -> Callable[..., bool]:
    quick, calls = forms

    def call(arrays: tuple[Any, ...], dims: int, *numbers: float) -> bool:
        """Whether the kernel took the arrays, which are made dense if it wants that."""
        form = calls if arrays[0].size > LARGE else quick
        status = form(arrays, dims, *numbers)
        return not (form(tuple(map(dense_or_none, arrays)), dims, *numbers) if status < 0 else status)

    return call


_Known: TypeAlias = dict[tuple[bool, ...], RowFunctions | None]  # by which parameters there are


@cache
def row_functions(composite: Composite, present: tuple[bool, ...]) -> RowFunctions | None:
    """Those of a composite with these parameters; None where there is no compiler."""

    def source() -> str:
        from compiler_core.codegen.rows import cpp_text

        return cpp_text(told(composite, present), text_of("arrays.h"))

    parts = {**identity(composite), "arrays": text_of("arrays.h"), "present": repr(present)}
    library = loaded(RowKernels, composite.name, source, f"the composite {composite.name}", parts)
    return None if library is None else RowFunctions(library, composite)


def define_rows(composite: Composite) -> None:
    """Give it the definition that is made of its composition, if there is a compiler."""
    if kernels() is not None:
        known: _Known = {}
        forward, backward = _forward(composite, known), _backward(composite, known)
        reads_out, prepare = composite.gradient is not None, _prepare(composite, known, forward)
        define(composite.name, forward, backward, reads=frozenset(), reads_out=reads_out, prepare=prepare)


def _forward(composite: Composite, known: _Known) -> Forward:
    names, place = composite.numbers, composite.place

    def functions(present: tuple[bool, ...]) -> RowFunctions | None:
        known[present] = found = row_functions(composite, present)
        if found is not None and composite.gradient is None:
            composite.reads = found.reads | (composite.reads or frozenset())
        return found

    def made(x: Array, *parameters: Array | None, **attrs: Any) -> Made:
        present = tuple([p is not None for p in parameters]) if parameters else ()
        of, given, dims = known.get(present) or functions(present), x, 1
        if place == "dims":
            dims = attrs["dims"]
        elif place and attrs["dim"] != x.ndim - 1 and x.ndim:
            given = x.swapaxes(attrs["dim"], -1)
        if of is None:
            return None
        numbers = [attrs[name] for name in names] if names else ()
        for number in numbers:
            if not isinstance(number, (float, int)):
                return None  # of numbers that are not Python's the composition knows what they mean
        out = np.empty(given.shape, x.dtype)
        kept = tuple([np.empty(given.shape[:-dims], x.dtype) for _ in of.kept]) if of.kept else ()
        if not of.forward((given, *parameters, out, *kept), dims, *numbers):
            return None
        return (out if given is x else np.ascontiguousarray(out.swapaxes(attrs["dim"], -1))), kept

    return made


def _prepare(composite: Composite, known: _Known, made: Forward) -> Callable[..., Callable[..., Made] | None]:
    names, place = composite.numbers, composite.place

    def prepare(x: Array, *parameters: Array | None, **attrs: Any) -> Callable[..., Made] | None:
        of, numbers = known.get(tuple([p is not None for p in parameters])), [attrs[name] for name in names]
        dims = attrs["dims"] if place == "dims" else 1
        is_turned = place == "dim" and attrs["dim"] != x.ndim - 1
        if of is None or is_turned or not x.ndim or not all(isinstance(n, (float, int)) for n in numbers):
            return None
        form, shape, short, dtype, empty = of.forms[x.size > LARGE], x.shape, x.shape[:-dims], x.dtype, np.empty
        count = len(of.kept)

        def run(*operands: Array | None) -> Made:
            out = empty(shape, dtype)
            kept = () if not count else tuple([empty(short, dtype) for _ in range(count)])
            return made(*operands, **attrs) if form((*operands, out, *kept), dims, *numbers) else (out, kept)

        return run

    return prepare


def _there(parameter: Array | None) -> Array | None:
    """An array of its shape for one that was not kept (hooks pack what is read alone): the kernel takes all of them."""
    return (
        parameter if parameter is None or type(parameter) is np.ndarray else np.empty(parameter.shape, parameter.dtype)
    )


def _backward(composite: Composite, known: _Known) -> Backward:
    names, place, from_result = composite.numbers, composite.place, composite.gradient is not None

    def made(
        needs: Sequence[bool], g: Array, out: Array, kept: Any, x: Array, *parameters: Array | None, **attrs: Any
    ) -> Grads | None:
        of = known[tuple([p is not None for p in parameters]) if parameters else ()]
        read = out if from_result else x
        is_turned = place == "dim" and attrs["dim"] != x.ndim - 1
        if is_turned:
            g, read = g.swapaxes(attrs["dim"], -1), read.swapaxes(attrs["dim"], -1)
        dx = np.empty(g.shape, g.dtype) if needs[0] else None
        more: list[Array | None] = []
        for p, need in zip(parameters, needs[1:]) if parameters else ():
            more.append(np.empty(p.shape, p.dtype) if need and p is not None else None)
        numbers, dims = [attrs[name] for name in names], attrs["dims"] if place == "dims" else 1
        parameters = tuple([_there(p) for p in parameters]) if parameters else ()
        if of is None or not of.backward((g, read, *parameters, *kept, dx, *more), dims, *numbers):
            return None
        return (dx.swapaxes(attrs["dim"], -1) if is_turned and dx is not None else dx, *more)

    return made
