"""A watch over modules: whether what captured code read of them is still so.

In: modules, what the user calls them, and which of their attributes matter (or all do). Out: `ModuleWatch`: one
comparison tells that nothing was changed in any of them; after a change, what was changed is compared.

Compared are a module's own `__dict__` and, one by one, the items of its registries (parameters, buffers, children,
hooks): objects by identity, plain values by type and value, tensors also by meta and requires_grad. So what is set to
what it was, or is none of the code's business, changes nothing: eval() and train(), a hook added and removed, `to` the
dtype it has, a counter that a training loop keeps on the model. The contents of other containers, and tensors' values,
belong to other guards; so do tensors that change otherwise than by the module
(`compiler_core/tensor/memory/rebinding.py`). What is watched is not kept alive. Limits: those of `versions.py`; a list,
dict or other object that cannot be referred to weakly is told by its address, which the next one may have when it is
gone: guards on its contents ask it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias
from weakref import ReferenceType, ref

from compiler_core.capture.guards.module_protocol import WatchedModule, unwrapped
from compiler_core.ops.registry import meta_of
from compiler_core.tensor.tensor import Tensor
from compiler_core.watch import Watch, add_watch
from distcompile.nn.versions import Registry, Stamp

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_REGISTRIES = ("_parameters", "_buffers", "_modules")
_BOOKKEEPING = frozenset({"_stamp", "_tree_version", "_made_in", "_plain_forward"})
_ABSENT = object()

Kept: TypeAlias = Any  # a plain value or what cannot be referred to weakly, itself; else a weak reference


class _Handle:
    """A tensor."""

    __slots__ = ("facts", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = ref(tensor)
        value = tensor._cell.raw  # which may be on its way
        self.facts = type(tensor), type(value), meta_of(value), tensor.requires_grad


class _Address(NamedTuple):
    """What cannot be referred to weakly."""

    kind: type
    place: int


class _Items(dict[Any, Kept]):
    """The attributes of a module, or the items of one of its registries, in order."""


class _Seen:
    """One module as it was."""

    __slots__ = ("facts", "kind", "latest", "module", "names", "stamp", "text")

    def __init__(self, one: WatchedModule, watch: Watch) -> None:
        module: Any = unwrapped(one.module)
        self.kind = type(module)
        self.module: ReferenceType[Any] = ref(module)
        self.text, self.names = one.text, one.names
        self.stamp: Stamp = module._stamp
        add_watch(self.stamp, watch)
        self.latest = self.stamp.latest
        self.facts = _facts(module.__dict__, one.names)

    def difference(self) -> str:
        """What should be unchanged and is not, "" if all is as it was. The stamp has moved."""
        module, latest = self.module(), self.stamp.latest
        if module is None or module._stamp is not self.stamp:
            return f"{self.text} is the same module"
        if type(module) is not self.kind:
            return f"{self.text} is a {self.kind.__name__}"
        if not self._holds(module.__dict__):
            now = _facts(module.__dict__, self.names)
            if not _same(self.facts, now):
                return _first_difference(self.text, self.facts, now)
        self.latest = latest
        return ""

    def _holds(self, state: Mapping[str, Any]) -> bool:
        """Whether the attributes that matter are the same; False if all matter: then there may be more by now."""
        return self.names is not None and all(_is(was, _found(state, name)) for name, was in self.facts.items())

    def culprit(self) -> Any:
        """The module, if it holds something else in an attribute than it did; else None.

        Modes, hooks and requires_grad are set by people, not by every step: such a change is no sign of more to come.
        """
        module = self.module()
        if module is None or self.latest == self.stamp.latest or not hasattr(module, "training"):
            return None  # the last: hooks on every module
        now = _facts(module.__dict__, self.names)
        held = {name: kept for name, kept in self.facts.items() if type(kept) is not _Items and name != "training"}
        return module if any(_holds_another(kept, now.get(name, _ABSENT)) for name, kept in held.items()) else None


class ModuleWatch(Watch):
    """See the head of this file."""

    __slots__ = ("_modules",)

    def __init__(self, modules: Iterable[WatchedModule]) -> None:
        super().__init__()
        told = self.told
        self._modules = [_Seen(one, self) for one in modules]
        self.seen = told

    def find_difference(self) -> str:
        for seen in self._modules:
            if seen.latest != seen.stamp.latest:
                difference = seen.difference()
                if difference:
                    return difference
        return ""

    def culprits(self) -> list[Any]:
        return [module for seen in self._modules if (module := seen.culprit()) is not None]

    def __reduce__(self) -> tuple[Any, ...]:
        return Watch, ()


def _facts(state: Mapping[str, Any], names: frozenset[str] | None) -> _Items:
    """What a module with this `__dict__` answers for `names`; None: for all."""
    if names is None:
        return _Items((name, _kept(value)) for name, value in state.items() if name not in _BOOKKEEPING)
    return _Items((name, _kept(_found(state, name))) for name in names)


def _found(state: Mapping[str, Any], name: str) -> Any:
    value = state.get(name, _ABSENT)
    if value is not _ABSENT:
        return value
    for registry in _REGISTRIES:
        if name in state[registry]:
            return state[registry][name]
    return _ABSENT


def _kept(value: Any) -> Kept:
    if isinstance(value, Registry):
        return _Items((key, _kept(item)) for key, item in value.items())
    if isinstance(value, Tensor):
        return _Handle(value)
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple:
        return tuple(map(_kept, value))
    try:
        return ref(value)  # one and the same object for as long as `value` lives
    except TypeError:
        return _Address(type(value), id(value))


def _same(was: Any, now: Any) -> bool:
    """Whether two values that were kept are of the same thing."""
    if was is now:
        return True
    if type(was) is not type(now):
        return False
    if type(was) is _Items:
        return list(was) == list(now) and all(map(_same, was.values(), now.values()))
    if type(was) is tuple:
        return len(was) == len(now) and all(map(_same, was, now))
    if type(was) is _Address:
        return bool(was == now)
    if type(was) is _Handle:
        return was.tensor is now.tensor and bool(was.facts == now.facts)
    return type(was) in _PLAIN and repr(was) == repr(now)  # NaN is NaN, 0.0 is not -0.0


def _is(was: Kept, value: Any) -> bool:
    """Whether what was kept is of `value`."""
    if type(was) is ReferenceType:
        return value is not None and was() is value
    if type(was) is _Items and not was:
        return type(value) is Registry and not value
    return was is value or _same(was, _kept(value))


def _holds_another(was: Kept, now: Kept) -> bool:
    if type(was) is type(now) is _Handle:
        return was.tensor is not now.tensor
    return not _same(was, now)


def _first_difference(text: str, was: _Items, now: _Items) -> str:
    """The attribute that is not as it was, as the condition that failed."""
    for name in (*was, *(name for name in now if name not in was)):
        old, new = was.get(name, _ABSENT), now.get(name, _ABSENT)
        if _same(old, new):
            continue
        if name not in _REGISTRIES:
            words = name.strip("_").replace("_", " ")
            return f"{text}'s {words} are unchanged" if name.endswith("_hooks") else f"{text}.{name} is unchanged"
        items = was[name], now[name]
        changed = (key for key in (*items[0], *items[1]) if not _same(*(i.get(key, _ABSENT) for i in items)))
        return f"{text}.{next(changed, name)} is unchanged"
    return f"the order of {text}'s attributes is unchanged"
