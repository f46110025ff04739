"""Native steps of torch's draws (ops/random/mersenne.py): the functions of mersenne.h.

In: a state u8[5056]; arrays, dense; numbers. Out: the arrays, filled. A library of its own, of some hundred lines: it
is built in about a second, in the first draw of a machine, and then comes from the artefact cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from compiler_core.eager.native import LARGE, EagerLibrary, loaded, text_of
from compiler_core.ops.random.mersenne import NATIVE, Steps
from compiler_core.ops.registry import Array

_ARRAY, _DOUBLE, _INT, _WORD = ctypes.py_object, ctypes.c_double, ctypes.c_int64, ctypes.c_uint64
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "uniform": (_DOUBLE, _DOUBLE),
    "normals": (_DOUBLE, _DOUBLE, _INT),
    "normal": (_DOUBLE, _DOUBLE),
    "log_normal": (_DOUBLE, _DOUBLE),
    "exponential": (_DOUBLE,),
    "cauchy": (_DOUBLE, _DOUBLE),
    "geometric": (_DOUBLE,),
    "bernoulli": (_DOUBLE,),
    "integers": (_INT, _WORD, _INT),
    "permutation": (),
    "poisson": (_ARRAY,),
    "gamma": (_ARRAY,),
    "binomial": (_ARRAY, _ARRAY),
}
# declared plainly: as vectors (libmvec) they would round otherwise than torch's
_LIBM = ("log", "log1p", "sin", "cos", "tan", "exp", "ceil", "floor", "sqrt", "lgamma")


def source() -> str:
    """The library's one translation unit."""
    from compiler_core.codegen.cpp.helpers import TYPES

    declared = "".join(f'extern "C" double {name}(double);\n' for name in _LIBM)
    declared += 'extern "C" double pow(double, double);\nextern "C" float log1pf(float);\n'
    return "".join([TYPES, declared, text_of("arrays.h"), text_of("mersenne.h")])


def native_steps() -> Steps | None:
    """The functions, built if need be; None where they cannot be had, which is said in the log."""
    library = loaded(EagerLibrary, "mersenne", source, "torch's draws")
    return None if library is None else _NativeSteps(library)  # type: ignore[return-value]


class _NativeSteps:
    """See `Steps` of ops/random/mersenne.py; and those that draw by rejection, of arrays of parameters."""

    def __init__(self, library: EagerLibrary) -> None:
        self.seed = library.forms("seed", _ARRAY, _WORD)[0]
        word64 = library.forms("word64", _ARRAY)[0]
        self.word64 = lambda state: word64(state) % 2**64
        for name, arguments in _SIGNATURES.items():
            setattr(self, name, _by_size(*library.forms(name, _ARRAY, _ARRAY, *arguments)))


def _by_size(quick: Callable[..., int], free: Callable[..., int]) -> Callable[..., None]:
    def fill(state: Array, out: Array, *parameters: Any) -> None:
        (free if out.size > LARGE else quick)(state, out, *parameters)

    return fill


NATIVE.fill(native_steps)
