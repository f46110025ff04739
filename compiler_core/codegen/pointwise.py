"""Composites that work element by element as C++ and CUDA C: a loop for the value, and one for a cotangent taken back.

In: a composition of one operand x and of numbers, by name; whether its gradient is told from x or from the result.
Out: text; eager/pointwise.py and eager/device_pointwise.py build it.
Method: the composition, and its vjp, are captured on a few elements and go through the compiler's own passes and
lowering. Each definition that is left is a local of the loop, so that what occurs twice is computed once.
Invariants: a number is an argument of the function, rounded to the operand's dtype. A composition of which an element
depends on other elements is a LoweringError. Of 16-bit floats CUDA C computes in f32, and rounds once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from compiler_core.codegen.cpp.expressions import ExprPrinter
from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations
from compiler_core.codegen.cpp.index import CppIndexPrinter
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.cpp.types import register_type
from compiler_core.dtype import DType, float32, float64
from compiler_core.errors import LoweringError
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import EXPAND, SIMPLIFY_JOINT, run_passes
from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.define import define
from compiler_core.meta import TensorMeta
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.registry import Value, use_trace
from compiler_core.symbolic.index import ZERO

_SHAPE = (3,)  # of what is captured: any size that no number has
_VECTORISED = {"tanhf": "tanh"}  # libm functions of which a helper (helpers.py) is quicker in a loop
_ALIGNED = '#pragma GCC optimize("align-loops=64")\n'  # a loop of few instructions over two cache lines takes 1.2 times
_ON_DEVICE = {"exp"}  # helpers that are functions of CUDA's library


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A composition: compose(x, **numbers). from_result: its gradient is the same at the result as at x."""

    name: str
    compose: Callable[..., Value]
    numbers: tuple[str, ...]
    from_result: bool


@dataclass(frozen=True, slots=True)
class Body:
    """What a loop does with an element: locals in order, as (type, name, value), and the result."""

    lines: tuple[tuple[str, str, str], ...]
    result: str

    def text(self, indent: str) -> str:
        return "".join(f"{indent}const {kind} {name} = {value};\n" for kind, name, value in self.lines)


def cpp_text(one: Pointwise, prelude: str) -> str:
    """Functions dc_NAME(arrays (x, out), *numbers) and dc_NAME_backward(arrays (g, x or result, dx), *numbers).

    prelude: arrays.h, which is put behind what it needs.
    """
    used = Used()
    texts = [
        _cpp_loop(one, body(one, dtype, used, backward=backward), dtype, backward=backward)
        for backward in (False, True)
        for dtype in (float32, float64)
    ]
    return unit(
        texts, [one.name, f"{one.name}_backward"], [f"double {name}_given" for name in one.numbers], used, prelude
    )


def unit(texts: list[str], names: list[str], arguments: list[str], used: Used, prelude: str) -> str:
    """A translation unit of functions NAME_of<T>(arrays, *arguments), and what exports them, by the arrays' dtype."""
    told = "".join(f", {one}" for one in arguments)
    given = "".join(f", {one.split()[-1]}" for one in arguments)
    exports = [f"EXPORT dc_{name}(void* arrays{told}) {{ return BY_DTYPE({name}_of{given}); }}\n" for name in names]
    quick = {name: helper for name, helper in _VECTORISED.items() if name in used.libm}
    declared = libm_declarations(used.libm - quick.keys())
    defined = "".join(f"#define {name} dc_{helper}\n" for name, helper in quick.items())
    helpers = helper_text(used.helpers | set(quick.values()))
    return "".join([_ALIGNED, TYPES, helpers, declared, defined, prelude, *texts, *exports])


def cuda_text(one: Pointwise, dtype: DType) -> str:
    """Kernels forward(x, out, n, *numbers) and backward(g, x or result, dx, n, *numbers) that compute in `dtype`.

    They stand behind device_numbers.cu and device_pointwise.cu.
    """
    used = Used()
    texts = [_cuda_kernel(one, body(one, dtype, used, backward=back), backward=back) for back in (False, True)]
    helpers = re.sub(r"\bT\b", "Number", helper_text(used.helpers - _ON_DEVICE))  # there T is what is stored
    return "".join([helpers, *texts])


