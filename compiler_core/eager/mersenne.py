"""Native steps of torch's draws (ops/random/mersenne.py): the functions of mersenne_often.h and mersenne_seldom.h.

In: a state u8[5056]; arrays, dense; numbers. Out: the arrays, filled. Two libraries of their own: one of what nearly
every script draws, which takes 0.2 s to build, in the first draw of a machine, and one of the rest; then they come from
the artefact cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from compiler_core.eager.native import LARGE, EagerLibrary, loaded, text_of
from compiler_core.ops.random.mersenne import NATIVE, NUMPY, Steps
from compiler_core.ops.registry import Array

_ARRAY, _DOUBLE, _INT, _WORD = ctypes.py_object, ctypes.c_double, ctypes.c_int64, ctypes.c_uint64
_REAL: dict[str, tuple[Any, ...]] = {"uniform": (_DOUBLE, _DOUBLE), "normals": (_DOUBLE, _DOUBLE, _INT)}  # by dtype
_OFTEN: dict[str, tuple[Any, ...]] = {"normal": (_DOUBLE, _DOUBLE), "integers": (_INT, _WORD, _INT), "permutation": ()}
_SELDOM: dict[str, tuple[Any, ...]] = {
    "log_normal": (_DOUBLE, _DOUBLE),
    "exponential": (_DOUBLE,),
    "cauchy": (_DOUBLE, _DOUBLE),
    "geometric": (_DOUBLE,),
    "bernoulli": (_DOUBLE,),
    "poisson": (_ARRAY,),
    "gamma": (_ARRAY,),
    "binomial": (_ARRAY, _ARRAY),
}
# declared plainly: as vectors (libmvec) they would round otherwise than torch's
_LIBM = ("log", "log1p", "sin", "cos", "tan", "exp", "ceil", "floor", "sqrt", "lgamma")


def source(calls: str) -> str:
    """A library's one translation unit; calls: mersenne_often.h or mersenne_seldom.h."""
    from compiler_core.codegen.cpp.helpers import TYPES

    declared = "".join(f'extern "C" double {name}(double);\n' for name in _LIBM)
    declared += 'extern "C" double pow(double, double);\nextern "C" float log1pf(float);\n'
    return "".join([TYPES, declared, text_of("arrays.h"), text_of("mersenne.h"), text_of(calls)])


def native_steps() -> Steps | None:
    """The functions, built if need be; None where they cannot be had, which is said in the log."""
    library = loaded(EagerLibrary, "mersenne", lambda: source("mersenne_often.h"), "torch's draws")
    return None if library is None else _NativeSteps(library)  # type: ignore[return-value]


@cache
def _seldom() -> Any:
    """What is drawn seldom, and of doubles: native, built if need be, or NumPy's, which is said in the log."""
    library = loaded(EagerLibrary, "mersenne_seldom", lambda: source("mersenne_seldom.h"), "torch's rarer draws")
    return NUMPY if library is None else SimpleNamespace(**_functions(library, _REAL | _SELDOM))


class _NativeSteps:
    """See `Steps` of ops/random/mersenne.py; and those that draw by rejection, of arrays of parameters."""

    def __init__(self, library: EagerLibrary) -> None:
        self.seed = library.forms("seed", _ARRAY, _WORD)[0]
        word64 = library.forms("word64", _ARRAY)[0]
        self.word64 = lambda state: word64(state) % 2**64
        functions = _functions(library, _REAL | _OFTEN)
        for name in _REAL:
            setattr(self, name, _by_dtype(name, functions.pop(name)))
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        if name not in _SELDOM:
            raise AttributeError(f"there are no native steps {name!r}", name=name, obj=self)
        return getattr(_seldom(), name)


def _functions(library: EagerLibrary, signatures: dict[str, tuple[Any, ...]]) -> dict[str, Callable[..., None]]:
    return {name: _by_size(*library.forms(name, _ARRAY, _ARRAY, *more)) for name, more in signatures.items()}


def _by_dtype(name: str, of_floats: Callable[..., None]) -> Callable[..., None]:
    def fill(state: Array, out: Array, *numbers: Any) -> None:
        (of_floats if out.dtype == np.float32 else getattr(_seldom(), name))(state, out, *numbers)

    return fill


def _by_size(quick: Callable[..., int], free: Callable[..., int]) -> Callable[..., None]:
    def fill(state: Array, out: Array, *parameters: Any) -> None:
        (free if out.size > LARGE else quick)(state, out, *parameters)

    return fill


NATIVE.fill(native_steps)
