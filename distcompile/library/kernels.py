"""Kernels of operators: which function runs a call, and whether what it gave is what the schema says.

In: an overload, its arguments in order. Out: the function that was registered for their device; its results, checked;
values with the lists among them opened (`flattened`), and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.capture import policy
from compiler_core.device import Device
from compiler_core.tensor.memory.cell import memory_of
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import NoKernelError, OperatorError
from distcompile.library.operators import ALL, COMPOSITE, OpOverload, opened
from distcompile.library.schema import Type


def tensors_in(values: Any) -> list[Tensor]:
    """The Tensors of arguments or results, those in lists, too."""
    return [one for one in opened(values if isinstance(values, list | tuple) else [values]) if isinstance(one, Tensor)]


def kernel_for(op: OpOverload, inputs: list[Any], named: dict[str, Any]) -> Callable[..., Any]:
    """The function that was registered for the arguments' device. Raises NoKernelError if there is none."""
    kernels, off = op.registered.kernels, op.registered.off
    device = device_of(inputs, named)
    for key in (device, ALL, COMPOSITE):
        if key in kernels and key not in off:
            return kernels[key]
    raise NoKernelError(
        f"Could not run '{op.name()}' with arguments on the device '{device}'",
        got=f"functions for: {', '.join(kernels) or 'none'}",
        remedy="register one for this device",
    )


def device_of(inputs: list[Any], named: dict[str, Any]) -> str:
    """The type of the device that decides: of no data, of a GPU, or the CPU. Without Tensors, of what says `device`."""
    given = [*inputs, *named.values()]
    devices = [one.device for one in tensors_in(given)] or [one for one in given if isinstance(one, Device)]
    types = {one.type for one in devices}
    return next((one for one in ("meta", "cuda", "cpu") if one in types), "no device")


def count_writes(op: OpOverload, inputs: list[Any], named: dict[str, Any]) -> None:
    """Count a write to each Tensor that the schema says is written: perhaps it was, by way of NumPy."""
    given = dict(zip((one.name for one in op._schema.arguments if not one.kwarg_only), inputs, strict=True)) | named
    for tensor in tensors_in([given[one.name] for one in op._schema.arguments if one.type.is_mutated]):
        tensor._cell.touch()


def checked(op: OpOverload, inputs: list[Any], found: Any) -> Any:
    """What a kernel returned, as the schema has it. Raises OperatorError where it does not."""
    returns = op._schema.returns
    if not returns:
        if found is not None:
            raise OperatorError(f"{op.name()} returns nothing, but its kernel returned {type(found).__name__}")
        return None
    values = found if isinstance(found, list | tuple) and not op._schema.single else [found]
    if len(values) != len(returns):
        raise OperatorError(f"{op.name()} returns {len(returns)} values, but its kernel returned {len(values)}")
    made = tuple(_converted(one.type, value) for one, value in zip(returns, values, strict=True))
    if op.registered.is_custom:
        _refuse_aliases(op, inputs, made)
    return made[0] if len(returns) == 1 else made


def _converted(type_: Type, value: Any) -> Any:
    if type_.is_list and isinstance(value, list | tuple):
        return list(value)
    if type_.base == "Tensor" and not isinstance(value, Tensor) and not (value is None and type_.is_optional):
        raise OperatorError(f"Unable to cast {value} to Tensor")
    return value


def _refuse_aliases(op: OpOverload, inputs: list[Any], made: tuple[Any, ...]) -> None:
    seen = {id(memory_of(one._cell).root) for one in tensors_in(inputs)}
    for one in tensors_in(made):
        memory = id(memory_of(one._cell).root)
        if memory in seen:
            raise OperatorError(
                f"{op.name()}: a result is an argument or another result, or shares its memory",
                remedy="return a clone of it, or do not return it",
            )
        seen.add(memory)


# ---- values with lists among them


def flattened(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """(the values with lists of Tensors opened, the length of each list; -1 for what is none)."""
    flat: list[Any] = []
    lengths: list[int] = []
    for value in values:
        is_list = isinstance(value, list | tuple) and any(isinstance(one, Tensor) for one in value)
        flat.extend(value if is_list else (value,))
        lengths.append(len(value) if is_list else -1)
    return flat, lengths


def unflattened(flat: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """The opposite of `flattened`."""
    rest = iter(flat)
    return [next(rest) if length < 0 else [next(rest) for _ in range(length)] for length in lengths]


for _helper in (tensors_in, device_of, checked, flattened, unflattened, count_writes):
    policy.say(_helper, policy.RUN)  # under capture; `kernel_for` reads what was registered, and is entered
