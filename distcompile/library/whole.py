"""Operators whose kernels no graph can hold: run whole, as one op of the graph, or between two graphs.

In: an operator, its arguments under a trace. Out: what its fake tells, recorded as one call (program_operator), which
runs the kernel when the graph runs. Who decides: a kernel is captured until a graph ends in it; from then on it is run
whole. `Whole.of` says how: in the graph if its fake tells the results; if there is none, or if the call does what a
graph cannot say (sizes that data decides, results with gaps, none at all), between graphs.
What a schema says is written is given to the kernel as a copy, and written where the graph says.
Invariant: whatever way an operator runs, its kernel runs once a call, on the values of that call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from compiler_core.capture import policy
from compiler_core.device import Device
from compiler_core.dtype import DType, by_name
from compiler_core.errors import GraphBreak
from compiler_core.location import user_location
from compiler_core.meta import TensorMeta
from compiler_core.ops import program_operator
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.registry import Array, current_trace, meta_of, use_trace
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.library.kernels import checked, count_writes, flattened, kernel_for, tensors_in, unflattened
from distcompile.library.operators import FAKE, OpOverload, find


class Way(Enum):
    """How a kernel runs under capture."""

    ENTERED = "its calls are the graph's"
    IN_GRAPH = "as one op"
    BETWEEN = "between two graphs"


_ways: dict[int, tuple[Callable[..., Any], Way]] = {}  # by id of the kernel


def way_of(kernel: Callable[..., Any]) -> Way:
    """What is known of a kernel by now."""
    return _ways.get(id(kernel), (kernel, Way.ENTERED))[1]


def is_between(op: OpOverload, inputs: list[Any], named: dict[str, Any]) -> bool:
    """Whether a call is made between graphs."""
    return current_trace() is not None and _is_own(op) and way_of(kernel_for(op, inputs, named)) is Way.BETWEEN


def _is_own(op: OpOverload) -> bool:
    """Whether nothing of the kernel is seen outside but its results: there is a gradient of the operator's, or none."""
    return op.registered.is_custom or op.registered.gradient is not None


def note_end(op: OpOverload, inputs: list[Any], named: dict[str, Any]) -> bool:
    """A graph has ended in a call of the operator. Whether the next attempt makes the call otherwise."""
    if not _is_own(op):
        return False
    kernel = kernel_for(op, inputs, named)
    before = way_of(kernel)
    if before is Way.BETWEEN:
        return False
    is_told = op.registered.kernels.get(FAKE) is not None or not op._schema.returns
    in_graph = before is Way.ENTERED and is_told
    _ways[id(kernel)] = kernel, Way.IN_GRAPH if in_graph else Way.BETWEEN
    return True


def is_in_graph(kernel: Callable[..., Any]) -> bool:
    """Whether what is traced holds a call of it as one op."""
    return current_trace() is not None and way_of(kernel) is Way.IN_GRAPH


# ---- in a graph


def record(op: OpOverload, inputs: list[Any], named: dict[str, Any], has_fake: bool) -> Any:
    """The results of a call, as one op of what is traced. Raises GraphBreak where a graph cannot say them."""
    if op._schema.returns and not has_fake:
        raise GraphBreak(f"{op.name()} has no fake", where=user_location())
    text, tensors = written(inputs, named)
    changed = mutated(op, inputs, named)
    told, lengths, several = _told(op, inputs, named)
    metas = [*map(meta_of, changed), *told]
    if not metas:
        raise GraphBreak(f"{op.name()} gives no result", where=user_location())
    dense = [one.is_contiguous() for one in tensors]
    values = program_operator.applied(op.name(), text, tensors, dense, metas)
    handles = [one if isinstance(one, Tensor) else Tensor._wrap(one) for one in values]
    for tensor, value in zip(changed, handles):
        tensor.copy_(value)
    made = handles[len(changed) :]
    if not lengths:
        return None
    found = unflattened(made, lengths)
    return tuple(found) if several else found[0]


def mutated(op: OpOverload, inputs: list[Any], named: dict[str, Any]) -> list[Tensor]:
    """The Tensors that the schema says are written."""
    given = dict(zip((one.name for one in op._schema.arguments if not one.kwarg_only), inputs, strict=True)) | named
    return tensors_in([given[one.name] for one in op._schema.arguments if one.type.is_mutated])


def _told(op: OpOverload, inputs: list[Any], named: dict[str, Any]) -> tuple[list[TensorMeta], list[int], bool]:
    """(metas of the results, lengths of lists among them, whether they are a tuple), by the operator's fake."""
    if not op._schema.returns:
        return [], [], False
    fake = op.registered.kernels[FAKE]

    def bare(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [bare(one) for one in value]
        return Tensor._wrap(MetaValue(tuple(value.shape), value.dtype)) if isinstance(value, Tensor) else value

    try:
        with use_trace(None), no_grad():
            given = [*map(bare, inputs)]
            found = checked(op, given, fake(*given, **{name: bare(one) for name, one in named.items()}))
    except Exception as error:
        raise GraphBreak(f"the fake of {op.name()} fails: {error}", where=user_location()) from error
    several = isinstance(found, tuple)
    results, lengths = flattened(found if several else [found])
    if not all(isinstance(one, Tensor) and one.is_contiguous() for one in results):
        raise GraphBreak(f"{op.name()} gives what is no Tensor, or one with gaps", where=user_location())
    return [*map(meta_of, results)], lengths, several


# ---- arguments as text


def written(inputs: list[Any], named: dict[str, Any]) -> tuple[str, list[Tensor]]:
    """(a call's arguments as text, the Tensors among them, which it has by number)."""
    tensors: list[Tensor] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if isinstance(value, list | tuple):
            return [plain(one) for one in value]
        if isinstance(value, DType):
            return {"dtype": value.name}
        if isinstance(value, Device):
            return {"device": str(value)}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, Sym):
            return int(value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise GraphBreak(f"an operator is given an object of type {type(value).__name__}", where=user_location())

    return json.dumps([plain(inputs), {name: plain(one) for name, one in named.items()}]), tensors


def read(text: str, tensors: Sequence[Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """The opposite of `written`."""
    inputs, named = json.loads(text)
    return _value_of(inputs, tensors), {name: _value_of(one, tensors) for name, one in named.items()}


def _value_of(value: Any, tensors: Sequence[Tensor]) -> Any:
    if isinstance(value, list):
        return [_value_of(one, tensors) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, one),) = value.items()
    return tensors[one] if kind == "tensor" else _READ[kind](one)


_READ: dict[str, Callable[[Any], Any]] = {
    "dtype": by_name,
    "device": Device,
    "complex": lambda parts: complex(*parts),
}


# ---- when the graph runs


def run(name: str, text: str, operands: Sequence[Array]) -> list[Array]:
    """The arrays of what is written, then of the results, of a call of the operator on these arrays."""
    op = find(name)
    inputs, named = read(text, [Tensor._wrap(one) for one in operands])
    changed = mutated(op, inputs, named)
    for tensor in changed:
        tensor._cell.write(tensor._read().copy())
    with no_grad():
        found = kernel_for(op, inputs, named)(*inputs, **named)
    if changed:
        count_writes(op, inputs, named)
    found = checked(op, inputs, found)
    results, _ = flattened(found if isinstance(found, tuple) else [] if found is None else [found])
    return [one._read() for one in (*changed, *results)]


program_operator.RUN.fill(run)
for _helper in (is_between, is_in_graph, record):
    policy.say(_helper, policy.RUN)
