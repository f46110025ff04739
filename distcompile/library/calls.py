"""What a call of an operator does: its arguments in order, its gradient's node, the kernel for their device.

In: an overload with what was registered for it, arguments. Out: its results. In this order, as in torch's dispatcher:
autocast casts; an AUTOGRAD function stands in place of everything below it (below it, `below_autograd`, it is passed
over); an operator with a rule of its own is recorded as a Function, whose kernel is not recorded; then the kernel of
the arguments' device runs (kernels.py). Under capture all of this is entered: kernels are the program's functions, and
what they compute with is what the graph holds. A kernel in which a graph would end, as it needs data, is run whole
instead (whole.py): as one op of the graph, whose results its fake tells; without one, between two graphs.
Invariant: the gradient of an operator that has a rule is what the rule says, or a named error in the backward; never
that of what its kernel computes with. Of others it is that of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from threading import local
from typing import Any

from compiler_core.breaking import ENDED_IN, breaks_graph, ends_in
from compiler_core.capture import policy
from compiler_core.dtype import DType, float64
from compiler_core.errors import GraphBreak
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled, no_grad
from compiler_core.tensor.batching import level_among, put_in, taken_out
from compiler_core.tensor.tensor import Tensor
from distcompile.amp.autocasting import autocast, is_autocast_enabled
from distcompile.autograd import Function
from distcompile.errors import OperatorError
from distcompile.library.kernels import checked, count_writes, flattened, kernel_for, tensors_in, unflattened
from distcompile.library.operators import AUTOGRAD, FAKE, OpOverload, OpOverloadPacket
from distcompile.library.whole import is_between, is_in_graph, note_end, record


class _Below(local):
    """on: calls of this thread pass AUTOGRAD functions over."""

    on = False


_below = _Below()


@contextmanager
def below_autograd() -> Iterator[None]:
    """Inside, operators run below what stands in for autograd, and nothing is recorded."""
    before = _below.on
    _below.on = True
    try:
        with no_grad():
            yield
    finally:
        _below.on = before


def call_defined(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of an operator that the program defined."""
    registered = op.registered
    if registered.autocast:
        device = next((one for one in registered.autocast if is_autocast_enabled(one)), None)
        if device is not None:
            with autocast(device, enabled=False):
                dtype = registered.autocast[device]
                named = {name: cast(one, device, dtype) for name, one in kwargs.items()}
                return call_defined(op, tuple(cast(one, device, dtype) for one in args), named)
    inputs, named = op._schema.bind(args, kwargs)
    if is_between(op, inputs, named):
        return call_between(op, args, kwargs)
    if registered.vmap is not None and (level := level_among(inputs)) is not None:
        results, dims = registered.vmap(*taken_out(inputs, level), **named)
        return put_in(results, dims, level)
    if AUTOGRAD in registered.kernels and not _below.on:
        return registered.kernels[AUTOGRAD](*inputs, **named)
    if not (registered.is_custom or registered.gradient):
        return _run(op, inputs, named)
    if is_grad_enabled() and needs_gradient(inputs):
        return _recorded(op, inputs, named)
    with no_grad():
        return _run(op, inputs, named)


def needs_gradient(inputs: Sequence[Any]) -> bool:
    """Whether one of them, or of one in a list, requires a gradient."""
    return any(x.requires_grad for x in tensors_in(inputs))


def cast(value: Any, device: str, dtype: DType) -> Any:
    """`value` in `dtype`, if it is a floating Tensor on `device`, but not float64, or a list with such."""
    if isinstance(value, list | tuple):
        return [cast(one, device, dtype) for one in value]
    if not (isinstance(value, Tensor) and value.is_floating_point() and value.device.type == device):
        return value
    return value if value.dtype is float64 else value.to(dtype)


