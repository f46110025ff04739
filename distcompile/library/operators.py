"""Operators under names: `torch.ops.ns.name`, its overloads, and what was registered for them.

In: schemas (`define`), and functions for them by key: a device, FAKE, AUTOGRAD, COMPOSITE. Out: `OpOverloadPacket`s of
`OpOverload`s, callables with torch's names (calls.py says what a call does). What is registered for an operator that is
not defined yet waits for it. An operator can be taken back: `remove`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from compiler_core.overrides.calls import handle_torch_function, overriding
from compiler_core.overrides.state import thread_overrides
from distcompile.errors import NotSupportedError, OperatorError, RegistrationOrderError
from distcompile.library.namespaces import ops
from distcompile.library.schema import Schema

# keys of kernels; besides, types of devices: "cpu", "cuda"
ALL = "all devices"
COMPOSITE = "composite"  # differentiated through
AUTOGRAD = "autograd"  # in place of recording
FAKE = "meta"


@dataclass(frozen=True, slots=True)
class OperatorGradient:
    """backward(ctx, *gradients) gives one, or None, for each input; setup_context(ctx, inputs, output) fills ctx."""

    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None


@dataclass(slots=True)
class Registered:
    """What there is for one overload.

    kernels: by key. autocast: dtypes by device. off: devices whose kernel is passed over for now. is_custom: made by
    `custom_op`, so that it has the gradient that it was given or none, and gives memory of its own back.
    """

    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)
    gradient: OperatorGradient | None = None
    vmap: Callable[..., Any] | None = None
    autocast: dict[str, Any] = field(default_factory=dict)
    off: set[str] = field(default_factory=set)
    is_custom: bool = False


def is_asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a class of these arguments, or a mode, is asked in place of an operator."""
    now = thread_overrides.now
    if now.off:
        return False
    return bool(now.modes) or (not now.subclasses_off and bool(overriding(opened((*args, *kwargs.values())), False)))


def opened(values: Any) -> list[Any]:
    """The values, lists among them opened."""
    return [one for value in values for one in (value if isinstance(value, list | tuple) else (value,))]


class OpOverload:
    """torch.ops.ns.name.overload. schema: None for torch's own, of which it is not kept."""

    def __init__(
        self,
        packet: OpOverloadPacket,
        overload_name: str,
        call: Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any],
        schema: Schema | None,
        registered: Registered,
    ) -> None:
        self.overloadpacket, self.call, self.schema, self.registered = packet, call, schema, registered
        self.namespace, self._opname = packet.namespace, packet.__name__
        self._overloadname = overload_name
        self.__name__ = self.__qualname__ = f"{self._opname}.{self._overloadname}"
        self.__module__ = f"torch._ops.{self.namespace}"
        self.tags: list[Any] = []

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if is_asked(args, kwargs):
            return handle_torch_function(self, opened((*args, *kwargs.values())), *args, **kwargs)
        return self.call(self, args, kwargs)

    def name(self) -> str:
        """ "ns::name", and the overload's name unless it is the default one."""
        qualified = self.overloadpacket._qualified_op_name
        return qualified if self._overloadname == "default" else f"{qualified}.{self._overloadname}"

    _name = property(name)
    graph_key = property(name)

    @property
    def _schema(self) -> Schema:
        if self.schema is None:
            raise NotSupportedError(f"{self} has no schema here")
        return self.schema

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __reduce__(self) -> Any:
        return _by_name, (self.namespace, self._opname, self._overloadname)


class OpOverloadPacket:
    """torch.ops.ns.name: its overloads are attributes; called, the first that takes the arguments is."""

    def __init__(self, name: str) -> None:
        self._qualified_op_name = name
        self.namespace, _, self.__name__ = name.partition("::")
        self.__module__ = f"torch.ops.{self.namespace}"
        self._overloads: dict[str, OpOverload] = {}

    def overloads(self) -> list[str]:
        """Their names."""
        return list(self._overloads)

    def add(self, overload: OpOverload) -> None:
        """Have one more."""
        self._overloads[overload._overloadname] = vars(self)[overload._overloadname] = overload

    def drop(self, name: str) -> None:
        """Have one less."""
        del self._overloads[name], vars(self)[name]

    def pick(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
        """The first overload that takes these arguments; if none does, the first one: it says why."""
        first, *others = self._overloads.values()
        for one in (first, *others) if others else ():
            if one._schema.takes(args, kwargs):
                return one
        return first

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if is_asked(args, kwargs):
            return handle_torch_function(self, opened((*args, *kwargs.values())), *args, **kwargs)
        one = self.pick(args, kwargs)
        return one.call(one, args, kwargs)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __reduce__(self) -> Any:
        return _by_name, (self.namespace, self.__name__)


def _by_name(namespace: str, *names: str) -> Any:
    found: Any = getattr(ops, namespace)
    for name in names:
        found = getattr(found, name)
    return found


# ---- the registry

_waiting: dict[str, Registered] = {}  # by an overload's name(), of what is not defined yet


def _packet_of(name: str) -> OpOverloadPacket | None:
    """The operator "ns::name", if there is one."""
    namespace, _, opname = name.partition("::")
    found = vars(getattr(ops, namespace)).get(opname)
    return found if isinstance(found, OpOverloadPacket) else None


def _overload_of(name: str) -> OpOverload | None:
    qualified, _, overload = name.partition(".")
    packet = _packet_of(qualified)
    return packet._overloads.get(overload or "default") if packet is not None else None


def define(schema: Schema, call: Callable[..., Any], *, replace: bool = False) -> OpOverload:
    """A new overload of this schema. Raises OperatorError if there is one, unless it shall be replaced."""
    packet = _packet_of(schema.name)
    if packet is None:
        packet = OpOverloadPacket(schema.name)
        setattr(getattr(ops, packet.namespace), packet.__name__, packet)
    made = OpOverload(packet, schema.overload_name or "default", call, schema, Registered())
    before = packet._overloads.get(made._overloadname)
    if before is not None and not replace:
        raise OperatorError(f"{made.name()} is defined already", expected=f"{before._schema}", got=f"{schema}")
    made.registered = _waiting.pop(made.name(), made.registered)
    packet.add(made)
    return made


def remove(overload: OpOverload) -> None:
    """Forget an overload; its operator, too, if it was the last."""
    packet = overload.overloadpacket
    if packet._overloads.get(overload._overloadname) is overload:
        packet.drop(overload._overloadname)
    if not packet._overloads and _packet_of(packet._qualified_op_name) is packet:
        delattr(getattr(ops, packet.namespace), packet.__name__)


def find(name: str) -> OpOverload:
    """The overload "ns::name" or "ns::name.overload". Raises RegistrationOrderError if there is none."""
    found = _overload_of(name)
    if found is None:
        raise RegistrationOrderError(f"there is no operator {name}", remedy="define it first")
    return found


def registered(name: str) -> Registered:
    """What there is for an operator that has this name, or will have it."""
    found = _overload_of(name)
    return _waiting.setdefault(name, Registered()) if found is None else found.registered


_KEYS = {
    "": COMPOSITE,
    "CompositeImplicitAutograd": COMPOSITE,
    "CompositeExplicitAutograd": ALL,
    "CompositeExplicitAutogradNonFunctional": ALL,
    "BackendSelect": ALL,
    "Meta": FAKE,
    "default": ALL,
}


def key_of(name: str) -> str:
    """The key of kernels for torch's name of a dispatch key or a device: "CUDA", "Autograd", "cpu"."""
    if name in _KEYS:
        return _KEYS[name]
    return AUTOGRAD if name.startswith("Autograd") else name.lower()
