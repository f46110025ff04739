"""Copies between a CUDA device and the host's pinned memory that travel beside the computation: two library routines.

In: a program's buffer, and one in the host's memory, either way round. `host_copy_begins` is enqueued where what is
copied is complete, and where the memory that it is copied to is free; `host_copy_ends` where it must be done: it holds
up the stream, not the host. attrs: event, the number of the copy in its program.
`gpu->copies` of the launcher (codegen/cuda/launcher.py) has the stream that all copies of a thread travel on, one after
another, and two events for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler_core.ops.routine import Array, Attrs, CCall, CudaCall, Routine, Strided, is_contiguous, register_routine

_HELPER = """\
// Of copy k: an event of the stream before it begins, and one of the stream that it travels on when it is done.
typedef int32_t (*dc_event_record)(void* event, void* stream);
typedef int32_t (*dc_event_wait)(void* stream, void* event, uint32_t flags);
static inline int32_t dc_copy_begins(dc_gpu* gpu, int32_t step, const void* record, const void* wait, const void* copy,
                                     int64_t k, const void* to, const void* from, uint64_t nbytes) {
  typedef int32_t (*copies)(const void*, const void*, uint64_t, void*);
  void *beside = gpu->copies[0], *before = gpu->copies[1 + 2 * k], *after = gpu->copies[2 + 2 * k];
  int32_t code = ((dc_event_record)record)(before, gpu->stream);
  if (code) return dc_done(gpu, step, "cuEventRecord", code);
  code = ((dc_event_wait)wait)(beside, before, 0);
  if (code) return dc_done(gpu, step, "cuStreamWaitEvent", code);
  code = ((copies)copy)(to, from, nbytes, beside);
  if (code) return dc_done(gpu, step, "cuMemcpyAsync", code);
  return dc_done(gpu, step, "cuEventRecord", ((dc_event_record)record)(after, beside));
}
static inline int32_t dc_copy_ends(dc_gpu* gpu, int32_t step, const void* wait, int64_t k) {
  return dc_done(gpu, step, "cuStreamWaitEvent", ((dc_event_wait)wait)(gpu->stream, gpu->copies[2 + 2 * k], 0));
}
"""
_BEGINNING = ("cuEventRecord", "cuStreamWaitEvent", "cuMemcpyAsync")


def _takes(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> bool:
    return True


def _copy(out: Array, source: Array, **attrs: Any) -> None:
    out[...] = source


def _nothing(out: Array, source: Array, **attrs: Any) -> None:
    return None


def _begin(call: CCall) -> Iterator[str]:
    (source,), target = call.operands, call.result
    symbols = ", ".join(map(call.symbol, _BEGINNING))
    yield f"  if (const int32_t status = dc_copy_begins({call.device}, {symbols}, {call.attrs['event']},"
    yield f"          {target.address}, {source.address}, {target.layout.meta.nbytes})) return status;"


def _end(call: CCall) -> Iterator[str]:
    wait = call.symbol("cuStreamWaitEvent")
    yield f"  if (const int32_t status = dc_copy_ends({call.device}, {wait}, {call.attrs['event']})) return status;"


BEGINS = register_routine(
    Routine(
        "host_copy_begins",
        _copy,
        accepts=is_contiguous,
        cuda=CudaCall(_takes, lambda *_: _BEGINNING, _begin, _HELPER),
    )
)
ENDS = register_routine(
    Routine(
        "host_copy_ends",
        _nothing,
        accepts=is_contiguous,
        reads_result=lambda attrs: True,
        cuda=CudaCall(_takes, lambda *_: ("cuStreamWaitEvent",), _end, _HELPER),
    )
)
