"""What is checked, and one run of it: gradients of a copy of the module, in its own dtype or in float64.

In: a `Case`. Out: gradients by parameter name, as arrays of their own; the user's module is never touched.
A copy keeps the hooks of `Tensor.register_hook` on parameters (deepcopy drops them, as torch does).
Limits: the module must be copyable, and its randomness must come from the default generator.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collectives import Communicator, ThreadedWorld
from compiler_core import dtype as dtypes
from compiler_core.ops.registry import Array
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.random import counter_draws, default_generator
from compiler_core.tensor.tensor import Tensor
from distcompile.nn.module import Module
from distcompile.overrides import TorchFunctionMode
from distcompile.parity.errors import ParityTargetError
from distcompile.parity.report import Gradients
from distcompile.utils import _pytree as pytree

LOSS = "(loss)"
Loss = Callable[..., Tensor]
Wrap = Callable[[Module], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What is checked. loss(output, *inputs) -> scalar; loss_holds_tensors: beside the inputs it knows others.

    casts: a float64 case whose module makes narrower floats, and is kept from it.
    """

    module: Module
    inputs: tuple[Any, ...]
    loss: Loss
    seed: int = 0
    repeats: int = 2
    loss_holds_tensors: bool = False
    casts: bool = False

    def run(self, callee: Any, seed: int | None = None) -> Tensor:
        """The loss of one forward of `callee`, which is the module or made of it: eager and compiled, on one rank or
        several, with the same random bits."""
        with counter_draws():
            default_generator.manual_seed(self.seed if seed is None else seed)
            with _Widening() if self.casts else nullcontext():
                output = callee(*self.inputs)
            return self.loss(output, *self.inputs)


class Whole(Module):
    """The module with its loss, as one module: all of a step's forward in one graph."""

    def __init__(self, module: Module, loss: Loss, casts: bool = False) -> None:
        super().__init__()
        self.module, self.loss, self.casts = module, loss, casts

    def forward(self, *inputs: Any) -> Tensor:
        with _Widening() if self.casts else nullcontext():
            output = self.module(*inputs)
        return self.loss(output, *inputs)


def default_loss(output: Any, *inputs: Any) -> Tensor:
    """The first scalar among the module's floating outputs, else the mean square of the first of them."""
    outputs: Sequence[Any] = output if isinstance(output, tuple | list) else (output,)
    tensors = [item for item in outputs if isinstance(item, Tensor) and item.dtype.is_floating_point]
    if not tensors:
        kinds = ", ".join(str(item.dtype) if isinstance(item, Tensor) else type(item).__name__ for item in outputs)
        raise ParityTargetError("the module returned no Tensor of floats", got=kinds or "nothing", remedy="pass loss=")
    for tensor in tensors:
        if tensor.ndim == 0:
            return tensor
    loss: Tensor = (tensors[0] * tensors[0]).mean()
    return loss


def alone() -> Communicator:
    """A group of this process only."""
    return ThreadedWorld(1).communicator(0)


def copy_of(module: Module) -> Module:
    """A deep copy, with the gradient hooks of the parameters."""
    copied = copy.deepcopy(module)
    for mine, theirs in zip(module.parameters(), copied.parameters(), strict=True):
        for hook in list(mine._hooks.grad.values()) if mine._hooks is not None else ():
            theirs.register_hook(hook)
    return copied


def of_rank_0(module: Module, communicator: Communicator) -> Module:
    """A copy with the parameters and buffers of rank 0's, as DistributedDataParallel gives them to all ranks."""
    copied = copy_of(module)
    tensors = [*copied.parameters(), *copied.buffers()]
    arrays = communicator.broadcast_object([tensor._array("parity") for tensor in tensors])
    shapes, theirs = [tuple(t.shape) for t in tensors], [array.shape for array in arrays]
    if shapes != theirs:
        raise ParityTargetError(
            "ranks built different modules", expected=f"rank 0's shapes: {theirs}", got=f"here: {shapes}"
        )
    for tensor, array in zip(tensors, arrays, strict=True):
        tensor._cell.write(tensor.device.put(np.array(array)))
    return copied


def gradients(case: Case, wrap: Wrap) -> dict[str, Array | None]:
    """The gradients (and the loss) of a copy of the module, run as `wrap` says, in the last of `repeats` passes."""
    module = copy_of(case.module)
    run = wrap(module)
    value = np.zeros(())
    for _ in range(case.repeats):
        module.zero_grad()
        loss = case.run(run)
        loss.backward()
        value = loss._array("parity")
    found: dict[str, Array | None] = {LOSS: value.copy()}
    for name, parameter in module.named_parameters():
        found[name] = None if parameter.grad is None else parameter.grad._array("parity").copy()
    return found


def widened(value: Any) -> Any:
    """A floating Tensor in float64, detached; anything else as it is."""
    is_floating = isinstance(value, Tensor) and value.dtype.is_floating_point
    return value.detach().to(dtypes.float64) if is_floating else value


_OPERATORS = ("__matmul__", "__rmatmul__")  # they end as what writes in place does, and refuse two dtypes
_NARROWING = ("float", "half", "bfloat16")


class _Widening(TorchFunctionMode):
    """In it functions take floating tensors in float64, and make none but such.

    So a module may cast its integers by `float()`, and a loss may hold weights of its own beside a wide output.
    changed: whether there were any others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _NARROWING:
            self.changed = True
            return args[0].to(dtypes.float64)
        if not name.endswith("_") or name in _OPERATORS:
            given = (args, kwargs or {})
            if _is_narrow(given):
                self.changed = True
                args, kwargs = pytree.tree_map(_in_float64, given)
        return func(*args, **kwargs or {})


def _is_narrow(value: Any) -> bool:
    """Whether it is a floating tensor or dtype of less than float64, or has such in it."""
    if isinstance(value, (Tensor, dtypes.DType)):
        dtype = value.dtype if isinstance(value, Tensor) else value
        return dtype.is_floating_point and dtype is not dtypes.float64
    if isinstance(value, dict):
        return any(map(_is_narrow, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_is_narrow, value))


def _in_float64(value: Any) -> Any:
    if not _is_narrow(value):
        return value
    return value.to(dtypes.float64) if isinstance(value, Tensor) else dtypes.float64


def in_float64(case: Case) -> Case:
    """The case with every floating parameter, buffer and input in float64, and what the loss holds, as it is read.

    The module is run once, to see whether it makes narrower floats: keeping it from that takes time at every function.
    """

    def loss(*given: Any) -> Tensor:
        with _Widening():
            return case.loss(*given)

    module = copy_of(case.module).to(dtypes.float64)
    wide = replace(case, module=module, inputs=tuple(map(widened, case.inputs)), loss=loss)
    with no_grad(), _Widening() as narrower:
        replace(wide, loss=lambda output, *_: output).run(copy_of(module))
    return replace(wide, casts=narrower.changed)


def average(local: Gradients, communicator: Communicator) -> dict[str, Array | None]:
    """The average over ranks of float64 gradients, in rank order."""
    everyones = communicator.all_gather_object(dict(local))
    averaged: dict[str, Array | None] = {}
    for name in local:
        arrays = [gradient for one in everyones if (gradient := one[name]) is not None]
        averaged[name] = sum(arrays[1:], arrays[0]) / communicator.world_size if arrays else None
    return averaged


def is_equal_on_all_ranks(gradient: Array | None, communicator: Communicator) -> bool:
    """Whether all ranks hold the same bits."""
    mine = b"" if gradient is None else hashlib.sha256(gradient.tobytes()).digest()
    return len(set(communicator.all_gather_object(mine))) == 1
