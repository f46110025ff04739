"""Tracing: a Module's forward, or a function, run on Proxies; what it does becomes a graph.

In: a Module or a function, values for arguments that are known (`concrete_args`). Out: `Tracer.trace` gives a `Graph`,
`symbolic_trace` a `GraphModule`. While tracing, a call of a Module is a node if it is a leaf (`is_leaf_module`: the
package's own layers), else its forward is run on; functions that `wrap` was told of, and those of modules that a Tracer
is given (`math`), are nodes when a Proxy is among their arguments. Everything is put back afterwards.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from compiler_core.tensor.tensor import Tensor
from distcompile.fx.errors import FxError, FxPlaceError
from distcompile.fx.graph import Graph
from distcompile.fx.graph_module import GraphModule
from distcompile.fx.node import Argument, map_aggregate
from distcompile.fx.proxy import Proxy, TracerBase, _operator
from distcompile.nn.layers.containers import Sequential
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter
from distcompile.surface.asking import _assert

__all__ = ["PH", "Tracer", "symbolic_trace", "wrap"]

F = TypeVar("F", bound="str | Callable[..., object]")
WRAPPED: list[tuple[dict[str, Any], str]] = []  # (globals of a module, a name in them)
_OWN_LAYERS = ("distcompile.nn", "torch.nn")


class PHBase:
    """In `concrete_args`: this stays an argument."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


