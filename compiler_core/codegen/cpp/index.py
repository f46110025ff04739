"""Index expressions as C++: int64_t arithmetic.

In: as `codegen/index.py`. Out: text. A division whose dividend provably fits 32 bits is done in uint32_t, which the
compiler turns into a multiplication and can vectorise; one whose dividend may be negative goes through a helper.
"""

from __future__ import annotations

from compiler_core.codegen.index import IndexPrinter
from compiler_core.symbolic.index import Div, Mod

UINT32_MAX = 2**32 - 1


class CppIndexPrinter(IndexPrinter):
    """Prints indices as C++."""

    __slots__ = ()

    def _division(self, atom: Div | Mod) -> str:
        dividend, divisor = self.text(atom.arg), atom.n
        operator, helper = ("/", "floor_div") if isinstance(atom, Div) else ("%", "floor_mod")
        low, high = atom.arg.bounds
        if low < 0:
            self.helpers.add(helper)
            return f"dc_{helper}({dividend}, {divisor})"
        if high <= UINT32_MAX:
            return f"(int64_t)((uint32_t)({dividend}) {operator} {divisor}u)"
        return f"(({dividend}) {operator} {divisor})"
