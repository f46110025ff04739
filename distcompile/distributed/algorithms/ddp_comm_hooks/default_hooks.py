"""The plain average, and the same with gradients that travel as 16-bit floats; and wrappers of other hooks.

In: state: a process group, or None for the default one; a bucket of local gradients. Out: a Future of the average.
`allreduce_hook`, `fp16_compress_hook` and `bf16_compress_hook`, registered for DDP's own group, become one native
collective: gradients are divided first, rounded to 16 bits, summed in float32 and rounded once. Called by another hook
they do the same on Tensors. fp16 overflows above 65,504; bf16 keeps float32's range at 8 bits of precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from collectives.call import Wire
from compiler_core.dtype import DType, bfloat16, float16
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.comm_hook import GradBucket, Hook
from distcompile.distributed.group import ProcessGroup, get_world_size
from distcompile.distributed.tensors import all_reduce
from distcompile.futures import Future

F = TypeVar("F", bound=Callable[..., Any])


def travels_as(wire: Wire) -> Callable[[F], F]:
    """Mark a hook that is the plain average, travelling as `wire`: DDP then needs no Python for it."""

    def mark(hook: F) -> F:
        hook.native_wire = wire  # type: ignore[attr-defined]
        return hook

    return mark


@travels_as("")
def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """The average over all ranks: what DDP does without a hook."""
    return average_future(process_group, bucket.buffer())


@travels_as("float16")
def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """The average, travelling as float16."""
    return _compressed(process_group, bucket, float16)


@travels_as("bfloat16")
def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """The average, travelling as bfloat16."""
    return _compressed(process_group, bucket, bfloat16)


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """`hook` on gradients cast to float16; its result is cast back."""
    return _wrapper(hook, float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """`hook` on gradients cast to bfloat16; its result is cast back."""
    return _wrapper(hook, bfloat16)


def average_future(process_group: ProcessGroup | None, tensor: Tensor) -> Future[Tensor]:
    """A Future of `tensor`, replaced by its average over the ranks of the group."""
    tensor.div_(get_world_size(process_group))
    work = all_reduce(tensor, group=process_group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])


def _compressed(process_group: ProcessGroup | None, bucket: GradBucket, dtype: DType) -> Future[Tensor]:
    buffer = bucket.buffer()
    return _cast_back(average_future(process_group, buffer.to(dtype)), buffer.dtype)


def _wrapper(hook: Hook, dtype: DType) -> Hook:
    def wrapped(state: Any, bucket: GradBucket) -> Future[Tensor]:
        wide = bucket.buffer().dtype
        bucket.set_buffer(bucket.buffer().to(dtype))
        return _cast_back(hook(state, bucket), wide)

    wrapped.__qualname__ = f"{dtype.name}({getattr(hook, '__qualname__', hook)})"
    return wrapped


def _cast_back(future: Future[Tensor], dtype: DType) -> Future[Tensor]:
    return future.then(lambda done: done.value().to(dtype))
