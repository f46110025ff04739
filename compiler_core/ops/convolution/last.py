"""Convolution and its two gradients with channels last in memory, as routines of oneDNN.

In: x: f32[N, *n, C], weight: f32[O, C/groups, *k] as everywhere, g: f32[N, *o, O]; attributes as in op.py.
Out: convolution_last f32[N, *o, O], convolution_last_input f32[N, *n, C], convolution_last_weight as the weight.
These stand only in graphs that are differentiated already: the pass graph/passes/channels_last.py puts them there.
Their NumPy definition is op.py's, axes moved. The native call runs a list of primitives that
runtime/onednn.py prepared when the code was loaded: reorder the weight into oneDNN's blocks, convolve, reorder back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compiler_core.dtype import float32
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.checks import check_dtype
from compiler_core.ops.convolution import op as first
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register, run_eager
from compiler_core.ops.routine import CCall, Native, Routine, is_contiguous, register_routine
from compiler_core.ops.rules import OwnCode

Dims = tuple[int, ...]
_WHY = "the compiler writes it into graphs that are differentiated already"

PRIMITIVES = """\
// Runs the primitives of a plan of runtime/onednn.py. Memory objects live for one call: threads share nothing.
struct dc_argument { int32_t name; void* memory; };
static int32_t dc_primitives(const void* plan, char* scratch, void* const* arrays) {
  const int64_t* word = (const int64_t*)plan;
  const auto create = (int32_t (*)(void**, const void*, const void*, void*))word[0];
  const auto destroy = (int32_t (*)(void*))word[1];
  const auto execute = (int32_t (*)(const void*, void*, int32_t, const dc_argument*))word[2];
  const void* const engine = (const void*)word[3];
  void* const stream = (void*)word[4];
  int64_t steps = word[5];
  int32_t status = 0;
  for (word += 6; status == 0 && steps > 0; --steps) {
    dc_argument arguments[8];
    const void* const primitive = (const void*)word[0];
    const int32_t count = (int32_t)word[1];
    int32_t made = 0;
    for (word += 2; made < count; ++made, word += 3) {
      void* const data = word[1] >= 0 ? arrays[word[1]] : (void*)(scratch - word[1] - 1);
      arguments[made].name = (int32_t)word[0];
      status = create(&arguments[made].memory, (const void*)word[2], engine, data);
      if (status) break;
    }
    if (!status) status = execute(primitive, stream, count, arguments);
    while (made > 0) destroy(arguments[--made].memory);
  }
  return status;
}

