"""torch.utils.checkpoint: a function whose intermediate values are dropped, and computed again in the backward.

In: a function and its arguments. Out: its result, with the same gradients.
Eager, use_reentrant=False: the recording of the call is replaced by one node
(`compiler_core/tensor/autograd/segment.py`). use_reentrant=True: an autograd Function that runs it without recording,
and a backward inside the backward; tensors that the function finds elsewhere than in its arguments get gradients in
`.grad` alone, as in torch. Compiled, either way: the nodes of the call form a region of the graph, of which the
partition keeps nothing. The random state, and what autocast casts to, is that of the first run when it is run again
(preserve_rng_state), and so is the shard that it draws for.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from compiler_core.breaking import breaks_graph
from compiler_core.errors import AutogradError
from compiler_core.graph.ir import Call
from compiler_core.graph.kept import Keep
from compiler_core.ops.casting import acting, casting, own_casts
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.engine import running_backwards
from compiler_core.tensor.autograd.function import Function
from compiler_core.tensor.autograd.grad_mode import enable_grad, is_grad_enabled
from compiler_core.tensor.autograd.segment import RecomputationError as CheckpointError
from compiler_core.tensor.autograd.segment import backward_within, frozen, record_segment
from compiler_core.tensor.making.random import States, drawing_from, saved_states
from compiler_core.tensor.making.random_state import current_shard, set_shard
from compiler_core.tensor.observed import composed_now, composing_as
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import flatten, leaves_of
from distcompile.errors import ArgumentError
from distcompile.utils.selective_checkpoint import (
    CheckpointPolicy,
    Selective,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointError",
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

Contexts = tuple[Any, Any]  # of the first run and of the second


def noop_context_fn() -> Contexts:
    """The contexts of a checkpoint that was given none."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Accepted: an error of ours names the operation at which the two runs differ, always."""
    yield


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Accepted: the second run always ends."""
    yield


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), whose intermediate values are computed again in the backward.

    preserve_rng_state=True: with the same random bits. determinism_check: "default" compares shapes and dtypes of what
    the two runs recorded, "none" does not. Raises: ArgumentError (a ValueError) for keyword arguments, `context_fn` or
    `debug` with use_reentrant=True; in the backward CheckpointError where the two runs differ.
    """
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
                      "use_reentrant=False is recommended.", stacklevel=2)  # fmt: skip
        use_reentrant = True
    preserve = bool(kwargs.pop("preserve_rng_state", True))
    if use_reentrant and kwargs:
        raise ArgumentError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise ArgumentError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if determinism_check not in ("default", "none"):
        raise ArgumentError("determinism_check should be one of ['default', 'none']", got=repr(determinism_check))
    if current_trace() is not None:
        selective = _selective(context_fn)
        if selective is None and context_fn is not noop_context_fn:
            again = functools.partial(checkpoint, function, *args, use_reentrant=use_reentrant, context_fn=context_fn)
            return _with_contexts(again, kwargs | {"preserve_rng_state": preserve, "debug": debug})
        return _in_region(functools.partial(function, *args, **kwargs), None if selective is None else selective.keeps)
    if use_reentrant:
        if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
        return _Reentrant.apply(function, _State(preserve), *args)
    return _dropped(function, args, kwargs, _State(preserve), context_fn(), determinism_check != "none")


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Each of `functions` (a Sequential, or a list) on the result of the one before, all but the last of `segments`
    runs of them checkpointed. Raises ArgumentError for keyword arguments other than preserve_rng_state."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ArgumentError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    layers: Sequence[Callable[[Any], Any]] = list(functions.children() if hasattr(functions, "children") else functions)
    size, end = len(layers) // segments, 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        run = functools.partial(_chain, layers[start:end])
        input = checkpoint(run, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _chain(layers[end:], input)


def _chain(layers: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    for layer in layers:
        value = layer(value)
    return value


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs that tensors among the arguments, in containers too, lie on, and the states of their generators."""
    from distcompile import cuda

    on_gpus = (x for x in leaves_of(args, fields=True) if isinstance(x, Tensor) and x.device.is_gpu)
    devices = [int(x.device.index or 0) for x in on_gpus]
    return devices, [cuda.get_rng_state(device) for device in devices]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Give the generators of GPUs these states."""
    from distcompile import cuda

    for device, state in zip(devices, states):
        cuda.set_rng_state(state, device)


class _State:
    """What a first run drew with; `again()` is a block in which it is so once more, where that was asked for."""

    def __init__(self, preserve: bool) -> None:
        self.random: States | None = saved_states() if preserve else None
        self.shard = current_shard()
        self.casts_to = casting.acting
        self.composed = composed_now()

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        drawn = contextlib.nullcontext() if self.random is None else drawing_from(self.random)
        composing = composing_as(self.composed)
        with drawn, set_shard(self.shard), enable_grad(), acting(self.casts_to), own_casts(), composing:
            yield


@breaks_graph("a checkpoint's context_fn cannot be traced")
def _with_contexts(run: Callable[..., Any], options: dict[str, Any]) -> Any:
    """A checkpoint with contexts of its own, outside of any graph."""
    return run(**options)


def _selective(context_fn: Callable[[], Contexts]) -> Selective | None:
    """The first context, if it is one of a policy; a policy is asked while the function is traced."""
    first = None if context_fn is noop_context_fn else context_fn()[0]
    return first if isinstance(first, Selective) else None


def _in_region(run: Callable[[], Any], keeps: Callable[[Call], Keep] | None) -> Any:
    """Called while tracing: what `run` records is a region of the graph. keeps: what of it is kept, and where."""
    trace: Any = current_trace()
    if not hasattr(trace, "checkpointed"):  # a backward that is traced: nothing of it is kept anyway
        return run()
    with trace.checkpointed(keeps):
        return run()


def _dropped(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: _State,
    contexts: Contexts,
    check: bool,
) -> Any:
    """use_reentrant=False."""
    if not is_grad_enabled():
        return function(*args, **kwargs)
    leaves, spec = flatten((args, kwargs), fields=True)
    given = [frozen(leaf) if isinstance(leaf, Tensor) else functools.partial(_same, leaf) for leaf in leaves]
    result: Any = None

    def run() -> Iterator[Tensor]:
        nonlocal result
        with own_casts(), contexts[0]:
            result = function(*args, **kwargs)
        return _tensors(leaves_of((result, args, kwargs), fields=True))

    def rerun() -> Iterator[Tensor]:
        now = [thaw() for thaw in given]
        again, more = spec.unflatten(now)
        with state.again(), contexts[1]:
            return _tensors([*leaves_of(function(*again, **more), fields=True), *now])

    record_segment(run, rerun, check=check)
    return result


def _same(value: Any) -> Any:
    return value


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    return iter([value for value in values if isinstance(value, Tensor)])


class _Reentrant(Function):
    """use_reentrant=True."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], state: _State, *args: Any) -> Any:
        ctx.function, ctx.state = function, state
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with own_casts():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if running_backwards()[-1].wanted is not None:
            raise AutogradError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward()", remedy="use_reentrant=False",
            )  # fmt: skip
        args = list(ctx.args)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            args[place] = tensor.detach()._require(tensor.requires_grad)
        with ctx.state.again():
            made = ctx.function(*args)
        results = made if isinstance(made, tuple) else (made,)
        pairs = [(r, g) for r, g in zip(results, grads) if isinstance(r, Tensor) and r.requires_grad]
        if not pairs:
            raise AutogradError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward_within([r for r, _ in pairs], [g for _, g in pairs])
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))