def wrap(fn_or_name: F) -> F:
    """At the top of a module: calls of this function, or of the global of this name, with a Proxy are nodes.

    Raises FxError (a NotImplementedError) inside a function.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise FxError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise FxPlaceError("wrap must be called at the top level of a module")
    WRAPPED.append((frame.f_globals, name))
    return fn_or_name


class Tracer(TracerBase):
    """Traces. autowrap_modules, autowrap_functions: whose calls with a Proxy are nodes wherever they are global."""

    def __init__(
        self, autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (), param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        found = [value for module in autowrap_modules for name, value in vars(module).items()
                 if not name.startswith("_") and callable(value)]  # fmt: skip
        self._autowrap_modules = autowrap_modules
        self._autowrap_function_ids = {id(value) for value in [*found, *autowrap_functions]}
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.tensor_attrs: dict[int, str] = {}

    # -- what a tracer may decide otherwise

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of it is a node."""
        return type(m).__module__.startswith(_OWN_LAYERS) and not isinstance(m, Sequential)

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A Module is called: a node, or what its forward gives."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """A Module is asked for an attribute."""
        wanted = isinstance(attr_val, Parameter) and self.param_shapes_constant
        if not wanted and not (self.proxy_buffer_attributes and isinstance(attr_val, Tensor)):
            return attr_val
        path = self.tensor_attrs.get(id(attr_val))
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {})
        return parameter_proxy_cache[path]

    def path_of_module(self, mod: Module) -> str:
        """Where a Module lies in the root. Raises NameError for one that does not."""
        if self.submodule_paths is not None:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def create_arg(self, a: Any) -> Argument:
        """As TracerBase's; a parameter or buffer of the root, or any Tensor, is the root's attribute."""
        if isinstance(a, Tensor):
            path = self.tensor_attrs.get(id(a))
            if path is None:
                path = self._constant(a, "_tensor_constant")
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        try:
            return super().create_arg(a)
        except NotImplementedError:
            if type(a).__module__ == "builtins":
                raise
            return self.create_node("get_attr", self._constant(a, f"_{type(a).__name__}_constant_"), (), {})

    def _constant(self, value: Any, prefix: str) -> str:
        """The name of an attribute of the root that holds `value`."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        setattr(self.root, f"{prefix}{number}", value)
        self.tensor_attrs[id(value)] = f"{prefix}{number}"
        return f"{prefix}{number}"

    # -- tracing

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of `root`. concrete_args: values that arguments have; the code is right for these alone."""
        if isinstance(root, Module):
            self.root, fn = root, type(root).forward
            self.submodule_paths = {module: name for name, module in root.named_modules()}
            self.root_module_name = root._get_name()
        else:
            self.root, fn = Module(), root
        self.tensor_attrs = {id(tensor): name for name, tensor in self._tensors()}
        self.graph = Graph(tracer_cls=type(self))
        args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        with self._patched(fn):
            result = _with_places_alone(fn)(*args)
        self.create_node("output", "output", (self.create_arg(result),), {},
                         type_expr=_kind(getattr(fn, "__annotations__", {}).get("return")))  # fmt: skip
        self.submodule_paths = None
        return self.graph

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from chain(self.root.named_parameters(remove_duplicate=False), self.root.named_buffers())
        for prefix, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    yield f"{prefix}.{name}" if prefix else name, value

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> list[Any]:
        """A Proxy for each argument of the function, or its value."""
        known = concrete_args or {}
        parameters = sorted(inspect.signature(inspect.unwrap(root_fn)).parameters.values(), key=_place_in_code)
        args: list[Any] = []
        if is_module:
            if not parameters:
                raise FxError("self argument not found in the module's forward")
            args.append(self.root)
            parameters = parameters[1:]
        for parameter in parameters:
            args += self._argument(parameter, known)
        return args

    def _argument(self, parameter: inspect.Parameter, known: dict[str, Any]) -> list[Any]:
        stars = "*" * max(0, _place_in_code(parameter) - 2)
        name, kind = stars + parameter.name, _annotation(parameter)
        default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
        if name not in known:
            return [self.create_proxy("placeholder", name, default, {}, type_expr=kind)]

        return [self._known(name, default, known[name])]

    def _known(self, name: str, default: tuple[Any, ...], value: Any) -> Any:
        """An argument whose value is known: the code asserts it. PH: it is an argument after all."""
        if isinstance(value, (list, tuple, dict)):
            raise FxError("concrete_args: containers are not taken", remedy="name their entries as arguments")
        made = self.create_proxy("placeholder", f"{name}_1", default, {})
        if value is PH:
            return made
        told = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (made, told), {})
        elif isinstance(value, int | float | bool | str | complex):
            self.create_proxy("call_function", _assert, (_operator("eq")(made, value), told), {})
        else:
            warnings.warn(f"Was not able to add assertion to guarantee correct input {name} to specialized function.",
                          stacklevel=2)  # fmt: skip
        return value

    @contextmanager
    def _patched(self, fn: Callable[..., Any]) -> Iterator[None]:
        """Modules call the tracer, wrapped functions make nodes."""
        undo: list[Callable[[], None]] = []
        cache: dict[str, Any] = {}
        call, get = Module.__call__, Module.__getattr__

        @functools.wraps(call)
        def module_call(mod: Any, /, *args: Any, **kwargs: Any) -> Any:
            forward = functools.partial(call, mod)
            return self.call_module(mod, forward, args, kwargs)

        @functools.wraps(get)
        def module_getattr(mod: Any, attr: str) -> Any:
            return self.getattr(attr, get(mod, attr), cache)

        def put(space: dict[str, Any], name: str, value: Any) -> None:
            had, before = name in space, space.get(name)
            undo.append(lambda: space.__setitem__(name, before) if had else space.pop(name, None))
            space[name] = value

        for space, name in WRAPPED:
            original = space.get(name, getattr(builtins, name, None))
            if original is not None and not getattr(original, "__fx_already_patched", False):
                put(space, name, _node_maker(original))
        for space in self._global_spaces(fn):
            for name, value in list(space.items()):
                if id(value) in self._autowrap_function_ids and not name.startswith("_"):
                    put(space, name, _node_maker(value))
        owner = next(kind for kind in Module.__mro__ if "__call__" in vars(kind))
        holder = next(kind for kind in Module.__mro__ if "__getattr__" in vars(kind))
        setattr(owner, "__call__", module_call)  # noqa: B010
        setattr(holder, "__getattr__", module_getattr)  # noqa: B010
        try:
            yield
        finally:
            setattr(owner, "__call__", call)  # noqa: B010
            setattr(holder, "__getattr__", get)  # noqa: B010
            for step in reversed(undo):
                step()

    def _global_spaces(self, fn: Callable[..., Any]) -> list[dict[str, Any]]:
        """The globals of the function and of the forwards of all modules, and what is in the modules to wrap."""
        functions = [fn, *(type(module).forward for module in self.root.modules())]
        spaces = {id(f.__globals__): f.__globals__ for f in functions if isinstance(f, FunctionType)}
        return [*spaces.values(), *map(vars, self._autowrap_modules)]


_ORDER = (
    inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD,
)  # fmt: skip


def _place_in_code(parameter: inspect.Parameter) -> int:
    return _ORDER.index(parameter.kind)


def _with_places_alone(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, which takes every argument by place: *args and **kwargs as one Proxy each."""
    inner = inspect.unwrap(fn)
    parameters = inspect.signature(inner).parameters.values()
    if not isinstance(inner, FunctionType) or all(_place_in_code(parameter) < 2 for parameter in parameters):
        return fn
    flags = inner.__code__.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    code = inner.__code__.replace(
        co_flags=flags, co_argcount=len(parameters), co_posonlyargcount=0, co_kwonlyargcount=0
    )
    return FunctionType(code, inner.__globals__, inner.__name__, None, inner.__closure__)


def _annotation(parameter: inspect.Parameter) -> Any:
    return None if parameter.annotation is inspect.Parameter.empty else _kind(parameter.annotation)


def _kind(annotation: Any) -> Any:
    """An annotation that is no text."""
    return None if isinstance(annotation, str) else annotation


def _assert_is_none(value: Any, msg: str) -> None:
    assert value is None, msg


def _node_maker(original: Callable[..., Any]) -> Callable[..., Any]:
    """`original`, whose calls with a Proxy are nodes."""

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxies: list[Proxy] = []

        def note(value: Any) -> Any:
            if isinstance(value, Proxy):
                proxies.append(value)
            return value

        map_aggregate((args, kwargs), note)
        if not proxies:
            return original(*args, **kwargs)
        made = proxies[0].tracer.create_proxy("call_function", original, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    wrapped.__fx_already_patched = True  # type: ignore[attr-defined]
    return wrapped


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A GraphModule that does what `root` does, whatever its inputs. concrete_args: values that arguments have.

    Raises TraceError (a ValueError) where what it does depends on values.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = root._get_name() if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