def _cpp_loop(one: Pointwise, made: Body, dtype: DType, *, backward: bool) -> str:
    names = _operands(one, backward)
    name, kind = f"{one.name}_backward" if backward else one.name, dtype.ctype
    numbers = "".join(f", double {number}_given" for number in one.numbers)
    general = f"template <class T> static int64_t {name}_of(const Tuple* t{numbers});\n" if dtype is float32 else ""
    arrays = "".join(f"  const {kind}* {name}s = at<{kind}>(t, {k});\n" for k, name in enumerate(names))
    return (
        f"{general}template <> int64_t {name}_of<{kind}>(const Tuple* t{numbers}) {{\n{arrays}"
        f"  {kind}* made = at<{kind}>(t, {len(names)});\n"
        + "".join(f"  const {kind} {number}_ = ({kind}){number}_given;\n" for number in one.numbers)
        + "  const int64_t n = numel(t->items[0]);\n#pragma omp simd\n  for (int64_t i = 0; i < n; ++i) {\n"
        + "".join(f"    const {kind} {name} = {name}s[i];\n" for name in names)
        + f"{made.text('    ')}    made[i] = {made.result};\n  }}\n  return 0;\n}}\n"
    )


def _cuda_kernel(one: Pointwise, made: Body, *, backward: bool) -> str:
    names = _operands(one, backward)
    numbers = "".join(f", double {number}_given" for number in one.numbers)
    arrays = "".join(f"const T* {name}s, " for name in names)
    return (
        f"KERNEL {'backward' if backward else 'forward'}({arrays}T* made, i64 n{numbers}) {{\n"
        + "".join(f"  const C {number}_ = in(as_stored((C){number}_given));\n" for number in one.numbers)
        + "  ALL(i, n) {\n"
        + "".join(f"    const C {name} = in({name}s[i]);\n" for name in names)
        + f"{made.text('    ')}    made[i] = as_stored({made.result});\n  }}\n}}\n"
    )


def _operands(one: Pointwise, backward: bool) -> tuple[str, ...]:
    """What the loop reads: the result stands for x where the gradient is told from it."""
    return ("g", "x") if backward else ("x",)


# ---- from the composition to the loop's body


def body(one: Pointwise, dtype: DType, used: Used, *, backward: bool) -> Body:
    """The value of `one`, or its gradient, of elements of `dtype`. Raises LoweringError if it is not pointwise."""
    graph = run_passes(_captured(one, dtype, backward=backward), (*EXPAND, *SIMPLIFY_JOINT))
    defined = define(graph)
    printer = ExprPrinter(CppIndexPrinter(used.helpers), used, {}, {})
    names = {node.name: node.name if node.meta.shape else f"{node.name}_" for node in graph.inputs}
    lines: list[tuple[str, str, str]] = []
    for name, element in defined.definitions.items():
        if not isinstance(element, d.Element) or element.part is not None or element.numel != _SHAPE[0]:
            raise _not_pointwise(one, element.note)
        value = _of_one_element(one, element, names)
        names[name] = f"t{len(lines)}"
        lines.append((register_type(element.dtype), names[name], printer.text(value)))
    return Body(tuple(lines), names[defined.outputs[0]])


def _captured(one: Pointwise, dtype: DType, *, backward: bool) -> Graph:
    builder = GraphBuilder(f"{one.name}_backward" if backward else one.name)
    node = {name: builder.placeholder(name, TensorMeta(_SHAPE, dtype)) for name in _operands(one, backward)}
    numbers = {name: builder.placeholder(name, TensorMeta((), dtype)) for name in one.numbers}
    composed = partial(one.compose, **numbers)
    with use_trace(builder):
        (out,) = vjp_of(composed, node["g"], node["x"]) if backward else (composed(node["x"]),)
    if out is None or (out.shape, out.dtype) != (_SHAPE, dtype):
        raise _not_pointwise(one, f"its {'gradient' if backward else 'result'} is {out}")
    return builder.build([out])


def _of_one_element(one: Pointwise, element: d.Element, names: dict[str, str]) -> x.Expr:
    """Its value, with variables in place of loads."""
    here = (d.flat_of(element.axes), ZERO)

    def part(expr: x.Expr) -> x.Expr:
        if isinstance(expr, x.Load) and expr.index in here:
            return x.Var(names[expr.buffer], expr.dtype)
        if isinstance(expr, x.Load | x.IndexValue | x.IndexCompare):
            raise _not_pointwise(one, element.note)
        return x.rebuilt(expr, part, lambda index: index)

    return part(element.value)


def _not_pointwise(one: Pointwise, where: str) -> LoweringError:
    return LoweringError(
        f"the composite {one.name!r} is declared pointwise, and is not",
        got=where,
        remedy="declare it `whole` without `pointwise`",
    )
