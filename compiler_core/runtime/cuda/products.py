"""Products by cuBLASLt: their descriptors, and which of its algorithms computes each.

In: `Product`s (ops/linear_algebra/gemm_product.py). Out: `make_table`: the rows that generated code reads (`dc_product`
of codegen/cuda/launcher.py), two a product, the second for f32 in tf32; and `choose`: the fastest algorithm of each, as
measured on the current device.

    algorithm   64 bytes of cuBLASLt's, which mean the same to the same version of it on the same kind of device:
                `place` names both, and a choice that was made elsewhere is not used. The first that cuBLASLt names is
                taken where nothing was measured, and where none of the others is 2 % faster
    measured    on scratch memory of the product's sizes, filled with normal numbers; measure.py
    class       products whose sizes lie between the same powers of two. Of graphs that come in many sizes one of each
                class is measured; the others take its algorithm where cuBLASLt names it for them, too
Rows belong to a thread, since a bias's address is written into them: they are made once a thread, product and device,
and kept. A row of nulls: cuBLASLt has no algorithm, and cuBLAS computes it (with a bias: said once).
Source: cuBLASLt's manual (numbers of attributes, sizes of what it fills in).
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from compiler_core import cuda, log
from compiler_core.dtype import bfloat16
from compiler_core.errors import DeviceError
from compiler_core.ops.linear_algebra.gemm_product import Product
from compiler_core.records import dataclass
from compiler_core.runtime.cuda import context, driver, measure
from compiler_core.runtime.cuda.entry import WORKSPACE_NBYTES, CudaEntry

Algorithm = tuple[int, ...]  # eight words of 64 bits

MOST = 8  # algorithms asked for
GAIN = 0.98  # of the first one's time, that another must stay below
LONGEST_S = 3.0  # of measuring, for one program
_F32, TF32 = 68, 77  # cublasComputeType_t
_DTYPES = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 14: bfloat16.numpy}
_POINTER_MODE, _TRANSA, _TRANSB, _EPILOGUE, BIAS_POINTER = 2, 3, 4, 7, 8  # attributes of a product
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # of a matrix
_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # of a preference
_IN_COMPUTE_TYPE, _ANY = 2, 7  # how parts of a sum are added up: not as 16-bit floats
_WITH_BIAS = 4
_ALIGNED = 16  # bytes on which all matrices start
_WITH_TF32 = ", tf32"  # behind a place: products of f32 were measured in tf32


class Row(ctypes.Structure):
    """`dc_product`."""

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in ("description", "a", "b", "d")),
        ("algorithm", ctypes.c_uint64 * 8),
    ]


class _Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_: ClassVar = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("nbytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class _Threads(threading.local):
    """This thread's rows, by product, compute type, choice and device."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Product, int, Algorithm | None, int], Row] = {}


_threads = _Threads()


def place(device: int) -> str:
    """What a choice depends on besides the product: the kind of device, and the version of cuBLASLt."""
    name = context.cupy().cuda.runtime.getDeviceProperties(device)["name"].decode()
    version = driver.function("cublasLtGetVersion")
    version.restype = ctypes.c_size_t
    return f"{name}, cuBLASLt {version()}"


def make_table(entry: CudaEntry, device: int) -> ctypes.Array[Row]:
    """This thread's rows for a program on the current device, whose number is `device`."""
    at, _, tf32 = entry.measured_on.partition(_WITH_TF32)
    is_known = bool(at) and at == place(device)
    choices = entry.choices if is_known else (None,) * len(entry.products)
    measured = TF32 if tf32 else _F32
    rows = [
        _row(product, compute, choice if product.kind or compute == measured else None, device)
        for product, choice in zip(entry.products, choices, strict=True)
        for compute in (_F32, TF32)
    ]
    return (Row * len(rows))(*rows)


def row_of(product: Product, device: int, compute: int = _F32) -> Row:
    """This thread's row for eager code, by the first algorithm that sums in f32; one of nulls where there is none."""
    key = (product, compute, None, device)
    if key not in _threads.rows:
        row = _describe(product, compute)
        named = _algorithms(row, context.blas_handle(device))
        row.algorithm[:] = named[0] if named else (0,) * 8
        _threads.rows[key] = row if named else Row()
    return _threads.rows[key]


