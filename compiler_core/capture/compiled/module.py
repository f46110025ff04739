"""A compiled module that still is the module, to all who ask: the same class, attributes, parameters, state dict keys.

In: a module. Out: `CompiledModule`, which calls it compiled, and passes everything else on: reading and setting
attributes, methods (those that return the module, such as `train()`, return the compiled one), `isinstance`. It can be
a child of another module, an argument of DDP or of an optimizer, copied and pickled (what was compiled is not).
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import MethodType
from typing import Any

from compiler_core.capture.compiled.function import CompiledFunction


class CompiledModule(CompiledFunction):
    """See the head of this file."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # what isinstance() asks when type() is not the answer
        return type(self._function)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self  # a module in a class body is no method

    def __getattr__(self, name: str) -> Any:
        if name in OWN:
            raise AttributeError(name)  # before __init__ has run (copying, unpickling)
        value = getattr(self._function, name)
        if isinstance(value, MethodType) and value.__self__ is self._function:
            return functools.partial(self._run_method, value)
        return value

    def _run_method(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A method of the original; where it returns the original, the compiled one stands for it."""
        result = method(*args, **kwargs)
        return self if result is self._function else result

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN or name.startswith("__") or name == "_orig_mod":
            object.__setattr__(self, name, value)
        else:
            setattr(self._function, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._function, name)

    @property
    def _orig_mod(self) -> Callable[..., Any]:
        """The module itself: what code written for torch asks a compiled one for."""
        return self._function

    @_orig_mod.setter
    def _orig_mod(self, module: Callable[..., Any]) -> None:
        """Call this one from now on; another than before is compiled anew."""
        if module is not self._function:
            state = self._state
            CompiledFunction.__init__(self, module, self._backend_choice, fullgraph=self._fullgraph,
                                      skip_hook_guards=state.skips_hooks, dynamic=state.dynamic,
                                      memory_budget=state.memory_budget, offload=state.offload)  # fmt: skip

    @property
    def dynamo_ctx(self) -> Callable[[Callable[..., Any]], CompiledFunction]:
        """A decorator that compiles as this was compiled: Lightning compiles the steps of a compiled module by it."""
        return functools.partial(
            CompiledFunction, backend=self._backend_choice, fullgraph=self._fullgraph,
            skip_hook_guards=self._state.skips_hooks, dynamic=self._state.dynamic,
            memory_budget=self._state.memory_budget, offload=self._state.offload,
        )  # fmt: skip

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """The module's own; keys may also begin with "_orig_mod.", as those of torch's compiled modules do."""
        bare: Any = OrderedDict((name.removeprefix("_orig_mod."), value) for name, value in state_dict.items())
        versions = getattr(state_dict, "_metadata", None) or {}
        bare._metadata = {name.removeprefix("_orig_mod").removeprefix("."): facts for name, facts in versions.items()}
        return self._module.load_state_dict(bare, strict=strict, assign=assign)

    # Python looks these up on the type: the containers' (Sequential, ModuleList)

    def __getitem__(self, key: Any) -> Any:
        return self._module[key]

    def __len__(self) -> int:
        return len(self._module)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._module)

    def __contains__(self, item: object) -> bool:
        return item in self._module

    def __bool__(self) -> bool:
        return bool(self._module)

    @property
    def _module(self) -> Any:
        return self._function

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._function), "explain"})

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        made = _rebuild(copy.deepcopy(self._function, memo), *self._choices())
        memo[id(self)] = made
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._function, *self._choices())

    def _choices(self) -> tuple[Any, dict[str, bool | float | None]]:
        state = self._state
        options = {"skip_hook_guards": state.skips_hooks, "fallback_random": state.falls_back}
        more = {"dynamic": state.dynamic, "memory_budget": state.memory_budget, "offload": state.offload}
        return self._backend_choice, {"fullgraph": self._fullgraph, **options, **more}

    def __repr__(self) -> str:
        return repr(self._function)


def _rebuild(module: Callable[..., Any], backend: Any, options: dict[str, Any]) -> CompiledModule:
    return CompiledModule(module, backend, **options)


OWN = frozenset(
    {
        "_function",
        "_backend_choice",
        "_fullgraph",
        "_state",
    }
)  # the attributes that are not the module's
