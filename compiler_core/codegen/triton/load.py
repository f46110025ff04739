"""Generated Triton source made callable: by Triton's interpreter on NumPy arrays, or by its compiler to PTX.

In: a `TritonModule`. Out: `load(...)`: function name -> Triton function; `compile_ptx(...)`: PTX text.
The interpreter expects tensors with torch's storage protocol; `HostArray` offers just that over NumPy memory, without
torch. Where it spreads one truth value over a block it makes a number of it, of what was compared; here it is mended.
Raises BackendError where Triton is not installed.
"""

from __future__ import annotations

import functools
import linecache
import sys
import types
from typing import Any

import numpy as np

from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.dtype import bool_, of
from compiler_core.errors import BackendError
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass


def import_triton() -> Any:
    """The triton package. Raises BackendError with the remedy if there is none."""
    try:
        import triton
    except ImportError as error:
        raise BackendError(
            "Triton is not installed", remedy="pip install 'distcompile[triton]'", got=str(error)
        ) from error
    return triton


def load(module: TritonModule, *, interpret: bool) -> dict[str, Any]:
    """The module's launchable functions. interpret: for Triton's interpreter, else for its compiler."""
    triton = import_triton()
    if interpret:
        _mend_interpreter()
    name = f"distcompile_triton_{abs(hash((module.source, interpret))):x}"
    filename = f"<{name}>"  # Triton reads a function's source through linecache
    linecache.cache[filename] = (len(module.source), None, module.source.splitlines(keepends=True), filename)
    made = types.ModuleType(name)
    sys.modules[name] = made
    before = triton.knobs.runtime.interpret
    triton.knobs.runtime.interpret = interpret
    try:
        exec(compile(module.source, filename, "exec"), made.__dict__)
    finally:
        triton.knobs.runtime.interpret = before
    return {launch.function: vars(made)[launch.function] for made_ in module.launches.values() for launch in made_}


@functools.cache
def _mend_interpreter() -> None:
    """Spread truth values as such: to Triton 3.9 a comparison has its operands' dtype, and & takes no floats."""
    from triton.language import int1
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    spread = InterpreterBuilder.create_splat

    def create_splat(builder: Any, kind: Any, one: Any) -> Any:
        if one.data.dtype != np.bool_:
            return spread(builder, kind, one)
        return TensorHandle(np.full(kind.shape, one.data.item()), int1)

    InterpreterBuilder.create_splat = create_splat


def compile_ptx(function: Any, launch: Launch, capability: int = 90) -> str:
    """PTX of one launch for compute capability `capability` (90: sm_90, Hopper). Needs no GPU."""
    triton = import_triton()
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(fn=function, signature=dict(launch.signature), constexprs={})
    text: str = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
    return text


@dataclass
class _Storage:
    """Memory as Triton's interpreter sees it: it copies storages to the host and back, which here are one."""

    array: Array

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def cpu(self) -> _Storage:
        return self

    def copy_(self, other: _Storage) -> None:
        if other.array is not self.array:
            np.copyto(self.array, other.array)


class HostArray:
    """A flat NumPy array with the part of torch's tensor protocol that Triton's interpreter asks for."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.dtype = "int8" if of(array) is bool_ else of(array).name

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> _Storage:
        return _Storage(self.array)

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return (self.array.size,)

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def new_empty(self, size: int, *, device: str) -> HostArray:
        return HostArray(self.array[:size])

    def set_(self, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> None:
        self.array = storage.array
