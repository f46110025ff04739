"""`custom_op`: a Python function as an operator, with a schema from its annotations.

In: functions. Out: `CustomOpDef`s, callables; the operator is `torch.ops.ns.name`, too. The function is its kernel, on
all devices or those that were named; its methods are the functions of registrations.py. An operator of the same name is
replaced. Limit: under vmap it is called for each example, as all functions are; no rule is asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from compiler_core.capture import policy
from distcompile.errors import ArgumentError
from distcompile.library import registrations
from distcompile.library.calls import call_defined
from distcompile.library.inference import infer_schema
from distcompile.library.operators import OpOverload, define
from distcompile.library.schema import parse

Function = Callable[..., Any]


class CustomOpDef:
    """A function as an operator, with methods that register more for it."""

    def __init__(self, namespace: str, name: str, schema: str, fn: Function, tags: Any = None) -> None:
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        self._qualname = f"{namespace}::{name}"
        self._opoverload: OpOverload = define(parse(self._qualname + schema), call_defined, replace=True)
        self._opoverload.registered.is_custom = True

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Inside, the kernel of this device is taken, or passed over."""
        off = self._opoverload.registered.off
        before = set(off)
        (off.discard if enabled else off.add)(device_type)
        try:
            yield
        finally:
            off.clear()
            off.update(before)

    register_kernel = registrations.register_kernel
    register_fake = registrations.register_fake
    register_autograd = registrations.register_autograd
    register_vmap = registrations.register_vmap
    register_autocast = registrations.register_autocast
    register_torch_dispatch = registrations.register_torch_dispatch


policy.say(CustomOpDef.__call__, policy.ENTER)  # under capture: it calls the program's functions


def custom_op(
    name: str,
    fn: Function | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """The operator "namespace::name" that runs `fn`; without it, a decorator.

    mutates_args: the arguments that it writes to; "unknown": perhaps all. device_types: where it runs; None: anywhere.
    schema: "(Tensor x) -> Tensor", in place of the annotations. Raises: ArgumentError for a name without a namespace,
    or annotations that are none of a schema.
    """
    if fn is None:
        return functools.partial(
            custom_op, name, mutates_args=mutates_args, device_types=device_types, schema=schema, tags=tags
        )
    namespace, opname = registrations.split_name(name)
    written = infer_schema(fn, mutates_args=mutates_args) if schema is None else _checked(schema, mutates_args, name)
    arguments = parse(f"{name}{written}").arguments
    if device_types is not None and not any(one.type.base == "Tensor" or one.name == "device" for one in arguments):
        raise ArgumentError(
            f"{name} has a device, but no argument that says on which", expected="a Tensor, or `device`"
        )
    made = CustomOpDef(namespace, opname, written, fn, tags)
    made.register_kernel(device_types, fn)
    return made


def _checked(schema: str, mutates_args: str | Iterable[str], name: str) -> str:
    changed = {one.name for one in parse(f"{name}{schema}").arguments if one.type.is_mutated}
    if not isinstance(mutates_args, str) and changed != set(mutates_args):
        raise ArgumentError(
            f"{name}: `mutates_args` and `schema` do not name the same arguments",
            expected=f"{sorted(changed)}, as {schema}",
            got=str(list(mutates_args)),
        )
    return schema