def _row(product: Product, compute: int, choice: Algorithm | None, device: int) -> Row:
    compute = compute if product.kind == 0 else _F32
    key = (product, compute, choice, device)
    if key not in _threads.rows:
        row, handle = _describe(product, compute), context.blas_handle(device)
        named = [] if choice else _algorithms(row, handle)
        if product.bias and not (choice or named):  # cuBLAS has no bias: rather sums of 16-bit parts than none
            named = _algorithms(row, handle, _ANY)
        algorithm = choice or next(iter(named), None)
        if product.bias and not algorithm:
            log.warn_once(
                f"bias {product}", f"cuBLASLt has no algorithm for {product}: cuBLAS adds it onto copies of the bias"
            )
        _threads.rows[key] = row if algorithm else Row()
        if algorithm:
            row.algorithm[:] = algorithm
    return _threads.rows[key]


# -- descriptors


def _describe(product: Product, compute: int) -> Row:
    """A row without an algorithm."""
    p = product
    description = ctypes.c_void_p()
    driver.call("cublasLtMatmulDescCreate", ctypes.byref(description), compute, 0)  # alpha and beta are f32
    attributes = {_TRANSA: p.ta, _TRANSB: p.tb, _POINTER_MODE: int(p.scaled)}
    for attribute, value in (attributes | ({_EPILOGUE: _WITH_BIAS} if p.bias else {})).items():
        _set("cublasLtMatmulDescSetAttribute", description, attribute, ctypes.c_int32(value))
    if p.bias:  # what is asked for algorithms needs to know how it is aligned
        _set("cublasLtMatmulDescSetAttribute", description, BIAS_POINTER, ctypes.c_void_p(_ALIGNED))
    a = _matrix(p.kind, *((p.k, p.m) if p.ta else (p.m, p.k)), p.lda, p.batch, p.stride_a)
    b = _matrix(p.kind, *((p.n, p.k) if p.tb else (p.k, p.n)), p.ldb, p.batch, p.stride_b)
    d = _matrix(p.result, p.m, p.n, p.ldd, p.batch, p.stride_d)
    return Row(description, a, b, d)


def _matrix(kind: int, rows: int, columns: int, leading: int, batch: int, stride: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(leading))
    driver.call("cublasLtMatrixLayoutCreate", ctypes.byref(made), kind, *sizes)
    if batch > 1:
        _set("cublasLtMatrixLayoutSetAttribute", made, _BATCH_COUNT, ctypes.c_int32(batch))
        _set("cublasLtMatrixLayoutSetAttribute", made, _BATCH_STRIDE, ctypes.c_int64(stride))
    return made


def _set(function: str, what: ctypes.c_void_p, attribute: int, value: Any) -> None:
    driver.call(function, what, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))


def _algorithms(row: Row, handle: int, reductions: int = _IN_COMPUTE_TYPE) -> list[Algorithm]:
    """Those that cuBLASLt names, best first, as it thinks; none where it has none. handle: cuBLAS's or cuBLASLt's."""
    preference = ctypes.c_void_p()
    driver.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
    set_preference = "cublasLtMatmulPreferenceSetAttribute"
    _set(set_preference, preference, _WORKSPACE, ctypes.c_uint64(WORKSPACE_NBYTES))
    _set(set_preference, preference, _REDUCTIONS, ctypes.c_uint32(reductions))
    for attribute in _ALIGNMENTS:
        _set(set_preference, preference, attribute, ctypes.c_uint32(_ALIGNED))
    found, count = (_Found * MOST)(), ctypes.c_int()
    at = [ctypes.c_void_p(pointer) for pointer in (handle, row.description, row.a, row.b, row.d, row.d)]
    ask = driver.function("cublasLtMatmulAlgoGetHeuristic")
    code = ask(*at, preference, MOST, ctypes.byref(found), ctypes.byref(count))
    driver.call("cublasLtMatmulPreferenceDestroy", preference)
    return [tuple(one.algorithm) for one in found[: count.value] if not one.status] if not code else []


# -- measuring


@dataclass
class Choices:
    """What was measured. place: where; algorithms: of each product whose first one is not the fastest; said: each
    choice and why, a line each.
    """

    place: str = ""
    algorithms: dict[Product, Algorithm] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


Classes = dict[tuple[Product, int], Algorithm | None]  # what was chosen for one of a class: None: the first
_classes: defaultdict[str, Classes] = defaultdict(dict)  # by place


def _class_of(product: Product) -> Product:
    m, n, k = (1 << (size - 1).bit_length() for size in (product.m, product.n, product.k))
    return replace(
        product, m=m, n=n, k=k, lda=0, ldb=0, ldd=0, batch=min(product.batch, 2), stride_a=0, stride_b=0, stride_d=0
    )