@breaks_graph("the kernel of an operator needs data", "register what it gives: register_fake")
def call_between(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call, between two graphs."""
    return call_defined(op, args, kwargs)


# ---- kernels


def _run(op: OpOverload, inputs: list[Any], named: dict[str, Any]) -> Any:
    kernel = kernel_for(op, inputs, named)
    if is_in_graph(kernel):
        return record(op, inputs, named, op.registered.kernels.get(FAKE) is not None)
    try:
        found = kernel(*inputs, **named)
    except GraphBreak:  # of what traces without a machine
        ends_in(_run.__code__, op, inputs, named)
        raise
    if op._schema.is_mutable:
        count_writes(op, inputs, named)
    return checked(op, inputs, found)


# ---- gradients


class OperatorCall(Function):
    """A call on the tape. A class of its own for each operator, which is named as torch names it."""

    @staticmethod
    def forward(ctx: Any, op: OpOverload, box: list[Any], lengths: list[int], named: dict[str, Any], *flat: Any) -> Any:
        inputs = unflattened(flat, lengths)
        output = _run(op, inputs, named)
        ctx.op, ctx.lengths, ctx.fewest = op, lengths, fewest_of(op, inputs)
        ctx.needs_input_grad = tuple(unflattened(ctx.needs_input_grad[4:], lengths))
        gradient = op.registered.gradient
        if gradient is not None and gradient.setup_context is not None:
            more = {"keyword_only_inputs": named} if named else {}
            gradient.setup_context(ctx=ctx, inputs=tuple(inputs), output=output, **more)
        outputs, ctx.out_lengths = flattened(output if isinstance(output, tuple) else [output])
        box.append((ctx.out_lengths, isinstance(output, tuple)))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = ctx.op.registered.gradient
        if gradient is None:
            raise OperatorError(f"{ctx.op} has no gradient", remedy="give it one by register_autograd")
        found = gradient.backward(ctx, *unflattened(gradients, ctx.out_lengths))
        given = found if isinstance(found, tuple) else (found,)
        return None, None, None, None, *in_places(given, ctx.lengths, ctx.fewest, ctx.op)


def _recorded(op: OpOverload, inputs: list[Any], named: dict[str, Any]) -> Any:
    flat, lengths = flattened(inputs)
    box: list[Any] = []
    outputs = recorder_of(op).apply(op, box, lengths, named, *flat)
    out_lengths, several = box[0]
    found = unflattened(outputs, out_lengths)
    return tuple(found) if several else found[0]


_recorders: dict[OpOverload, Any] = {}


def recorder_of(op: OpOverload) -> Any:
    """The Function of an operator's calls."""
    if op not in _recorders:
        name = f"GeneratedBackwardFor_{op.namespace}_{op._opname}_{op._overloadname}"
        _recorders[op] = type(name, (OperatorCall,), {"__module__": __name__})
    if op.registered.gradient is not None:  # what of the program's its backward runs
        _recorders[op].__rule__ = staticmethod(op.registered.gradient.backward)
    return _recorders[op]


def in_places(given: Sequence[Any], lengths: Sequence[int], fewest: int, op: OpOverload) -> list[Any]:
    """Gradients of the arguments for the flat inputs. Raises OperatorError for too few or too many of them."""
    if not fewest <= len(given) <= len(lengths):
        raise OperatorError(f"the backward of {op} returned {len(given)} gradients for {len(lengths)} inputs")
    flat: list[Any] = []
    for one, length in zip_longest(given, lengths):
        flat.extend((one,) if length < 0 else [None] * length if one is None else one)
    return flat


def fewest_of(op: OpOverload, inputs: Sequence[Any]) -> int:
    """How many gradients a backward has to return: none for the last arguments that are as they would be, left out."""
    places = [one for one in op._schema.arguments if not one.kwarg_only]
    asked = [place for place, one in enumerate(places) if tensors_in(inputs[place])
             or not one.has_default_value() or inputs[place] != one.default_value]  # fmt: skip
    return asked[-1] + 1


for _call in (OpOverload.__call__, OpOverloadPacket.__call__, OpOverloadPacket.pick):
    policy.say(_call, policy.ENTER)
for _helper in (cast, recorder_of, in_places, fewest_of):
    policy.say(_helper, policy.RUN)  # under capture; the rest reads or calls what the program gave, and is entered
ENDED_IN[_run.__code__] = note_end