"""


# ---- from channels last to first, and back


def to_first(rank: int) -> Dims:
    """The permutation that makes [N, C, *n] of [N, *n, C], `rank` dims in all."""
    return (0, rank - 1, *range(1, rank - 1))


def to_last(rank: int) -> Dims:
    """The permutation that makes [N, *n, C] of [N, C, *n], `rank` dims in all."""
    return (0, *range(2, rank), 1)


def _first(meta: TensorMeta) -> TensorMeta:
    return meta.with_shape(tuple(meta.shape[d] for d in to_first(meta.ndim)))


def _last(meta: TensorMeta) -> TensorMeta:
    return meta.with_shape(tuple(meta.shape[d] for d in to_last(meta.ndim)))


# ---- the rules


def _infer(x: TensorMeta, weight: TensorMeta, **attrs: Any) -> TensorMeta:
    check_dtype("convolution_last", x, (float32,))
    return _last(first.CONVOLUTION.infer(_first(x), weight, **attrs))


def _infer_input(g: TensorMeta, weight: TensorMeta, **attrs: Any) -> TensorMeta:
    check_dtype("convolution_last_input", g, (float32,))
    return _last(first.CONVOLUTION_INPUT.infer(_first(g), weight, **attrs))


def _infer_weight(x: TensorMeta, g: TensorMeta, **attrs: Any) -> TensorMeta:
    check_dtype("convolution_last_weight", x, (float32,))
    return first.CONVOLUTION_WEIGHT.infer(_first(x), _first(g), **attrs)


def _as_first(x: Array) -> Array:
    return np.transpose(x, to_first(x.ndim))


def _as_last(x: Array) -> Array:
    return np.transpose(x, to_last(x.ndim)).copy(order="C")


def _eager(xp: Any, x: Array, weight: Array, **attrs: Any) -> Array:
    return _as_last(run_eager(first.CONVOLUTION, (_as_first(x), weight), attrs))


def _eager_input(xp: Any, g: Array, weight: Array, **attrs: Any) -> Array:
    return _as_last(run_eager(first.CONVOLUTION_INPUT, (_as_first(g), weight), attrs))


def _eager_weight(xp: Any, x: Array, g: Array, **attrs: Any) -> Array:
    return xp.ascontiguousarray(run_eager(first.CONVOLUTION_WEIGHT, (_as_first(x), _as_first(g)), attrs))  # type: ignore[no-any-return]


# ---- as routines


def _flops(x: TensorMeta, weight: TensorMeta, **attrs: Any) -> int:
    return first.flops(_first(x), weight, **attrs)


def _flops_weight(x: TensorMeta, g: TensorMeta, **attrs: Any) -> int:
    return first.flops_weight(_first(x), _first(g), **attrs)


def _emit(call: CCall) -> Iterator[str]:
    arrays = ", ".join(f"(void*)({array.address})" for array in (*call.operands, call.result))
    yield f"  {{ void* const arrays[] = {{{arrays}}};"
    yield f"    if (dc_primitives({call.plan}, {call.scratch}, arrays)) return {call.failed}; }}"


def _routine(name: str, eager: Callable[..., Array], flops: Callable[..., int]) -> Routine:
    def define(out: Array, *operands: Array, **attrs: Any) -> None:
        with np.errstate(all="ignore"):
            out[...] = eager(np, *operands, **attrs)

    native = Native(lambda operands, attrs: (), _emit, PRIMITIVES, planned=True)
    return register_routine(Routine(name, define, native=native, accepts=is_contiguous, flops=flops))


# ---- registration


def _samples(op: Op) -> tuple[Sample, ...]:
    """Those of convolution.py that are not empty, axes moved."""
    found = []
    for sample in op.samples:
        moved = [
            shape if place == 1 and op is not first.CONVOLUTION_WEIGHT else _moved(shape)
            for place, shape in enumerate(sample.shapes)
        ]
        if all(math.prod(shape) for shape in moved):
            found.append(Sample(tuple(moved), sample.attrs, low=sample.low, high=sample.high))
    return tuple(found)


def _moved(shape: Shape) -> Shape:
    return tuple(shape[d] for d in to_last(len(shape)))


_OURS = OwnCode("made by our own code generators, for their layouts")


def _register(op: Op, infer: Any, eager: Callable[..., Array], flops: Callable[..., int]) -> Op:
    name = op.name.replace("convolution", "convolution_last")
    routine = _routine(name, eager, flops)
    return register(Op(name, infer, eager, NotDifferentiable(_WHY), routine, _samples(op), (float32,), engines=_OURS))


CONVOLUTION_LAST = _register(first.CONVOLUTION, _infer, _eager, _flops)
CONVOLUTION_LAST_INPUT = _register(first.CONVOLUTION_INPUT, _infer_input, _eager_input, first.flops_input)
CONVOLUTION_LAST_WEIGHT = _register(first.CONVOLUTION_WEIGHT, _infer_weight, _eager_weight, _flops_weight)
LAST = {
    first.CONVOLUTION: CONVOLUTION_LAST,
    first.CONVOLUTION_INPUT: CONVOLUTION_LAST_INPUT,
    first.CONVOLUTION_WEIGHT: CONVOLUTION_LAST_WEIGHT,
}