def choose(products: Iterable[Product], compute: int, handle: int, classes: Classes | None = None) -> Choices:
    """The fastest algorithm of each on the current device, where it is not the first. compute: how f32 is multiplied.

    Products for which there is no memory, or no time any more, are left out. classes: what was chosen before, for a
    class each; it is added to. None: each product is measured.
    """
    chosen = Choices()
    say = chosen.said.append
    began_s = time.monotonic()
    for product in products:
        used = compute if product.kind == 0 else _F32
        key = (_class_of(product), used)
        if classes is not None and key in classes:
            known = classes[key]
            if known is not None and known in _algorithms(_describe(product, used), handle):
                chosen.algorithms[product] = known
            say(
                f"{product}: as another of its class, {'the first' if product not in chosen.algorithms else 'measured'}"
            )
            continue
        if time.monotonic() - began_s > LONGEST_S:
            say(f"{product}: not measured, for {LONGEST_S:g} s are over")
            continue
        try:
            times_us = _measured(product, used, handle)
        except (MemoryError, DeviceError) as error:
            say(f"{product}: not measured: {error}")
            continue
        best = min(times_us, key=times_us.__getitem__, default=())
        first = next(iter(times_us), ())
        if best and times_us[best] < GAIN * times_us[first]:
            chosen.algorithms[product] = best
        if classes is not None:
            classes[key] = chosen.algorithms.get(product)
        if best:
            number = [*times_us].index(best)
            say(f"{product}: algorithm {number}, {times_us[best]:.1f} us; the first {times_us[first]:.1f} us")
    return chosen


def _measured(product: Product, compute: int, handle: int) -> dict[Algorithm, float]:
    """Microseconds of one product by each algorithm."""
    xp, p = context.cupy(), product
    row = _describe(p, compute)
    algorithms = _algorithms(row, handle)
    if len(algorithms) < 2:
        return {}
    stored = [
        ((p.lda * (p.m if p.ta else p.k)) + p.stride_a * (p.batch - 1), p.kind),
        ((p.ldb * (p.k if p.tb else p.n)) + p.stride_b * (p.batch - 1), p.kind),
        (p.ldd * p.n + p.stride_d * (p.batch - 1), p.result),
        (p.m, p.result),
    ]
    a, b, d, bias = (measure.normal_numbers(count, _DTYPES[kind]) for count, kind in stored)
    workspace, factors = xp.empty(WORKSPACE_NBYTES, np.uint8), xp.asarray(np.array([1, 0], np.float32))
    if p.bias:
        _set("cublasLtMatmulDescSetAttribute", ctypes.c_void_p(row.description), BIAS_POINTER, _at(bias))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    alpha, beta = (_at(factors), _at(factors[1:])) if p.scaled else (ctypes.byref(one), ctypes.byref(zero))
    descriptors = [ctypes.c_void_p(pointer) for pointer in (row.description, row.a, row.b, row.d)]
    description, a_is, b_is, d_is = descriptors
    multiply = driver.function("cublasLtMatmul")
    stream = ctypes.c_void_p(xp.cuda.get_current_stream().ptr)
    at, size = ctypes.c_void_p(handle), ctypes.c_size_t(WORKSPACE_NBYTES)

    def run(algorithm: Algorithm) -> int:
        words = (ctypes.c_uint64 * 8)(*algorithm)
        matrices = (alpha, _at(a), a_is, _at(b), b_is, beta, _at(d), d_is, _at(d), d_is)
        return int(multiply(at, description, *matrices, words, _at(workspace), size, stream))

    able = [algorithm for algorithm in algorithms if run(algorithm) == 0]
    return dict(zip(able, measure.shortest_each([partial(run, algorithm) for algorithm in able]), strict=True))


def _at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data.ptr)


def choose_on(products: Sequence[Product], number: int | None, *, by_class: bool = False) -> Choices:
    """`choose` on that device (None: the current one); nothing where there is none."""
    if not products or cuda.why_not():
        return Choices()
    with context.on(number):
        tf32, handle = context.tf32_is_permitted(), ctypes.c_void_p()
        driver.call("cublasLtCreate", ctypes.byref(handle))
        try:
            at = place(cuda.current()) + (_WITH_TF32 if tf32 else "")
            chosen = choose(products, TF32 if tf32 else _F32, handle.value or 0, _classes[at] if by_class else None)
        finally:
            driver.call("cublasLtDestroy", handle)
        return replace(chosen, place=at)
