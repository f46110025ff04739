"""Modules of torch's that hold settings, `torch._dynamo.config` and `torch._inductor.config`: what scripts set.

In: assignments, and `patch`, which puts values back afterwards. Out: what was set, or torch's default. Some are knobs
of ours (compiler_core/config.py); nothing here reads the others: another value than torch's default is kept, with a
warning once. Names that torch does not have are an AttributeError, as there.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from types import ModuleType
from typing import Any

from compiler_core.config import config
from compiler_core.log import warn_once


class SettingsModule(ModuleType):
    """defaults: name -> value, or a group of such; knobs: name -> the knob of ours that it is."""

    def __init__(self, name: str, defaults: Mapping[str, Any], knobs: Mapping[str, str]) -> None:
        super().__init__(name)
        groups = {k: SettingsModule(f"{name}.{k}", v, {}) for k, v in defaults.items() if isinstance(v, dict)}
        self.__dict__.update(_defaults=defaults, _knobs=knobs, _set={}, **groups)

    def __getattr__(self, name: str) -> Any:
        if name in self._knobs:
            return getattr(config, self._knobs[name])
        if name not in self._defaults:
            raise AttributeError(f"{_in_torch(self)}.{name} does not exist")
        if isinstance(self._defaults[name], set):
            return self._set.setdefault(name, copy.copy(self._defaults[name]))
        return self._set.get(name, self._defaults[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):  # the import system's
            super().__setattr__(name, value)
        elif name in self._knobs:
            config.values[self._knobs[name]] = value
        else:
            self._keep(name, value)

    def _keep(self, name: str, value: Any) -> None:
        before = getattr(self, name)
        self._set[name] = value
        if value not in (before, self._defaults[name]):
            where = f"{_in_torch(self)}.{name}"
            warn_once(where, f"{where} = {value!r}: nothing here reads it")

    def patch(self, arg1: str | Mapping[str, Any] | None = None, arg2: Any = None, **kwargs: Any) -> Any:
        """A block, or a decorator of functions, in which names have other values: a name and a value, a dict, or words.

        Names of a group are `group.name`. Raises AttributeError for a name that is none.
        """
        changes = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or kwargs)
        for name in changes:
            reduce(getattr, name.split("."), self)
        return _changed(self, changes)


def _in_torch(settings: SettingsModule) -> str:
    return settings.__name__.replace("distcompile", "torch", 1)


@contextmanager
def _changed(settings: SettingsModule, changes: Mapping[str, Any]) -> Iterator[None]:
    paths = {name: name.split(".") for name in changes}
    places = {name: (reduce(getattr, path[:-1], settings), path[-1]) for name, path in paths.items()}
    before = {name: getattr(*place) for name, place in places.items()}
    try:
        for name, value in changes.items():
            setattr(*places[name], value)
        yield
    finally:
        for name, value in before.items():
            setattr(*places[name], value)


def hold(module: str, defaults: Mapping[str, Any], knobs: Mapping[str, str]) -> None:
    """Put settings in the place of a module that is being imported."""
    made = SettingsModule(module, defaults, knobs)
    made.__spec__ = sys.modules[module].__spec__
    sys.modules[module] = made
