"""A library routine as one block: what it accepts, what it costs, its NumPy definition, and how native code calls it.

In: an op's definition. Out: `Routine`, which stands as the op's `lower` rule. Two kinds, and one more on a GPU:

    C call       `native` says which symbols are needed, and writes the call (ops/linear_algebra/gemm.py); a planned one
    is given what
                 the runtime prepared for it when the code was loaded (ops/convolution/last.py, runtime/onednn.py)
    call back    native code takes the GIL and calls the NumPy definition; `why` says why (`explain` repeats it)
    kernels      on a CUDA device, Triton functions that are written by hand (codegen/triton/kernels), each launch of
                 which `kernels` describes (ops/attention/kernels.py); codegen/triton/handwritten.py prints them

A call back is never a graph break: what stands before and after it is still one native program. To declare one, give
the op `lower=call_back("my_op", _eager_my_op, why="...")`: nothing else is needed. Invariants: an operand is read
through its views where `accepts` takes the strides, else from a contiguous copy; a routine writes its result only,
which is contiguous unless `accepts_result` says more, and keeps no address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, TypeAlias

import numpy as np

from compiler_core.dtype import DType
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.linear_algebra.gemm_product import Product
from compiler_core.records import dataclass

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Attrs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Strided:
    """How an array lies in memory. strides: in elements, none negative; 0 repeats one element."""

    dtype: DType
    shape: Shape
    strides: tuple[int, ...]

    @property
    def meta(self) -> TensorMeta:
        return TensorMeta(self.shape, self.dtype)

    @property
    def numel(self) -> int:
        return self.meta.numel

    @property
    def span(self) -> int:
        """Elements from the first to the last, both included."""
        return sum((n - 1) * s for n, s in zip(self.shape, self.strides)) + 1 if self.numel else 0


def contiguous(meta: TensorMeta) -> Strided:
    """Row-major, without gaps."""
    strides, step = [], 1
    for n in reversed(meta.shape):
        strides.append(step)
        step *= n
    return Strided(meta.dtype, meta.shape, tuple(reversed(strides)))


def told_of_all_dims(layout: Strided) -> Strided:
    """The same, dims of one element with the strides that they have in an array without gaps: by these a library knows
    its layouts, also of a batch of one and of an image of one pixel."""
    strides, step = list(layout.strides), 1
    for dim in reversed(range(len(strides))):
        if layout.shape[dim] == 1:
            strides[dim] = step
        step = max(step, strides[dim] * layout.shape[dim])
    return replace(layout, strides=tuple(strides))


def is_contiguous(layout: Strided) -> bool:
    """Whether the elements lie in row-major order without gaps."""
    step = 1
    for n, stride in zip(reversed(layout.shape), reversed(layout.strides)):
        if n != 1 and stride != step:
            return not layout.numel
        step *= n
    return True


@dataclass(frozen=True, slots=True)
class CArray:
    """An array in generated C++: the expression of its address, and its layout."""

    address: str
    layout: Strided


@dataclass(frozen=True, slots=True)
class CCall:
    """One call to be written: attrs of the routine, symbol(name) -> expression of its address (`const void*`).

    plan, scratch: expressions of the address of what was prepared for a planned call, and of the scratch memory that it
    asked for (`char*`, on a cache line). failed: what the entry point returns if the library fails. back: of a call
    that may fail, the lines that call the definition back instead. device: on a CUDA device, what helpers take first;
    product: the address of what was chosen for it (`CudaCall.product`), "" if nothing was.
    """

    operands: tuple[CArray, ...]
    result: CArray
    attrs: Attrs
    symbol: Callable[[str], str]
    plan: str = ""
    scratch: str = ""
    failed: str = ""
    back: tuple[str, ...] = ()
    device: str = ""
    product: str = ""


def no_symbols(operands: tuple[Strided, ...], attrs: Attrs) -> tuple[str, ...]:
    """Of a routine whose helper is all that it calls."""
    return ()


def _always(dtype: DType, attrs: Attrs) -> bool:
    return True


def _nothing(attrs: Attrs) -> int:
    return 0


def _no_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    return 0


def _one_place(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    return 1


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """How generated C++ calls a C library, or C++ of our own.

    symbols(operand layouts, attrs): the names of what is called, as runtime/blas.py knows them. emit(call): the lines.
    helper: C++ that they need, once per source; needs, libm: the helpers of codegen/cpp/helpers.py, and the libm
    functions, that it uses. planned: whether the runtime prepares each call when code is loaded. scratch(operand
    layouts, attrs): bytes of memory that a call which is not planned may write while it runs. places(the same): for how
    many threads that is, of which each writes its part only if it comes. takes(the first
    operand's dtype, attrs): whether there is a C call; if not, the definition is called back. may_fail: whether the C
    call may ask for that too, while it runs.
    """

    symbols: Callable[[tuple[Strided, ...], Attrs], tuple[str, ...]]
    emit: Callable[[CCall], Iterator[str]]
    helper: str = ""
    planned: bool = False
    needs: tuple[str, ...] = ()
    libm: tuple[str, ...] = ()
    scratch: Callable[[tuple[Strided, ...], Attrs], int] = _no_scratch
    places: Callable[[tuple[Strided, ...], Attrs], int] = _one_place
    takes: Callable[[DType, Attrs], bool] = _always
    may_fail: bool = False


def _no_product(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> Product | None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class CudaCall:
    """How generated host code calls a library of CUDA's.

    takes(operand layouts, result layout, attrs): whether it can; if not, the definition is called back. symbols(the
    same): the names of the C functions. emit(call): the lines, which return a status that is not 0 if a call failed.
    helper: C++ that they need, once per source. product(the same as takes): of a call that is cuBLASLt's, what an
    algorithm is chosen for. planned: whether the runtime prepares each call when code is loaded. scratch(attrs): bytes
    of device memory that the call may write while it runs.
    """

    takes: Callable[[tuple[Strided, ...], Strided, Attrs], bool]
    symbols: Callable[[tuple[Strided, ...], Strided, Attrs], tuple[str, ...]]
    emit: Callable[[CCall], Iterator[str]]
    helper: str = ""
    product: Callable[[tuple[Strided, ...], Strided, Attrs], Product | None] = _no_product
    planned: bool = False
    scratch: Callable[[Attrs], int] = _nothing


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of a Triton function that is written by hand.

    arguments: what its pointers are, in order: "o0", "o1" ... the operands, "out" the result, "s0" ... the scratch
    arrays of the call. constants: its other parameters, known when it is compiled. programs: size of the grid. stages:
    how many turns of a loop are in flight. numbers: parameters that it is handed, as i64: launches that differ in these
    alone are one function.
    """

    function: str
    arguments: tuple[str, ...]
    constants: Mapping[str, int | float | str]
    programs: int
    warps: int
    stages: int
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One call: its launches in order, and the arrays that they share, (dtype, number of elements). source: the file
    of its functions, if not the routine's."""

    launches: tuple[KernelLaunch, ...]
    scratch: tuple[tuple[DType, int], ...] = ()
    source: str = ""


def _no_sizes(operands: tuple[Strided, ...], attrs: Attrs) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class TritonKernels:
    """How a CUDA device computes a routine by Triton functions that are written by hand.

    source: their file in codegen/triton/kernels, without ".py"; of several one after the other, with blanks between.
    refuses(operand layouts, attrs): why they do not take a call, "" if they do. plan(operand layouts, attrs): the
    launches of a call that they take. sizes(operand layouts, attrs): the constants of these that may be variables, of
    32 bits, where a graph comes in many sizes.
    """

    source: str
    refuses: Callable[[tuple[Strided, ...], Attrs], str]
    plan: Callable[[tuple[Strided, ...], Attrs], KernelPlan]
    sizes: Callable[[tuple[Strided, ...], Attrs], frozenset[str]] = _no_sizes


def _anywhere(layout: Strided) -> bool:
    return True


def _free(*metas: TensorMeta, **attrs: Any) -> int:
    return 0


def _never(attrs: Attrs) -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """One library routine, whole.

    define(out, *operands, **attrs): writes `out`; arrays lie as accepted. The definition of all other forms.
    native: its C call; None: native code calls `define` back, and `why` says why. native_half: that of 16-bit floats,
    where it is another. accepts, accepts_result(layout):
    whether an operand, or the result, may lie so. reads_result(attrs): whether what stands in the result matters.
    flops(*operand metas, **attrs): floating-point operations. On a CUDA device, kernels: its Triton functions; cuda: a
    library call where they do not take a call; where neither does, `define` is called back, with arrays of that device.
    """

    name: str
    define: Callable[..., None]
    why: str = ""
    native: Native | None = None
    accepts: Callable[[Strided], bool] = _anywhere
    accepts_result: Callable[[Strided], bool] = is_contiguous
    reads_result: Callable[[Attrs], bool] = _never
    flops: Callable[..., int] = _free
    cuda: CudaCall | None = None
    kernels: TritonKernels | None = None
    native_half: Native | None = None

    def native_for(self, dtype: DType, attrs: Attrs) -> Native | None:
        """The C call, if there is one for a first operand of `dtype`."""
        is_half = self.native_half is not None and dtype.kind == "f" and dtype.itemsize == 2
        native = self.native_half if is_half else self.native
        return native if native is not None and native.takes(dtype, attrs) else None


ROUTINES: dict[str, Routine] = {}  # by name: what texts and artefacts refer to


def register_routine(routine: Routine) -> Routine:
    """Add `routine` to the table."""
    ROUTINES[routine.name] = routine
    return routine


def call_back(
    name: str,
    eager: Callable[..., Array],
    why: str,
    *,
    flops: Callable[..., int] = _free,
    native: Native | None = None,
    accepts: Callable[[Strided], bool] = _anywhere,
) -> Routine:
    """The routine that calls the definition `eager(xp, *arrays, **attrs)` of op `name` back where `native` does not."""

    def define(out: Array, *operands: Array, **attrs: Any) -> None:
        with np.errstate(all="ignore"):
            out[...] = eager(np, *operands, **attrs)

    return register_routine(Routine(name, define, why, native, accepts, flops=flops))
