"""Composites that work element by element as C++ and CUDA C: a loop for the value, and one for a cotangent taken back.

In: a composition of one operand x and of numbers, by name.
Out: text; eager/pointwise.py and eager/device_pointwise.py build it.
Method: that of a composition that works by rows (row_values.py), each element of which stands alone. Each value is a
local of the loop, so that what occurs twice is computed once.
Invariants: a number is an argument of the function, rounded to the operand's dtype. A composition of which an element
depends on other elements is a LoweringError. Of 16-bit floats CUDA C computes in f32, and rounds once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler_core.codegen.cpp.expressions import ExprPrinter
from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations
from compiler_core.codegen.cpp.index import CppIndexPrinter
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.cpp.types import register_type
from compiler_core.codegen.row_values import EACH, MANY, SEEN, Half, Rows, halves, not_by_rows
from compiler_core.dtype import DType, float32, float64

_VECTORISED = {"tanhf": "tanh"}  # libm functions of which a helper (helpers.py) is quicker in a loop
_ALIGNED = '#pragma GCC optimize("align-loops=64")\n'  # a loop of few instructions over two cache lines takes 1.2 times
_ON_DEVICE = {"exp"}  # helpers that are functions of CUDA's library


@dataclass(frozen=True, slots=True)
class Body:
    """What a loop does with an element: locals in order, as (type, name, value), and the result."""

    lines: tuple[tuple[str, str, str], ...]
    result: str

    def text(self, indent: str) -> str:
        return "".join(f"{indent}const {kind} {name} = {value};\n" for kind, name, value in self.lines)


def cpp_text(one: Rows, prelude: str) -> str:
    """Functions dc_NAME(arrays (x, out), *numbers) and dc_NAME_backward(arrays (g, x or result, dx), *numbers).

    prelude: arrays.h, which is put behind what it needs.
    """
    used, texts = Used(), list[str]()
    for dtype in (float32, float64):
        texts += [_cpp_loop(one, made, dtype, backward=bool(k)) for k, made in enumerate(bodies(one, dtype, used))]
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


def cuda_text(one: Rows, dtype: DType) -> str:
    """Kernels forward(x, out, n, wide, *numbers) and backward(g, x or result, dx, n, wide, *numbers) that compute in
    `dtype`. wide: whether all lie on 16 bytes, in multiples of these.

    They stand behind device_numbers.cu and device_pointwise.cu.
    """
    used = Used()
    texts = [_cuda_kernel(one, made, backward=bool(k)) for k, made in enumerate(bodies(one, dtype, used))]
    helpers = re.sub(r"\bT\b", "Number", helper_text(used.helpers - _ON_DEVICE))  # there T is what is stored
    return "".join([helpers, *texts])


def _cpp_loop(one: Rows, made: Body, dtype: DType, *, backward: bool) -> str:
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


def _cuda_kernel(one: Rows, made: Body, *, backward: bool) -> str:
    names, called = _operands(one, backward), "backward" if backward else "forward"
    numbers = "".join(f", double {number}_given" for number in one.numbers)
    arrays, given = "".join(f"const T* {name}s, " for name in names), "".join(f", {number}_" for number in one.numbers)
    told = ", ".join([*(f"T {name}_given" for name in names), *(f"C {number}_" for number in one.numbers)])
    return (
        f"DC_INLINE T {called}_of({told}) {{\n"
        + "".join(f"  const C {name} = in({name}_given);\n" for name in names)
        + f"{made.text('  ')}  return as_stored({made.result});\n}}\n"
        f"KERNEL {called}({arrays}T* made, i64 n, int wide{numbers}) {{\n"
        + "".join(f"  const C {number}_ = in(as_stored((C){number}_given));\n" for number in one.numbers)
        + "  if (wide) {\n    ALL(i, n / PIECE) {\n      Piece made_;\n"
        + "".join(f"      Piece {name}_;\n      {name}_.whole = ((const uint4*){name}s)[i];\n" for name in names)
        + "#pragma unroll\n      for (int k = 0; k < PIECE; ++k)\n"
        f"        made_.each[k] = {called}_of({', '.join(f'{name}_.each[k]' for name in names)}{given});\n"
        "      ((uint4*)made)[i] = made_.whole;\n    }\n  } else {\n"
        f"    ALL(i, n) made[i] = {called}_of({', '.join(f'{name}s[i]' for name in names)}{given});\n  }}\n}}\n"
    )


def _operands(one: Rows, backward: bool) -> tuple[str, ...]:
    """What the loop reads: the result stands for x where the gradient is told from it."""
    return ("g", "x" if one.gradient is None else "result") if backward else ("x",)


def bodies(one: Rows, dtype: DType, used: Used) -> tuple[Body, Body]:
    """The value of `one`, and its gradient, of elements of `dtype`. Raises LoweringError if it is not pointwise."""
    printer = ExprPrinter(CppIndexPrinter(used.helpers), used, {}, {})

    def body(half: Half) -> Body:
        for value in half.values.values():
            if value.kind or not {SEEN, MANY, EACH}.isdisjoint(value.reads):
                raise not_by_rows(one, value.note)
        lines = [(register_type(v.dtype), v.name, printer.text(v.value)) for v in half.values.values()]
        return Body(tuple(lines), half.results[0][0])

    forward, backward = halves(one, dtype)
    return body(forward), body(backward)
