"""What `jit.trace` and `jit.script` make: what runs as before, and can be saved as an exported program.

In: a module or function and example arguments. Out: its like, with `save`; `load`, a Module of what was saved.
Calls run Python, so nothing that the example did not do is lost, as it is in a trace of torch's. The file is that of
`export.save`: sizes may change where the code lets them, and what is no one graph cannot be saved (`export`'s errors).
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

from compiler_core.capture.compiled.module import CompiledModule
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import mapped
from distcompile import export
from distcompile.errors import CheckpointError, NotSupportedError
from distcompile.export.module import ExportedModule
from distcompile.nn.module import Module
from distcompile.serialization import File


class TracedModule(CompiledModule):
    """The module itself, to all who ask; and `save`."""

    def __init__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(module, "codegen", fullgraph=False)
        object.__setattr__(self, "_example", (args, kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def save(self, f: File, **_: object) -> None:
        """Export the module as it is now, and write the program."""
        save(self, f)

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedModule:
        made = memo[id(self)] = type(self)(copy.deepcopy(self._module, memo), *self._example)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._module, *self._example)


class ScriptedModule(TracedModule):
    """A module that was scripted: what it is first called with, but for the numbers, is its example."""

    def __init__(self, module: Module, args: tuple[Any, ...] | None = None, kwargs: Any = None) -> None:
        super().__init__(module, args, kwargs)  # type: ignore[arg-type]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._example[0] is None and current_trace() is None:
            object.__setattr__(self, "_example", (mapped(_like, args), mapped(_like, kwargs)))
        return self._function(*args, **kwargs)


def _like(leaf: Any) -> Any:
    """A tensor of this shape, dtype and device, in the memory of one number."""
    return leaf.new_zeros(()).expand(leaf.shape) if isinstance(leaf, Tensor) else leaf


class TracedFunction:
    """A function that was traced."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._example = function, (args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def save(self, f: File, **_: object) -> None:
        """Export the function, and write the program."""
        save(self, f)


class _Function(Module):
    """A function as a Module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward: Any = function


class LoadedModule(ExportedModule):
    """What `jit.save` wrote."""

    def train(self, mode: bool = True) -> Any:
        """Itself; a warning where it was saved in the other mode."""
        if mode is not self.training:
            now, wanted = ("training" if on else "evaluation" for on in (self.training, mode))
            warnings.warn(f"a saved program stays in {now} mode: save it in {wanted} mode", stacklevel=2)
        return self


def trace(func: Any, example_inputs: Any, example_kwarg_inputs: dict[str, Any] | None) -> Any:
    """`func`, which runs as it did, with `save`."""
    args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    if example_inputs is None:
        args = ()
    kind = TracedModule if isinstance(func, Module) else TracedFunction
    return kind(func, args, dict(example_kwarg_inputs or {}))


def save(traced: Any, f: File) -> None:
    """Write what `trace` or `script` made. Raises NotSupportedError for what no example is known of."""
    if isinstance(traced, LoadedModule):
        return export.save(traced.program, f)
    if type(traced) not in (TracedModule, ScriptedModule, TracedFunction) or traced._example[0] is None:
        raise NotSupportedError("jit.save of what was not traced, nor called: what its arguments are is not known",
                                remedy="jit.trace(module, example_inputs), or call it once")  # fmt: skip
    export.save(program_of(traced._function, *traced._example), f)
    return None


def program_of(
    called: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any = None
) -> export.ExportedProgram:
    """The exported program of a module or function, for `dynamic_shapes`, by default all that the code lets change."""
    module = called if isinstance(called, Module) else _Function(called)
    if dynamic_shapes is None:
        given = export.dynamic_shapes.arguments(module.forward, args, kwargs)
        dynamic_shapes = {name: mapped(_any_sizes, value) for name, value in given.items()}
    return export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)


def _any_sizes(leaf: Any) -> Any:
    """What is declared of an argument: every size may change but 1, if the code lets it."""
    if not isinstance(leaf, Tensor):
        return None
    return {dim: export.Dim.AUTO for dim, size in enumerate(leaf.shape) if size > 1}


def load(f: File) -> LoadedModule:
    """A Module of a file of `save`. Raises NotSupportedError for one of TorchScript."""
    try:
        return LoadedModule(export.load(f))
    except CheckpointError as error:
        what = f"jit.load reads what jit.save wrote here, not files of TorchScript: {error.what}"
        raise NotSupportedError(what, remedy="save the state_dict") from error
