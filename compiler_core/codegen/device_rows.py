"""Composites that work row by row as CUDA C: rows.py's, by a part of a block a row; and sums down the rows.

In: a composition (row_values.py). Out: kernels `forward`, `backward` (of x's cotangent) and `columns` (of parameters'),
which stand behind eager/device/pointwise.cu and rows.cu. They are handed what is there of the operands and the
results, in order, the rows' length n, and

    forward, backward   i64 length, the rows of a matrix    *numbers        before all that, rows and threads of a row
    columns             i64 rows, i64 chunk                 *numbers        sums of `chunk` rows, [parts, n], in C

Invariants: what is kept of a row, and what is summed, is of the dtype that is computed in. No value waits in a result,
which may be 16 bits wide: it is computed again. Sums down the rows want nothing of a row but what is kept.
"""

from __future__ import annotations

import re

from compiler_core.codegen.cpp.helpers import helper_text
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.row_values import EACH, MANY, Half, Rows, Value, halves, narrowed, not_by_rows
from compiler_core.codegen.rows import RowPrinter, told_of
from compiler_core.dtype import DType
from compiler_core.loop_ir import expr as x

_ON_DEVICE = {"erf", "exp", "reduce_max"}  # helpers that are there
_OVER_ROW = {"+": "ROW_SUM", "dc_max": "ROW_LARGEST"}


def cuda_text(one: Rows, dtype: DType) -> str:
    """The kernels that compute in `dtype`; the first line says what told_of does."""
    used, (forward, backward) = Used(), halves(one, dtype)
    texts = [_OnDevice(one, forward, dtype, used, "forward").text()]
    texts.append(_OnDevice(one, narrowed(one, backward, "all"), dtype, used, "backward").text())
    if any(one.present):
        texts.append(_Columns(one, narrowed(one, backward, "column"), dtype, used, "columns").text())
    helpers = re.sub(r"\bT\b", "Number", helper_text({"max", *used.helpers} - _ON_DEVICE))
    return f"// {told_of(one, forward, backward)}\n" + "".join([helpers, *texts])


class _OnDevice(RowPrinter):
    """Prints a kernel of rows that have `lanes` threads of a block each."""

    first: tuple[str, ...] = ("i64 rows", "int lanes")
    sizes = "i64 n, i64 length"

    def __init__(self, one: Rows, half: Half, dtype: DType, used: Used, kernel: str) -> None:
        super().__init__(one, half, dtype, used)
        self._kernel, self._stored = kernel, ""

    def text(self) -> str:
        arrays = [(f"const {'C' if lies == 'row' else 'T'}*", f"{n}s", lies) for n, lies in self.half.operands if lies]
        arrays += [("T*" if lies == "all" else "C*", f"out{k}", lies) for k, (_, lies) in enumerate(self.half.results)]
        told = [*self.first, *(f"{kind} {name}" for kind, name, _ in arrays), self.sizes]
        told += [f"double {number}_given" for number in self.one.numbers]
        lines = [f"const C {number}_ = (C){number}_given;" for number in self.one.numbers]
        lines += [f"const C {MANY} = (C)n, {EACH} = 1 / {MANY};", *self._body(arrays)]
        return f"KERNEL {self._kernel}({', '.join(told)}) {{\n" + "\n".join(lines) + "\n}\n"

    def _body(self, arrays: list[tuple[str, str, str]]) -> list[str]:
        lines = ["__shared__ C room[MOST];"]
        lines += ["const i64 own = (i64)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;"]
        lines += ["const i64 r = own < rows ? own : rows - 1;"]
        lines += [f"{name} += r * n;" for _, name, lies in arrays if lies == "all"]
        lines += ["const i64 seen = r % length + 1 < n ? r % length + 1 : n;"] if self._is_cut else []
        return [*lines, *self._kept(), *self._row()]

    def _kept(self) -> list[str]:
        return [f"const C {name} = {name}s[r];" for name, lies in self.half.operands if lies == "row"]

    def _element(self, name: str, lies: str) -> str:
        return f"in({name}s[i])"

    def _keep(self, number: int, name: str) -> str:
        return f"if (threadIdx.x % lanes == 0 && own < rows) out{number}[r] = {name};"

    def _guarded(self, wanted: set[int], lines: list[str]) -> list[str]:
        return lines

    def _reductions(self, values: list[Value]) -> list[str]:
        joined = self._joined(values)
        if any(join.name not in _OVER_ROW for _, _, join in joined):
            raise not_by_rows(self.one, "a reduction that is no sum and no maximum, on a device")
        lines = [f"C {name}_part = {join.start(self.dtype)};" for name, _, join in joined]
        lines += [f"ALONG_ROW(i, {self._end}) {{", *self._locals([v.value for v in values])]
        lines += [f"{n}_part = {join.text(f'{n}_part', self._text(value))};" for n, value, join in joined]
        lines += ["}", *(f"{name} = {_OVER_ROW[join.name]}({name}_part);" for name, _, join in joined)]
        for name, value, join in joined if self._is_cut else ():
            behind = self._text(self._invariant(value, lines))
            lines.append(f"if (seen < n) {name} = (C){join.text(f'(double){name}', join.repeated(behind))};")
        return lines

    def _result(self, number: int, name: str, lies: str) -> list[str]:
        value, lines = x.Var(name, self.dtype), list[str]()
        if self._is_cut:
            behind = self._text(self._invariant(value, lines))
            lines.append(f"ALONG_ROW(i, n) if (i >= seen) out{number}[i] = as_stored({behind});")
        lines += [f"ALONG_ROW(i, {self._end}) {{", *self._locals([value])]
        return [*lines, f"out{number}[i] = as_stored({name});", "}"]


class _Columns(_OnDevice):
    """Prints a kernel of blocks of 32 columns by blockDim.x / 32 rows at a time."""

    first = ()
    sizes = "i64 n, i64 rows, i64 chunk"

    def _body(self, arrays: list[tuple[str, str, str]]) -> list[str]:
        sums = [self.half.values[name] for name, _ in self.half.results]
        if any(value.kind and not value.down for value in self.half.values.values()):
            raise not_by_rows(self.one, "sums down the rows of what the backward sums along them, on a device")
        lines = [f"__shared__ C room{k}[MOST];\nC sum{k} = 0;" for k in range(len(sums))]
        lines += ["const i64 i = (i64)blockIdx.x * 32 + threadIdx.x % 32, first = (i64)blockIdx.y * chunk;"]
        lines += ["const i64 last = first + chunk < rows ? first + chunk : rows;", "if (i < n)", "#pragma unroll 4"]
        lines += ["for (i64 r = first + threadIdx.x / 32; r < last; r += blockDim.x / 32) {", *self._kept()]
        for value in self.half.values.values():
            if value.name not in self._varying and not value.kind:
                lines.append(self._local(value.name, value.value, value.dtype))
        lines += self._locals([value.value for value in sums])
        lines += [f"sum{k} += {self._text(value.value)};" for k, value in enumerate(sums)]
        lines += ["}", *(f"room{k}[threadIdx.x] = sum{k};" for k in range(len(sums)))]
        lines += ["__syncthreads();", "if (threadIdx.x < 32 && i < n) {"]
        for k in range(len(sums)):
            lines.append(f"for (unsigned t = threadIdx.x + 32; t < blockDim.x; t += 32) sum{k} += room{k}[t];")
            lines.append(f"if (out{k}) out{k}[(i64)blockIdx.y * n + i] = sum{k};")
        return [*lines, "}"]

    def _element(self, name: str, lies: str) -> str:
        return f"in({name}s[r * n + i])" if lies == "all" else f"in({name}s[i])"
