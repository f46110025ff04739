"""Composites that work element by element as C++ and CUDA C: a loop for the value, and one for a cotangent taken back.

In: a composition of operands of one shape, x and perhaps more, and of numbers, by name.
Out: text; eager/pointwise.py and eager/device/pointwise.py build it.
Method: that of a composition that works by rows (row_values.py), each element of which stands alone. Each value is a
local of the loop, so that what occurs twice is computed once. In C++ there is a loop for each choice of cotangents that
are wanted, which computes what these need; in CUDA C one, which stores what is wanted.
Of a cotangent that is one number everywhere, as that of a sum is, that number alone is read.
Invariants: a number is an argument of the function, rounded to the operand's dtype. A composition of which an element
depends on other elements is a LoweringError. Of 16-bit floats CUDA C computes in f32, and rounds once.
"""

from __future__ import annotations

import re
from itertools import combinations

from compiler_core.codegen.cpp.expressions import ExprPrinter
from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations
from compiler_core.codegen.cpp.index import CppIndexPrinter
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.cpp.types import register_type
from compiler_core.codegen.row_values import EACH, MANY, SEEN, Half, Rows, halves, not_by_rows, with_results
from compiler_core.dtype import DType, float32, float64
from compiler_core.records import dataclass

_VECTORISED = {"tanhf": "tanh"}  # libm functions of which a helper (helpers.py) is quicker in a loop
_ALIGNED = '#pragma GCC optimize("align-loops=64")\n'  # a loop of few instructions over two cache lines takes 1.2 times
_BLOCK = 1024  # elements that a backward goes through at once, with the one number of its cotangent as often
_ON_DEVICE = {"erf", "exp"}  # helpers that are functions of CUDA's library


@dataclass(frozen=True, slots=True)
class Body:
    """What a loop does with an element: locals in order, as (type, name, value), and results, as (array, value)."""

    lines: tuple[tuple[str, str, str], ...]
    results: tuple[tuple[str, str], ...]

    def text(self, indent: str) -> str:
        return "".join(f"{indent}const {kind} {name} = {value};\n" for kind, name, value in self.lines)


def cpp_text(one: Rows, prelude: str) -> str:
    """Functions dc_NAME(arrays (x, *others, out), *numbers) and dc_NAME_backward(arrays (g, *read, *grads), *numbers).

    read: x and others, or the result. Of several gradients those that are not wanted are None. g may be of one number.
    prelude: arrays.h, which is put behind what it needs.
    """
    used, texts = Used(), list[str]()
    for dtype in (float32, float64):
        forward, *backwards = bodies(one, dtype, used)
        texts += [_cpp_function(one, [forward], dtype), _cpp_function(one, backwards, dtype, backward=True)]
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
    """Kernels forward(x, *others, out, n, wide, *numbers), backward(g, *read, *grads, n, wide, single, *numbers).

    They compute in `dtype`. wide: whether all lie on 16 bytes, in multiples of these. single: whether g is one number.
    They stand behind eager/device/numbers.cu and pointwise.cu.
    """
    used = Used()
    forward, *backwards = bodies(one, dtype, used)
    texts = [_cuda_kernel(one, forward, backward=False), _cuda_kernel(one, backwards[-1], backward=True)]
    helpers = re.sub(r"\bT\b", "Number", helper_text(used.helpers - _ON_DEVICE))  # there T is what is stored
    return "".join([helpers, *texts])


def _cpp_function(one: Rows, loops: list[Body], dtype: DType, *, backward: bool = False) -> str:
    """loops: by which results are wanted, the last for all of them."""
    names, made = _operands(one, backward), [array for array, _ in loops[-1].results]
    name, kind = f"{one.name}_backward" if backward else one.name, dtype.ctype
    numbers = "".join(f", double {number}_given" for number in one.numbers)
    general = f"template <class T> static int64_t {name}_of(const Tuple* t{numbers});\n" if dtype is float32 else ""
    arrays = "".join(f"  const {kind}* {name}s = at<{kind}>(t, {k});\n" for k, name in enumerate(names))
    results = "".join(f"  {kind}* {name} = at<{kind}>(t, {k});\n" for k, name in enumerate(made, len(names)))
    whole = "".join(_cpp_loop(names, body, kind, wanted=made) for body in loops)
    if backward:
        whole = (
            f"  {kind} same[{_BLOCK}];\n  const bool is_one = numel(t->items[0]) == 1;\n"
            f"  for (int64_t i = 0; is_one && i < n && i < {_BLOCK}; ++i) same[i] = gs[0];\n"
            f"  for (int64_t begin = 0; begin < n; begin += {_BLOCK}) {{\n"
            f"  const int64_t end = begin + {_BLOCK} < n ? begin + {_BLOCK} : n;\n"
            f"  const {kind}* from = is_one ? same : gs + begin;\n{whole}  }}\n"
        )
    else:
        whole = f"  const int64_t begin = 0, end = n;\n{whole}"
    return (
        f"{general}template <> int64_t {name}_of<{kind}>(const Tuple* t{numbers}) {{\n{arrays}{results}"
        + "".join(f"  const {kind} {number}_ = ({kind}){number}_given;\n" for number in one.numbers)
        + f"  const int64_t n = numel(t->items[1]);\n{whole}  return 0;\n}}\n"
    )


