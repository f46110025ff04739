"""`opcheck`: whether what was registered for an operator agrees with what it does, on sample arguments.

In: an operator, arguments. Out: a dictionary of the checks' names and "SUCCESS"; or OperatorCheckError, which says what
is wrong. The checks, as torch names them:

    test_schema                  only arguments that the schema marks are written, and results are memory of their own
    test_autograd_registration   if arguments require a gradient, there is a rule, or the results require none
    test_faketensor              the fake tells shapes, dtypes and strides as they are
    test_aot_dispatch_dynamic    compiled, the results and gradients are those of eager code
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import distcompile as dc
from compiler_core.tensor.memory.cell import memory_of
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, OperatorCheckError
from distcompile.library.custom_ops import CustomOpDef
from distcompile.library.kernels import tensors_in
from distcompile.library.operators import AUTOGRAD, COMPOSITE, FAKE, OpOverload, OpOverloadPacket

_DEFAULT = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(
    op: OpOverload | OpOverloadPacket | CustomOpDef,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = _DEFAULT,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """See the head of this file. raise_exception=False: an error is in the dictionary instead."""
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(names) <= set(_CHECKS):
        raise ArgumentError(f"opcheck: test_utils is {test_utils}", expected=f"some of {_DEFAULT}")
    overload = op._opoverload if isinstance(op, CustomOpDef) else op.default if isinstance(op, OpOverloadPacket) else op
    inputs, named = overload._schema.bind(args, kwargs or {})
    found: dict[str, Any] = {}
    for name in names:
        found[name] = "SUCCESS"
        try:
            _CHECKS[name](overload, inputs, named, {"atol": atol, "rtol": rtol})
        except (AssertionError, RuntimeError, OperatorCheckError) as error:
            found[name] = OperatorCheckError(f"opcheck(op, ...): {name} failed with {error}")
            if raise_exception:
                raise found[name] from error
    return found


def _each(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    """Arguments with `change` of the Tensors among them."""
    if isinstance(values, dict):
        return {name: _each(change, one) for name, one in values.items()}
    if isinstance(values, list | tuple):
        return [_each(change, one) for one in values]
    return change(values) if isinstance(values, Tensor) else values


def _copied(values: Any) -> Any:
    return _each(lambda one: one.detach().clone()._require(one.requires_grad), values)


def _check_schema(op: OpOverload, args: list[Any], kwargs: dict[str, Any], limits: dict[str, Any]) -> None:
    inputs, named = _copied(args), _copied(kwargs)
    with dc.no_grad():
        results = op(*inputs, **named)
    places = [one.name for one in op._schema.arguments if not one.kwarg_only]
    now, before = (dict(zip(places, given, strict=True)) | by for given, by in ((inputs, named), (args, kwargs)))
    for one in op._schema.arguments:
        pairs = zip(tensors_in(now[one.name]), tensors_in(before[one.name]), strict=True)
        if not one.type.is_mutated and not all(dc.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
            raise OperatorCheckError(f"Argument {one.name} is not defined as mutable but was mutated")
    memories = {id(memory_of(one._cell).root) for one in tensors_in(list(now.values()))}
    shared = any(id(memory_of(one._cell).root) in memories for one in tensors_in(results))
    if shared and not any(one.type.alias for one in op._schema.returns):
        raise OperatorCheckError("a result shares memory with an argument, and the schema does not say so")


def _check_autograd(op: OpOverload, args: list[Any], kwargs: dict[str, Any], limits: dict[str, Any]) -> None:
    registered = op.registered
    if registered.is_custom or registered.gradient or {AUTOGRAD, COMPOSITE} & set(registered.kernels):
        return
    if any(one.requires_grad for one in tensors_in(op(*_copied(args), **_copied(kwargs)))):
        raise OperatorCheckError(f"{op} has no gradient of its own, but its kernel was recorded")


def _check_fake(op: OpOverload, args: list[Any], kwargs: dict[str, Any], limits: dict[str, Any]) -> None:
    fake = op.registered.kernels.get(FAKE)
    if fake is None:
        if not op._schema.returns or COMPOSITE in op.registered.kernels:
            return
        raise OperatorCheckError(f"There was no fake impl registered for {op}", remedy="register one by register_fake")
    with dc.no_grad():
        results = op(*_copied(args), **_copied(kwargs))
        without_data = [_each(lambda one: one.detach().to("meta"), given) for given in (args, kwargs)]
        told = fake(*without_data[0], **without_data[1])
    real, said = ([(one.dtype, tuple(one.shape), one.stride()) for one in tensors_in(each)] for each in (results, told))
    if real != said:
        raise OperatorCheckError("the fake tells other results", expected=str(real), got=str(said))


def _check_compiled(op: OpOverload, args: list[Any], kwargs: dict[str, Any], limits: dict[str, Any]) -> None:
    def call(given: list[Any], named: dict[str, Any]) -> Any:
        return op(*given, **named)

    found: list[list[Tensor | None]] = []
    for run in (call, dc.compile(call)):
        given, named = _copied(args), _copied(kwargs)
        results = tensors_in(run(given, named))
        inputs = tensors_in([*given, *named.values()])
        leaves, wanted = ([one for one in each if one.requires_grad] for each in (inputs, results))
        found.append([*results, *inputs])
        if wanted and op.registered.gradient is not None:
            found[-1] += dc.autograd.grad([out.sum() for out in wanted], leaves, allow_unused=True)
    for eager, compiled in zip(*found, strict=True):
        if eager is None or compiled is None:
            if eager is not compiled:
                raise OperatorCheckError("compiled, another argument has a gradient")
            continue
        dc.testing.assert_close(compiled, eager, **limits)


_CHECKS: dict[str, Callable[[OpOverload, list[Any], dict[str, Any], dict[str, Any]], None]] = {
    "test_schema": _check_schema,
    "test_autograd_registration": _check_autograd,
    "test_faketensor": _check_fake,
    "test_aot_dispatch_dynamic": _check_compiled,
    "test_aot_dispatch_static": _check_compiled,
}
