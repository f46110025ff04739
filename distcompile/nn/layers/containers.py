"""Modules that hold modules: Sequential, ModuleList, ModuleDict.

In: modules. Out: children numbered "0", "1", ... (or named), as state dict keys need them.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self, cast

from compiler_core.errors import IndexError_
from distcompile.errors import ArgumentError, RegistrationTypeError
from distcompile.nn.module import Module, indent, renumber
from distcompile.nn.registration import type_name


class _Indexed(Module):
    """Children in order, reached by position."""

    def _keys_at(self, index: int | slice) -> list[str]:
        keys = list(self._modules)
        if isinstance(index, slice):
            return keys[index]
        return [keys[position(index, len(keys))]]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._keys_at(index)[0], module)

    def __delitem__(self, index: int | slice) -> None:
        for key in self._keys_at(index):
            delattr(self, key)
        renumber(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(cast("ValuesView[Module]", self._modules.values()))

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in as_list(modules, f"{type(self).__name__}.extend should be called with an iterable"):
            self.append(module)
        return self

    def _insert(self, index: int, module: Module) -> None:
        if not isinstance(module, Module):
            raise RegistrationTypeError(f"{type_name(module)} is not a Module subclass")
        values: list[Any] = list(self._modules.values())
        values.insert(index, module)
        self._modules.clear()
        self._modules.update((str(i), value) for i, value in enumerate(values))


class Sequential(_Indexed):
    """Calls its modules one after the other, each on what the one before returned.

    Args: the modules; or one OrderedDict, whose keys become their names. Otherwise they are "0", "1", ...

    It is a list as well: index, slice (a Sequential), `append`, `extend`, `insert`, `pop`, `+`, `*` (the same modules
    again), `del`.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> model(torch.ones(5, 4)).shape
        (5, 2)
        >>> model[:2]
        Sequential(
          (0): Linear(in_features=4, out_features=8, bias=True)
          (1): ReLU()
        )
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict((key, self._modules[key]) for key in self._keys_at(index)))
        return self._modules[self._keys_at(index)[0]]

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def insert(self, index: int, module: Module) -> Self:
        """Add a module before position `index`."""
        if not -len(self) <= index <= len(self):
            raise IndexError_(f"Index out of range: {index}")
        self._insert(index, module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove and return the module (or modules) at `key`."""
        value = self[key]
        del self[key]
        return value

    def __add__(self, other: Sequential) -> Sequential:
        _require_sequential(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Self:
        _require_sequential(other)
        return self.extend(other)

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*list(self) * _factor(times))

    def __rmul__(self, times: int) -> Sequential:
        return self * times

    def __imul__(self, times: int) -> Self:
        return self.extend(list(self) * (_factor(times) - 1))


class ModuleList(_Indexed):
    """A list of modules: they are registered, so their parameters are found. It has no `forward` of its own.

    A plain Python list hides what it holds from `parameters()` and `state_dict()`. Names are "0", "1", ...

    Example:
        >>> layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
        >>> layers.append(nn.ReLU())
        ModuleList(
          (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
          (3): ReLU()
        )
        >>> len(list(layers.parameters()))
        6
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[self._keys_at(index)[0]]

    def insert(self, index: int, module: Module) -> None:
        """Add a module before position `index`."""
        self._insert(index, module)

    def pop(self, key: int | slice) -> Any:
        """Remove and return the module (or modules) at `key`."""
        value = self[key]
        del self[key]
        return value

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, other: Iterable[Module]) -> Self:
        return self.extend(other)

    def __repr__(self) -> str:
        runs: list[tuple[int, int, str]] = []  # first, last, text: equal neighbours print once
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        lines = [f"({a}): {text}" if a == b else f"({a}-{b}): {b - a + 1} x {text}" for a, b, text in runs]
        body = "\n  " + "\n  ".join(map(indent, lines)) + "\n" if lines else ""
        return f"{self._get_name()}({body})"


class ModuleDict(Module):
    """A dict of modules, in order of insertion: they are registered under their keys. It has no `forward` of its own.

    Args: a dict, or pairs of (key, module).

    Example:
        >>> heads = nn.ModuleDict({"coarse": nn.Linear(4, 2), "fine": nn.Linear(4, 10)})
        >>> heads["fine"](torch.ones(4)).shape
        (10,)
        >>> list(heads.state_dict())
        ['coarse.weight', 'coarse.bias', 'fine.weight', 'fine.bias']
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove every module."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove and return the module at `key`."""
        return self._modules.pop(key)

    def keys(self) -> KeysView[str]:
        return self._modules.keys()

    def items(self) -> ItemsView[str, Any]:
        return self._modules.items()

    def values(self) -> ValuesView[Any]:
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules, in the order given."""
        if not isinstance(modules, Iterable):
            raise RegistrationTypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got " + type_name(modules)
            )
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for place, pair in enumerate(list(pairs)):
            key, module = check_pair(pair, place, "ModuleDict")
            self[key] = module


def as_list(values: Any, what: str) -> list[Any]:
    """The elements of an iterable. Raises RegistrationTypeError, saying `what`, if it is none."""
    if not isinstance(values, Iterable):
        raise RegistrationTypeError(f"{what}, but got {type_name(values)}")
    return list(values)


def check_pair(pair: Any, place: int, container: str) -> tuple[str, Any]:
    """`pair` as (key, value). Raises RegistrationTypeError or ArgumentError."""
    if not isinstance(pair, Iterable):
        what = f"{container} update sequence element #{place} should be Iterable; is {type_name(pair)}"
        raise RegistrationTypeError(what)
    pair = tuple(pair)
    if len(pair) != 2:
        raise ArgumentError(f"{container} update sequence element #{place} has length {len(pair)}; 2 is required")
    return pair[0], pair[1]


def position(index: int, length: int) -> int:
    """`index` as 0..length-1. Raises IndexError_."""
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError_(f"index {index} is out of range")
    return index % length


def _require_sequential(other: object) -> None:
    if not isinstance(other, Sequential):
        raise ArgumentError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")


def _factor(times: int) -> int:
    if not isinstance(times, int):
        raise RegistrationTypeError(f"unsupported operand type(s) for *: Sequential and {type(times)}")
    if times <= 0:
        raise ArgumentError(f"Non-positive multiplication factor {times} for Sequential")
    return times
