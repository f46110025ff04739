"""Convolution and its two gradients as calls of cuDNN: routines that stand in programs, never in graphs.

In: operands as of ops/convolution/inner.py (channels last everywhere), 16-bit floats; attributes as there, and `mode`,
`place`, the engine that was chosen, `workspace`, the bytes that it wants. Out: as there. codegen/cuda/convolutions.py
puts them in the place of convolution_inner's when code is compiled on a device that has cuDNN; runtime/cuda/cudnn.py
chooses the engine, and makes the plan that generated code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from compiler_core.ops.convolution.inner import INNER
from compiler_core.ops.routine import Attrs, CCall, CudaCall, Routine, Strided, is_contiguous, register_routine

_SYMBOLS = (
    "cudnnBackendCreateDescriptor",
    "cudnnBackendSetAttribute",
    "cudnnBackendFinalize",
    "cudnnBackendExecute",
    "cudnnBackendDestroyDescriptor",
)

_HELPER = """\
// Runs an execution plan of cuDNN's on three arrays, known to it as 1, 2 and 3.
static int32_t dc_cudnn(dc_gpu* gpu, int32_t step, const void* create, const void* set, const void* finalize,
                        const void* execute, const void* destroy, const void* plan, const void* workspace,
                        const void* a, const void* b, const void* c) {
  typedef int32_t (*attribute)(void*, int32_t, int32_t, int64_t, const void*);
  const int64_t names[] = {1, 2, 3};
  const void* const arrays[] = {a, b, c};
  void* pack = nullptr;
  int32_t code = ((int32_t (*)(int32_t, void**))create)(16, &pack);
  if (code) return dc_done(gpu, step, "cudnnBackendCreateDescriptor", code);
  code = ((attribute)set)(pack, 1000, 3, 3, names);
  if (!code) code = ((attribute)set)(pack, 1001, 6, 3, arrays);
  if (!code) code = ((attribute)set)(pack, 1003, 6, 1, &workspace);
  if (!code) code = ((int32_t (*)(void*))finalize)(pack);
  if (!code) code = ((int32_t (*)(void*, const void*, void*))execute)(gpu->dnn, plan, pack);
  ((int32_t (*)(void*))destroy)(pack);
  return dc_done(gpu, step, "cudnnBackendExecute", code);
}

"""


def _always(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> bool:
    return True


def _symbols(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> tuple[str, ...]:
    return _SYMBOLS


def _workspace(attrs: Attrs) -> int:
    return int(attrs["workspace"])


def _emit(call: CCall) -> Iterator[str]:
    functions = ", ".join(call.symbol(name) for name in _SYMBOLS)
    arrays = ", ".join(array.address for array in (*call.operands, call.result))
    yield f"  if (const int32_t status = dc_cudnn({call.device}, {functions},"
    yield f"          {call.plan}, {call.scratch}, {arrays}))"
    yield "    return status;"


def _without_engine(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same of a call whose attributes name an engine."""

    def wrapped(*operands: Any, mode: int = 0, place: int = 0, workspace: int = 0, **attrs: Any) -> Any:
        return function(*operands, **attrs)

    return wrapped


def _register(inner: Routine) -> Routine:
    name = inner.name.replace("convolution_inner", "convolution_cudnn")
    call = CudaCall(_always, _symbols, _emit, _HELPER, planned=True, scratch=_workspace)
    define, flops = _without_engine(inner.define), _without_engine(inner.flops)
    return register_routine(Routine(name, define, accepts=is_contiguous, flops=flops, cuda=call))


# by the routine that they stand for
BY_CUDNN: Mapping[str, Routine] = {op.name: _register(op.lower) for op in INNER.values()}  # type: ignore[arg-type]
