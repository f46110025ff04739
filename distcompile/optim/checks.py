"""The options of optimizers: which there are, and what is checked of them, with torch's messages.

In: options by their names, or by the name that the message gives them. Out: nothing, or ArgumentError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

_NOT_NEGATIVE = {"lr": "learning rate", "eps": "epsilon value"} | {
    name: f"{name} value"
    for name in ("weight_decay", "momentum", "lr_decay", "initial_accumulator_value", "momentum_decay")
}


def options(names: Mapping[str, Any], order: str = "") -> dict[str, Any]:
    """The options among the local names at the start of an optimizer's `__init__`: its arguments but the parameters.

    order: options that torch's groups hold in another order than its arguments; they take each other's places.
    """
    given = {name: value for name, value in names.items() if name not in ("self", "params", "__class__")}
    placed = iter(order.split())
    return {name: given[name] for name in [next(placed) if name in order.split() else name for name in given]}


def check_not_negative(options: Mapping[str, float]) -> None:
    """Raises ArgumentError for the first option below zero, NaN included. Keys: "learning rate", "rho value", ..."""
    for name, number in options.items():
        if not number >= 0:
            raise ArgumentError(f"Invalid {name}: {number}", expected="at least 0")


def check_usual(options: Mapping[str, Any]) -> None:
    """Raises ArgumentError for the first option out of range, of those that mean the same in every optimizer."""
    given = {what: options[name] for name, what in _NOT_NEGATIVE.items() if name in options}
    check_not_negative({what: number for what, number in given.items() if type(number) is not tuple})
    if "betas" in options:
        check_betas(options["betas"])
    if options.get("foreach") and options.get("fused"):
        raise ArgumentError("`fused` and `foreach` cannot be `True` together.")


def check_two(name: str, pair: object) -> None:
    """Raises ArgumentError unless an option that is a pair has two elements: steps unpack it."""
    if not hasattr(pair, "__len__") or len(pair) != 2:
        raise ArgumentError(f"Invalid {name}: {pair}", expected="two numbers")


def check_betas(betas: Sequence[float]) -> None:
    """Raises ArgumentError unless there are two betas, each in [0, 1)."""
    check_two("betas", betas)
    for i, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ArgumentError(f"Invalid beta parameter at index {i}: {beta}", expected="0 <= beta < 1")


def check_alike(pairs: Mapping[str, Sequence[Any]]) -> None:
    """Raises ArgumentError unless each pair is of two floats or of two Tensors."""
    for name, pair in pairs.items():
        if not any(all(isinstance(one, kind) for one in pair) for kind in (float, Tensor)):
            raise ArgumentError(f"{name} must be either both floats or both Tensors", got=str(pair))


def check_tensors(numbers: Mapping[str, Any], foreach: bool) -> None:
    """Raises ArgumentError for a Tensor of several elements, and for any Tensor under foreach."""
    for name, number in numbers.items():
        if isinstance(number, Tensor) and foreach:
            raise ArgumentError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
        if isinstance(number, Tensor) and number.numel() != 1:
            raise ArgumentError(f"Tensor {name} must be 1-element", got=str(tuple(number.shape)))
