"""Index expressions as C++: int64_t arithmetic.

In: as `codegen/index.py`. Out: text. A division whose dividend provably fits 32 bits is done in uint32_t, which the
compiler turns into a multiplication and can vectorise; one whose dividend may be negative goes through a helper.
"""

from __future__ import annotations

from compiler_core.codegen.index import IndexPrinter
from compiler_core.loop_ir.expr import Index
from compiler_core.symbolic.functions import FloorDiv

UINT32_MAX = 2**32 - 1


class CppIndexPrinter(IndexPrinter):
    """Prints indices as C++."""

    __slots__ = ()

    def _division(self, index: Index) -> str:
        dividend, divisor = index.args
        operator, helper = ("/", "floor_div") if isinstance(index, FloorDiv) else ("%", "floor_mod")
        of = self.bounds(dividend)
        if of is None or of[0] < 0 or not divisor.is_Integer:
            self.helpers.add(helper)
            return f"dc_{helper}({self.text(dividend)}, {self.text(divisor)})"
        if of[1] <= UINT32_MAX:
            return f"(int64_t)((uint32_t)({self.text(dividend)}) {operator} {int(divisor)}u)"
        return f"(({self.text(dividend)}) {operator} {int(divisor)})"
