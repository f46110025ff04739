"""Why a check of generated code failed: which value, and at which line of the user's.

In: the graph that was compiled, its inputs, and the error, which knows the op alone: generated code keeps no values.
Out: the same error with value and line; the error as it was, where they cannot be found.
Method: the ops of that name and what they need are run again, one by one, by the interpreter; the first that raises the
same error is the one. Only a call that has failed pays for it.
Limits: graphs on the CPU; one that waits for events is left alone, as are inputs that the call has written over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler_core.errors import DATA_ERRORS, DistCompileError, GraphError
from compiler_core.graph.extract import extract
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.ops.registry import Array, Value


def explained(graph: Graph, inputs: Sequence[Array], error: DistCompileError) -> DistCompileError:
    """`error`, which a compiled call of `graph` on `inputs` ended with, told as eager code tells it."""
    name = error.what.partition(":")[0]
    suspects = [call for call in graph.calls if call.op.name == name]
    if graph.waits or not suspects:
        return error
    last: list[Call] = []
    indices: dict[Node, Value] = {}

    def note(call: Call, values: Mapping[Node, Value]) -> None:
        last[:] = [call]
        indices.update((arg, values[arg]) for arg in call.args if arg.meta.dtype.kind in "iu")

    try:
        interpret(extract(graph, graph.name, suspects, graph.inputs), inputs, override=note)
    except DATA_ERRORS as again:
        call = last[0]
        if call.op.name == name and type(again) is type(error):
            return _told(again, call, indices)
    except GraphError:  # an input that is no array of the graph's kind
        return error
    return error


def _told(again: DistCompileError, call: Call, indices: Mapping[Node, Value]) -> DistCompileError:
    counted = _counted_from_the_end(call, indices)
    if counted is None:
        return type(again)(again.what, where=call.location, expected=again.expected, got=again.got)
    given, size = counted
    what = f"{call.op.name}: index {given} is out of range"
    return type(again)(what, where=call.location, expected=f"{-size} <= index < {size}", got=str(given))


def _counted_from_the_end(call: Call, indices: Mapping[Node, Value]) -> tuple[int, int] | None:
    """(the index as it was given, the size), where it was below zero and sizes were added: where(i < 0, i + n, i)."""
    for operand in call.args:
        if isinstance(operand, Call) and operand.op.name == "where" and operand in indices:
            counted, given = (np.asarray(indices[node]).ravel() for node in (operand, operand.args[2]))
            bad = np.flatnonzero(counted < 0)
            return (int(given[bad[0]]), int(counted[bad[0]] - given[bad[0]])) if bad.size else None
    return None
