"""Eager definitions of composites that are pointwise: loops and kernels that the compiler makes of their compositions.

In: a Composite that says it is pointwise (ops/whole.py). Out: its definition for arrays of f32 or f64, forward and
backward, and what eager/device/pointwise.py needs for that on a CUDA device.
Each is a library of its own, made at its first call on a machine; later it comes from the artefact cache. A composition
of this package may call what it likes; of one from elsewhere the key holds its own code, and its file.
Invariant: a start that finds it there captures and lowers nothing. So the key names the compiler's sources by size and
time, as Python knows whether what it compiled is fresh, and the composition by its code.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.eager.native import LARGE, SIGNATURE, RowKernels, kernels, loaded, text_of
from compiler_core.eager.operands import Grads, alike, dense, single
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Composite, Forward, Made, Prepare, define

if TYPE_CHECKING:
    from compiler_core.codegen.row_values import Rows

_CORE = Path(__file__).resolve().parent.parent
# rooms below compiler_core/ that make the text of a composition, and folders of them that do not: a test looks
_ROOMS = ("codegen", "graph", "loop_ir", "lowering", "names", "ops", "symbolic")
_APART = ("__pycache__", "cuda", "triton")


def define_pointwise(composite: Composite) -> None:
    """Give it the definition that is made of its composition, if there is a compiler."""
    library = None if kernels() is None else _library(composite)
    if library is None:
        return
    names, from_result = composite.numbers, composite.from_result
    forward, backward = (library.of_numbers(f"{composite.name}{end}", len(names)) for end in ("", "_backward"))

    def made(x: Array, *others: Array | None, **numbers: float) -> Made:
        if not are_one_kind(composite, x, others) or (numbers and not are_plain(numbers)):
            return None
        out = np.empty_like(x)  # in the order of x's memory
        given = [numbers[name] for name in names] if names else ()
        if x.flags.c_contiguous and (not others or all(y.flags.c_contiguous for y in others)):  # type: ignore[union-attr]
            forward((x, *others, out), *given)
        else:
            forward((*[_lying_as(out, y).ravel("K") for y in (x, *others)], out.ravel("K")), *given)  # type: ignore[arg-type]
        return out, ()

    def made_backward(
        needs: Sequence[bool], g: Array, out: Array | None, kept: Any, *operands: Array, **numbers: float
    ) -> Grads:
        shape, dtype = operands[0].shape, operands[0].dtype
        grads = [np.empty(shape, dtype) if need else None for need in needs]
        given = [numbers[name] for name in names] if names else ()
        read = operands if out is None else (out,)
        one = single(g)
        backward((dense(g) if one is None else one, *map(dense, read), *grads), *given)
        return grads

    reads = frozenset(() if from_result else range(composite.operands))
    define(
        composite.name,
        made,
        made_backward,
        reads=reads,
        reads_out=from_result,
        prepare=_prepare_by(library, composite, made),
    )


def _prepare_by(library: RowKernels, composite: Composite, made: Forward) -> Prepare:
    names = composite.numbers
    forms = library.forms(composite.name, *SIGNATURE, *(ctypes.c_double,) * len(names))

    def prepare(x: Array, *others: Array | None, **numbers: float) -> Callable[..., Made] | None:
        if not are_one_kind(composite, x, others) or not are_plain(numbers):
            return None
        form, shape, dtype, empty = forms[x.size > LARGE], x.shape, x.dtype, np.empty
        given = [numbers[name] for name in names]

        def run(*operands: Array) -> Made:
            out = empty(shape, dtype)
            return made(*operands, **numbers) if form((*operands, out), *given) else (out, ())

        return run

    return prepare


def are_one_kind(composite: Composite, x: Array, others: Sequence[Array | None]) -> bool:
    """Whether all are there, of one shape, and of f32 or f64."""
    if not alike(x, *others) or len(others) != composite.operands - 1:
        return False
    return not others or all(y is not None and y.shape == x.shape for y in others)


def _lying_as(out: Array, x: Array) -> Array:
    """x in the order of out's memory, without gaps or repeats."""
    if x.strides == out.strides:
        return x
    made = np.empty_like(out)
    made[...] = x
    return made


def are_plain(numbers: dict[str, Any]) -> bool:
    """Whether they are Python's numbers: of others the composition knows what they mean."""
    return all(isinstance(number, (float, int)) for number in numbers.values())


def _library(composite: Composite) -> RowKernels | None:
    def source() -> str:
        from compiler_core.codegen.pointwise import cpp_text

        return cpp_text(told(composite), text_of("arrays.h"))

    parts = {**identity(composite), "arrays": text_of("arrays.h")}
    return loaded(RowKernels, composite.name, source, f"the composite {composite.name}", parts)


def told(composite: Composite, present: tuple[bool, ...] = ()) -> Rows:
    """What the compiler wants to know of it; present: which parameters there are, all of one that is pointwise."""
    from compiler_core.codegen.row_values import Rows

    present = (True,) * (composite.operands - 1) if composite.pointwise else present
    place, said = {composite.place: 1} if composite.place else {}, "rows" if composite.rows else "pointwise"
    return Rows(composite.name, composite.compose, composite.gradient, composite.numbers, place, present, said)


def identity(composite: Composite) -> dict[str, str]:
    """All that decides its text, for a key."""
    code, file = composite.compose.__code__, Path(composite.compose.__code__.co_filename)
    said = [f"{composite.name} {composite.from_result}"]
    for one in (code,) if composite.gradient is None else (code, composite.gradient.__code__):
        said.append(f"{one.co_code.hex()} {one.co_consts!r} {one.co_names!r}")
    return {
        "composition": " ".join(said),
        "file": _stamp(str(file), file.stat()) if file.is_file() else "",
        "compiler": compiler(),
    }


@cache
def compiler() -> str:
    """Names, sizes and times of the sources that make texts."""
    return "\n".join(sorted(_stamp(entry.path, entry.stat()) for entry in sources()))


def _stamp(path: str, stat: os.stat_result) -> str:
    return f"{path} {stat.st_size} {stat.st_mtime_ns}"


def sources() -> Iterator[os.DirEntry[str]]:
    """The files that may decide what text is made of a composition."""
    yield from (entry for entry in os.scandir(_CORE) if entry.name.endswith(".py"))
    waiting = [str(_CORE / room) for room in _ROOMS]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            if entry.name.endswith(".py"):
                yield entry
            elif entry.name not in _APART and entry.is_dir():
                waiting.append(entry.path)