def _cpp_loop(names: tuple[str, ...], body: Body, kind: str, wanted: list[str]) -> str:
    stored = [array for array, _ in body.results]
    condition = " && ".join(array if array in stored else f"!{array}" for array in wanted)
    loads = {name: "from[i - begin]" if name == "g" else f"{name}s[i]" for name in names}
    return (
        (f"  if ({condition})\n" if len(wanted) > 1 else "")
        + "#pragma omp simd\n  for (int64_t i = begin; i < end; ++i) {\n"
        + "".join(f"    const {kind} {name} = {load};\n" for name, load in loads.items())
        + body.text("    ")
        + "".join(f"    {array}[i] = {value};\n" for array, value in body.results)
        + "  }\n"
    )


def _cuda_element(one: Rows, called: str, names: tuple[str, ...], body: Body) -> str:
    """The function of an element: of what is read, numbers, and where results go."""
    told = [*(f"T {name}_given" for name in names), *(f"C {number}_" for number in one.numbers)]
    told += [f"T& {array}" for array, _ in body.results]
    return (
        f"DC_INLINE void {called}_of({', '.join(told)}) {{\n"
        + "".join(f"  const C {name} = in({name}_given);\n" for name in names)
        + body.text("  ")
        + "".join(f"  {array} = as_stored({value});\n" for array, value in body.results)
        + "}\n"
    )


def _cuda_kernel(one: Rows, body: Body, *, backward: bool) -> str:
    names, called, made = _operands(one, backward), "backward" if backward else "forward", [n for n, _ in body.results]
    arrays = ", ".join([*(f"const T* {name}s" for name in names), *(f"T* {array}" for array in made)])
    numbers, single = "".join(f", double {number}_given" for number in one.numbers), ", int single" if backward else ""
    given = [f"{number}_" for number in one.numbers]
    checks = {array: f"if ({array}) " if len(made) > 1 else "" for array in made}
    loads = {name: f"{name}_.whole = ((const uint4*){name}s)[i];" for name in names}
    alone = {name: f"{name}s[i]" for name in names}
    if backward:
        loads["g"] = f"if (!single) {loads['g']}\n      else for (int k = 0; k < WIDTH; ++k) g_.each[k] = gs[0];"
        alone["g"] = "gs[single ? 0 : i]"
    all_ = [f"{name}_" for name in (*names, *made)]
    pieces = ", ".join([*(f"{name}_.each[k]" for name in names), *given, *(f"{array}_.each[k]" for array in made)])
    return (
        _cuda_element(one, called, names, body)
        + f"KERNEL {called}({arrays}, i64 n, int wide{single}{numbers}) {{\n"
        + "".join(f"  const C {number}_ = in(as_stored((C){number}_given));\n" for number in one.numbers)
        + f"  if (wide) {{\n    ALL(i, n / WIDTH) {{\n      Vector {', '.join(all_)};\n"
        + "".join(f"      {load}\n" for load in loads.values())
        + f"#pragma unroll\n      for (int k = 0; k < WIDTH; ++k) {called}_of({pieces});\n"
        + "".join(f"      {check}((uint4*){array})[i] = {array}_.whole;\n" for array, check in checks.items())
        + f"    }}\n  }} else {{\n    ALL(i, n) {{\n      T {', '.join(f'{array}_' for array in made)};\n"
        + f"      {called}_of({', '.join([*alone.values(), *given, *(f'{array}_' for array in made)])});\n"
        + "".join(f"      {check}{array}[i] = {array}_;\n" for array, check in checks.items())
        + "    }\n  }\n}\n"
    )


def _operands(one: Rows, backward: bool) -> tuple[str, ...]:
    """What the loop reads: the result stands for x where the gradient is told from it."""
    if not backward:
        return ("x", *one.parameters)
    return ("g", "x" if one.gradient is None else "result", *one.parameters)


def bodies(one: Rows, dtype: DType, used: Used) -> list[Body]:
    """The value of `one`, and its gradients, the last all of them, of elements of `dtype`.

    Raises LoweringError if it is not pointwise.
    """
    printer = ExprPrinter(CppIndexPrinter(used.helpers), used, {}, {})
    forward, backward = halves(one, dtype)

    def body(half: Half, arrays: list[str]) -> Body:
        for value in half.values.values():
            if value.kind or not {SEEN, MANY, EACH}.isdisjoint(value.reads):
                raise not_by_rows(one, value.note)
        lines = [(register_type(v.dtype), v.name, printer.text(v.value)) for v in half.values.values()]
        return Body(tuple(lines), tuple(zip(arrays, [name for name, _ in half.results])))

    found = [body(forward, ["made"])]
    for count in range(1, len(backward.results) + 1):
        for wanted in combinations(range(len(backward.results)), count):
            half = with_results(one, backward, [backward.results[k] for k in wanted])
            found.append(body(half, [f"made{k}" for k in wanted]))
    return found
