"""A cuBLASLt that is not there: descriptors by number, algorithms that are all one, products in NumPy.

In: what programs ask. Out: `FakeLt`, whose functions `FakeCuda` serves: `algorithms` says how many there are, and
`slowness` how long one takes (seconds) by its number, so that a choice can be seen.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

_P, _I, _Z, _U, _L = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int64
FORMS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_P,),
    "cublasLtDestroy": (_P,),
    "cublasLtMatmulDescCreate": (_P, _I, _I),
    "cublasLtMatmulDescSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatrixLayoutCreate": (_P, _I, _U, _U, _L),
    "cublasLtMatrixLayoutSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulPreferenceCreate": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulPreferenceDestroy": (_P,),
    "cublasLtMatmulAlgoGetHeuristic": (_P, _P, _P, _P, _P, _P, _P, _I, _P, _P),
    "cublasLtMatmul": (*(_P,) * 14, _Z, _P),
}
_RESULT_NBYTES, _STATUS_AT = 96, 72


class FakeLt:
    """multiply: FakeCuda's. made: descriptors, by number - 1."""

    def __init__(self, multiply: Callable[..., dict[str, Any]]) -> None:
        self.algorithms = 3
        self.slowness: dict[int, float] = {}
        self.made: list[dict[Any, Any]] = []
        self._multiply = multiply

    def _new(self, place: int, facts: dict[Any, Any]) -> None:
        self.made.append(facts)
        ctypes.c_uint64.from_address(place).value = len(self.made)

    def cublasLtCreate(self, place: int) -> None:
        self._new(place, {})

    def cublasLtMatmulDescCreate(self, place: int, compute: int, scale: int) -> None:
        assert scale == 0
        self._new(place, {"compute": compute, 2: 0, 3: 0, 4: 0, 7: 1})

    def cublasLtMatrixLayoutCreate(self, place: int, kind: int, rows: int, columns: int, leading: int) -> None:
        self._new(place, {"kind": kind, "rows": rows, "columns": columns, "leading": leading, 5: 1, 6: 0})

    def cublasLtMatmulPreferenceCreate(self, place: int) -> None:
        self._new(place, {})

    def _set(self, which: int, attribute: int, value: int, nbytes: int) -> None:
        self.made[which - 1][attribute] = int.from_bytes(ctypes.string_at(value, nbytes), "little")

    cublasLtMatmulDescSetAttribute = cublasLtMatrixLayoutSetAttribute = cublasLtMatmulPreferenceSetAttribute = _set

    def cublasLtMatmulAlgoGetHeuristic(self, handle: int, *facts: int) -> int:
        *_, most, results, count = facts
        number = min(most, self.algorithms)
        for k in range(number):
            ctypes.memset(results + k * _RESULT_NBYTES, 0, _RESULT_NBYTES)
            ctypes.c_uint64.from_address(results + k * _RESULT_NBYTES).value = k
        ctypes.c_int.from_address(count).value = number
        return number

    def cublasLtMatmul(self, handle: int, description: int, alpha: int, *f: int) -> dict[str, Any]:
        a, a_is, b, b_is, beta, c, c_is, d, d_is, algorithm, workspace, *_ = f
        assert (c, c_is) == (d, d_is)
        assert workspace
        what, first, second, result = (self.made[k - 1] for k in (description, a_is, b_is, d_is))
        m, n = result["rows"], result["columns"]
        k = first["rows"] if what[3] else first["columns"]
        assert (first["columns"] if what[3] else first["rows"]) == m
        assert (second["rows"] if what[4] else second["columns"]) == n
        product = [(at, x["leading"], x[6], x["kind"]) for at, x in ((a, first), (b, second), (d, result))]
        bias = what[8] if what[7] == 4 else 0
        number = ctypes.c_uint64.from_address(algorithm).value
        time.sleep(self.slowness.get(number, 0.0))
        sizes = (what[3], what[4], m, n, k, alpha, beta, product, what["compute"], result[5], bias)
        return self._multiply(*sizes) | {"algorithm": number, "bias": bool(bias), "device": bool(what[2])}
