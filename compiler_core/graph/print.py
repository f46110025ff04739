"""Graph -> text. The text evaluates back to an equal graph (`parse.py`) and is the graph's identity (cache keys).

    graph mlp(%x: f32[2, 3] input 'args[0]', %w: f32[3, 4] parameter 'weight') {
      %full: f32[2, 4] = full() dtype=f32 shape=(2, 4) value=0.5
      %const: f32[2] = constant [1.0, 2.0]
      %matmul: f32[2, 4] = matmul(%x, %w)                        # model.py:12
      return %matmul
    }

In: a Graph. Out: text; its device, `on cuda:0`, stands before the brace if it is not the CPU. Sizes that the call
decides are declared on a line before it: `sizes s0 in [2, inf)` (symbolic/size_text.py). Invariants: attributes
are sorted by name; a constant is written by content, as a literal if it is short and survives the round trip bit for
bit, else as base64 of its bytes. Locations are comments: no part of the graph's identity, so `print_graph(g)` leaves
them out and `print_graph(g, locations=True)` is for people.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_core.dtype import DType
from compiler_core.errors import GraphError
from compiler_core.graph.ir import Call, Constant, Graph, Node, Placeholder
from compiler_core.graph.kept import Keep, keep_of, number_of
from compiler_core.graph.sizes import symbols_of
from compiler_core.ops.registry import Array
from compiler_core.symbolic.size import Sym
from compiler_core.symbolic.size_text import show_declarations

LITERAL_ELEMENTS = 16  # constants up to this size are written as literals
LOCATION_COLUMN = 64

_KEPT = {
    Keep.AGAIN: "",
    Keep.HERE: ", kept",
    Keep.HOST_IF_LARGE: ", kept in the host if large",
    Keep.HOST: ", kept in the host",
}


def print_graph(graph: Graph, *, locations: bool = False, elide: bool = False) -> str:
    """The text of `graph`. elide: long constants become a comment on their size (for people; does not parse)."""
    parameters = ", ".join(map(print_placeholder, graph.inputs))
    place = f"on {graph.device} " if graph.on_gpu else ""
    declared = show_declarations(symbols_of(graph))
    lines = [*([declared] if declared else []), f"graph {graph.name}({parameters}) {place}{{"]
    for node in graph.nodes:
        if isinstance(node, Constant):
            lines.append(f"  %{node.name}: {node.meta} = constant {print_array(node.array, elide=elide)}")
        elif isinstance(node, Call):
            lines.append(_with_location(f"  {print_call(node)}", _origin(node) if locations else ""))
    lines += [_wait_line(graph, k, places) for k, places in enumerate(graph.waits)]
    lines += [f"  signal {k}: outputs {', '.join(map(str, places))}".rstrip() for k, places in enumerate(graph.signals)]
    lines += [f"  host: outputs {', '.join(map(str, graph.hosted))}"] if graph.hosted else []
    returned = ", ".join(f"%{node.name}" for node in graph.outputs)
    return "\n".join([*lines, f"  return {returned}".rstrip(), "}", ""])


def _wait_line(graph: Graph, event: int, places: tuple[int, ...]) -> str:
    signal = graph.behind[event] if graph.behind else -1
    after = f" behind {signal}" if signal >= 0 else ""
    return f"  wait {event}{after}: inputs {', '.join(map(str, places))}".rstrip()


def print_placeholder(node: Placeholder) -> str:
    """`%x: f32[2, 3] input 'args[0]'`."""
    return f"%{node.name}: {node.meta} {node.role} {node.source!r}"


def print_call(node: Call) -> str:
    """`%name: meta = op(%a, %b) key=value ...`, attributes sorted by name."""
    operands = ", ".join(f"%{arg.name}" for arg in node.args)
    attrs = "".join(f" {key}={print_attr(node.attrs[key])}" for key in sorted(node.attrs))
    return f"%{node.name}: {node.meta} = {node.op.name}({operands}){attrs}"


def print_node(node: Node) -> str:
    """One line on any node, for messages."""
    if isinstance(node, Call):
        return _with_location(print_call(node), _origin(node))
    return print_placeholder(node) if isinstance(node, Placeholder) else f"%{node.name}: {node.meta} = constant"


def print_attr(value: Any) -> str:
    """An attribute as the parser reads it. Raises GraphError for a kind of value that attributes do not take."""
    if isinstance(value, DType):
        return value.short
    if isinstance(value, tuple):
        inner = ", ".join(map(print_attr, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, np.generic):
        return print_attr(value.item())
    if isinstance(value, complex):
        return _complex_text(value)
    if isinstance(value, Sym):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    raise GraphError(
        f"an attribute cannot hold a {type(value).__name__}",
        expected="int, Sym, float, complex, bool, str, DType, or tuples of these",
    )


def print_attrs(attrs: Mapping[str, Any]) -> str:
    """Attributes as `parse_attrs` reads them, by name."""
    return " ".join(f"{key}={print_attr(value)}" for key, value in sorted(attrs.items()))


def print_array(array: Array, *, elide: bool = False) -> str:
    """A literal for short arrays that are not complex, else `base64'...'`."""
    if array.size <= LITERAL_ELEMENTS and array.dtype.kind != "c":
        literal = _nested(array)
        if read_literal(literal_value(literal), array.dtype).tobytes() == array.tobytes():
            return literal
    if elide and array.size > LITERAL_ELEMENTS:
        return f"<{array.size} elements>"
    return f"base64'{base64.b64encode(array.tobytes()).decode()}'"


def literal_value(text: str) -> Any:
    """The nested lists of numbers that a literal spells; one complex number as `_complex_text` writes it."""
    if text.endswith("j"):
        return complex(text)
    return eval(text, {"__builtins__": {}}, {"nan": float("nan"), "inf": float("inf")})


def read_literal(value: Any, dtype: np.dtype[Any]) -> Array:
    """Nested lists -> array of `dtype`."""
    return np.asarray(value).astype(dtype) if dtype.kind not in "iub" else np.asarray(value, dtype)


def _nested(array: Array) -> str:
    if array.ndim:
        return f"[{', '.join(_nested(row) for row in array)}]"
    value = array[()]
    return str(value) if array.dtype.kind in "iubf" else str(float(value))


def _complex_text(value: complex) -> str:
    """One token: `1.5-2.0j`."""
    sign = "" if math.copysign(1.0, value.imag) < 0 and not math.isnan(value.imag) else "+"
    return f"{value.real!r}{sign}{value.imag!r}j"


def _origin(call: Call) -> str:
    """The user's line, and the checkpointed function that the call belongs to."""
    region = f"checkpoint {number_of(call.region)}{_KEPT[keep_of(call.region)]}" if call.region else ""
    return ", ".join(filter(None, (call.location, region)))


def _with_location(line: str, location: str) -> str:
    return f"{line:<{LOCATION_COLUMN}}  # {location}" if location else line
