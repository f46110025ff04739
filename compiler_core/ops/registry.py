"""What an op is, the table of all ops, and `bind`: the one place through which every op application passes.

In: one `Op` block per primitive, registered at import. Out: `bind(op, *values, **attrs)`.

A *value* is a NumPy (CuPy) array, a graph node under construction, or a `Tensor`. Every primitive takes operands whose
shapes and dtypes already fit (no broadcasting, no promotion: `composites/` and `Tensor` insert `expand` and `cast`)
and has exactly one output. `bind` asks the values who interprets them:
  a value's class with a `__bind__` does (a Tensor before a graph node); plain arrays run `op.eager`.
An op with no value operand asks the current trace, if there is one (the one ambient thing in the compiler).
The method is JAX's `bind` (see JAX's autodidax).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from compiler_core import cuda
from compiler_core.cuda import lone
from compiler_core.dtype import DType, of
from compiler_core.errors import DTypeError, GraphError, OpDefinitionError
from compiler_core.late import Late
from compiler_core.meta import TensorMeta
from compiler_core.ops.aliasing import Alias
from compiler_core.ops.batching.value import Batched
from compiler_core.ops.meta_value import MetaValue, infer_value
from compiler_core.ops.on_device import run_on_device
from compiler_core.ops.rules import (
    ALIKE,
    Composed,
    Decomposed,
    EngineRule,
    Expansion,
    LowerRule,
    VmapRule,
    is_elementwise,
)
from compiler_core.records import dataclass
from compiler_core.symbolic.size import symbols_in

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]  # an array of the device's array module
Value: TypeAlias = Any  # Array | graph.Node | Tensor: rules are generic over all three
Attrs: TypeAlias = dict[str, Any]  # hashable: int, float, bool, str, DType, tuples of these


@dataclass(frozen=True, slots=True)
class Sample:
    """Example operands for the generated conformance tests.

    shapes: one shape an operand. attrs: the op's attributes. low, high: the range values are drawn from.
    dtypes: the common dtypes to try; empty: all that `Op.dtypes` allows. make: builds the operands where a range will
    not do (receives a numpy Generator and the dtype).
    """

    shapes: tuple[tuple[int, ...], ...]
    attrs: Attrs = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0
    dtypes: tuple[DType, ...] = ()
    make: Callable[[np.random.Generator, DType], list[Array]] | None = None


@dataclass(frozen=True, slots=True)
class NotDifferentiable:
    """In place of a vjp: the op's gradient is zero or undefined, and why."""

    why: str


class PerOperand:
    """A vjp whose cotangents do not share work: rules[k](g, out, *operands, **attrs) is that of operand k.

    Who needs only some of them asks only for those.
    """

    def __init__(self, *rules: Callable[..., Value | None]) -> None:
        self.rules = rules

    def __call__(self, g: Value, out: Value, *operands: Value, **attrs: Any) -> tuple[Value | None, ...]:
        return tuple([rule(g, out, *operands, **attrs) for rule in self.rules])


VjpRule: TypeAlias = Callable[..., tuple[Value | None, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One primitive, whole.

    infer(*metas, **attrs) -> TensorMeta: raises ShapeError or DTypeError on operands that do not fit.
    eager(xp, *arrays, **attrs) -> array: with `xp` NumPy or CuPy; the definition that all else is held to.
    vjp(g, out, *operands, **attrs) -> one cotangent (or None) per operand; uses only other ops, never array data.
    lower: one of ops/rules.py.
    samples: operands for conformance tests, never empty.
    engines: CORE, what it decomposes to, or why neither: see rules.py. Of what is expanded it is that.
    vmap: how it goes over a batch, see rules.py; None: example by example. Of elementwise ops it is ALIKE.
    dtypes: the operand dtypes it takes.
    random: the result depends on a generator key. alias: how the result shows operand 0's memory, where it does.
    shares: `eager` may give operand 0's memory back, also where the result is no view: see tensor/memory/lent.py.
    follows: the result lies in memory as the operands do: see tensor/memory/layout.py. Of elementwise ops that is so.
    commutative: (a, b) and (b, a) give the same. cheap: computing an element again costs less than keeping it.
    work: of others: how many bytes could be moved while one f32 element is computed; 0: far too many.
    nests: a reduction; over some dims and then over others it is that over all of them, and over no dim the operand.
    raises: computed in a loop, it fails for some values of its operands.
    only_for_autograd: an identity once gradients are made.
    host: why the CPU computes it for tensors of CUDA devices too; empty: CuPy does.
    effect: other ranks take part in it: a call is neither dropped where nobody reads it, nor merged with an equal one,
        nor computed when compiling, and calls keep their order.
    remakes_out: who changed its result in place may ask for gradients: torch's rule does not read the result.
    """

    name: str
    infer: Callable[..., TensorMeta]
    eager: Callable[..., Array]
    vjp: VjpRule | NotDifferentiable
    lower: LowerRule
    samples: tuple[Sample, ...]
    dtypes: tuple[DType, ...]
    random: bool = False
    alias: Alias | None = None
    shares: bool = False
    follows: bool = False
    commutative: bool = False
    cheap: bool = False
    work: int = 0
    nests: bool = False
    raises: bool = False
    only_for_autograd: bool = False
    effect: bool = False
    remakes_out: bool = False
    host: str = ""
    vmap: VmapRule | None = None
    engines: EngineRule | None = None
    doc: str = ""

    def __repr__(self) -> str:
        return f"<op {self.name}>"


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add `op` to the table. Raises OpDefinitionError for a second op of that name or a missing rule."""
    if op.name in OPS:
        raise OpDefinitionError(f"op {op.name!r} is registered twice")
    if op.engines is None and isinstance(op.lower, Expansion | Composed):
        op = replace(op, engines=Decomposed(op.lower.expand))
    for rule in ("infer", "eager", "vjp", "lower", "samples", "dtypes", "engines"):
        if not getattr(op, rule):
            raise OpDefinitionError(
                f"op {op.name!r} has no {rule} rule", remedy="give every rule of compiler_core/ops/registry.py:Op"
            )
    follows = op.follows or (is_elementwise(op.lower) and op.alias is None)
    vmap = op.vmap or (ALIKE if is_elementwise(op.lower) else None)
    op = replace(op, shares=op.shares or op.alias is not None, follows=follows, vmap=vmap)
    OPS[op.name] = op
    return op


@runtime_checkable
class Trace(Protocol):
    """Whoever records ops: a graph builder."""

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value: ...


_current_trace: ContextVar[Trace | None] = ContextVar("current_trace", default=None)


current_trace = _current_trace.get  # the trace that records right now in this thread, or None; no Python frame


@contextmanager
def use_trace(trace: Trace | None) -> Iterator[None]:
    """Make `trace` the current one inside the block (None: none)."""
    token = _current_trace.set(trace)
    try:
        yield
    finally:
        _current_trace.reset(token)


_CACHE_LIMIT = 1 << 16  # entries of each cache below; programs seldom have a thousand shapes
_metas: dict[tuple[Any, Any], TensorMeta] = {}
_checked: dict[tuple[Any, ...], bool] = {}  # what was checked -> whether an operand is on a CUDA device


def meta_of(value: Value) -> TensorMeta:
    """Shape and dtype of any value."""
    key = (value.shape, value.dtype)
    meta = _metas.get(key)
    if meta is None:
        meta = TensorMeta(tuple(value.shape), of(value.dtype))
        if symbols_in(meta.shape):
            return meta  # symbols know of their capture, which would be kept alive
        if len(_metas) >= _CACHE_LIMIT:
            _metas.clear()
        _metas[key] = meta
    return meta


class _Told(threading.local):
    told: list[Any] | None = None


class Telling:
    """Who learns what a call comes to (remembered.py): what a class of values computed is told to its thread's list.

    count: how many learn, in all threads; nobody is told otherwise.
    """

    count = 0
    here = _Told()

    @classmethod
    def tell(cls, *what: Any) -> None:
        """Put (whether it is an op, op or composite, operands, attributes, result) on the list."""
        if cls.here.told is not None:
            cls.here.told.append(what)

    @classmethod
    @contextmanager
    def unheard(cls) -> Iterator[None]:
        """A block in which what this thread computes is no part of a call: proofs, looks at rules."""
        before, cls.here.told = cls.here.told, None
        try:
            yield
        finally:
            cls.here.told = before


_priorities: dict[type, float] = {np.ndarray: -1}  # of classes that were met as operands; -1: has no `__bind__`


def bind(op: Op, *values: Value, **attrs: Any) -> Value:
    """Apply `op`: run it on arrays, record it on graph nodes, or hand it to Tensor. Returns a value of that kind.

    The class with the highest `__bind_priority__` interprets it.
    """
    best, highest = np.ndarray, -1.0
    for value in values:
        cls = type(value)
        if cls is best or cls is lone.array:
            continue
        priority = _priorities.get(cls)
        if priority is None:
            priority = _priorities[cls] = cls.__bind_priority__ if hasattr(cls, "__bind__") else -1
            if hasattr(cls, "__torch_function__") and priority < 0:
                raise not_a_tensor(cls)
        if priority > highest:
            best, highest = cls, priority
    if highest >= 0:
        made = best.__bind__(op, values, attrs)  # type: ignore[attr-defined]
        if Telling.count:
            Telling.tell(True, op, values, attrs, made)
        return made
    trace = current_trace()
    if trace is not None:
        return trace.bind(op, values, attrs)
    return run_eager(op, values, attrs)


def takes(op: Op) -> int | None:
    """How many operands an op takes, if it has no attributes; None: it has some, or it takes any number."""
    counts = {len(sample.shapes) for sample in op.samples}
    if len(counts) > 1 or any(sample.attrs for sample in op.samples):
        return None
    if counts != {0}:
        return counts.pop()
    metas = inspect.signature(op.infer).parameters.values()  # its samples are made otherwise
    return None if any(p.kind is p.VAR_POSITIONAL for p in metas) else sum(p.kind is not p.VAR_KEYWORD for p in metas)


def applied(op: Op) -> Callable[..., Value]:
    """The op as a function: of its operands in order, and its attributes by name."""

    def of_one(x: Value) -> Value:
        return bind(op, x)

    def of_two(a: Value, b: Value) -> Value:
        return bind(op, a, b)

    def of_any(*values: Value, **attrs: Any) -> Value:
        return bind(op, *values, **attrs)

    forms: dict[int | None, Callable[..., Value]] = {1: of_one, 2: of_two}
    function = forms.get(takes(op), of_any)
    function.__name__ = function.__qualname__ = op.name
    return function


TURN_ON: Late[Callable[[], None]] = Late("overrides: turn on")


def not_a_tensor(cls: type) -> DTypeError:
    """The error of an operand whose class has a `__torch_function__` that nobody has asked: it came unexpected."""
    TURN_ON.get()()
    _priorities.pop(cls, None)
    return DTypeError(
        f"an operand must be a Tensor, not a {cls.__name__}",
        remedy="the first of all calls with an object that has __torch_function__ must be of a function or of an "
        "operator, not of another tensor's method: has_torch_function((it,)) is one",
    )


def run_eager(op: Op, arrays: Sequence[Array], attrs: Attrs) -> Array:
    """Run `op` on arrays after checking them with `infer` (once for each combination of metas and attributes)."""
    key: tuple[Any, ...]
    if len(arrays) == 1:
        array = arrays[0]
        key = (op, type(array), array.shape, array.dtype, *attrs.items())
    elif len(arrays) == 2:
        a, b = arrays
        key = (op, type(a), a.shape, a.dtype, type(b), b.shape, b.dtype)
        if attrs:
            key = (*key, *attrs.items())
    else:
        key = (op, *[(type(a), a.shape, a.dtype) for a in arrays], *attrs.items())
    on_device = _checked.get(key)
    if on_device is None:
        operands: Sequence[Any] = arrays
        if any(type(a) is Batched for a in operands):
            return Batched.__bind__(op, tuple(operands), attrs)  # type: ignore[no-any-return]
        if any(type(a) is MetaValue for a in operands):
            return infer_value(op, operands, attrs)  # type: ignore[return-value]
        _check(op, arrays, attrs)
        if len(_checked) >= _CACHE_LIMIT:
            _checked.clear()
        on_device = _checked[key] = any(map(cuda.is_array, arrays))
    return run_on_device(op, arrays, attrs) if on_device else op.eager(np, *arrays, **attrs)


RUN = run_eager  # others are in its place while somebody looks (tensor/observed.py)


def _check(op: Op, arrays: Sequence[Array], attrs: Attrs) -> None:
    """Raises GraphError for a value that is no array, and what `infer` raises."""
    value: Any
    for value in arrays:
        if not (isinstance(value, (np.ndarray, np.generic)) or cuda.is_array(value)):
            raise GraphError(
                f"a tensor made while tracing ({value!r}) was used after the trace ended",
                remedy="return it from the compiled function instead of keeping it in a global or an attribute",
            )
    op.infer(*map(meta_of, arrays), **attrs)
