"""What stands for a value while a program is traced: every operation on a Proxy becomes a node.

In: operations of a Python program: operators, methods, attributes, torch's functions. Out: Proxies; nodes in the
tracer's graph. Raises TraceError (a ValueError) where the program needs the value itself: `if`, `for`, `len`.
"""

from __future__ import annotations

import dis
import enum
import operator
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.memory_format import layout, memory_format
from compiler_core.tensor.tensor import Tensor
from distcompile.fx.codegen import MAGIC, REFLECTABLE
from distcompile.fx.errors import FxError, TraceError
from distcompile.fx.graph import Graph
from distcompile.fx.node import Argument, Node, Target, map_aggregate

__all__ = ["Attribute", "GraphAppendingTracer", "Proxy", "TraceError", "TracerBase"]

_PLAIN = (str, int, float, bool, complex, DType, Tensor, Device, memory_format, layout, enum.Enum, range, type(None))


class TracerBase:
    """Makes nodes of what a program does. graph: where they go."""

    graph: Graph
    record_stack_traces = False
    trace_asserts = False
    proxy_buffer_attributes = False
    check_mutable_operations = False

    def create_node(
        self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument],
        name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A node in the graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """What stands for a node's value."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None,
        type_expr: Any = None, proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:  # fmt: skip
        """A node on these arguments, Proxies among them, and what stands for its value."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        if self.record_stack_traces:
            node.stack_trace = "".join(traceback.format_list(_user_frames()))
        return proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)

    def create_arg(self, a: Any) -> Argument:
        """A value as an argument of a node. Raises NotImplementedError for one that a graph cannot hold."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(item) for item in a]
            return type(a)(*items) if hasattr(a, "_fields") else type(a)(items)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if isinstance(a, _PLAIN) or a is ...:
            return a
        if is_dataclass(a) and not isinstance(a, type):
            given = {field.name: self.create_arg(getattr(a, field.name)) for field in fields(a)}
            return self.create_node("call_function", type(a), (), given)
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        made = self.create_arg(key)

        def refuse(value: Any) -> Any:
            if isinstance(value, Node):
                raise TraceError("Keys for dictionaries used as an argument cannot contain a Node", got=repr(value))
            return value

        return map_aggregate(made, refuse)

    def to_bool(self, obj: Proxy) -> bool:
        """The program asks whether a value is true."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Proxy]:
        """The program iterates over a value."""
        raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or "
                         "as a *args or **kwargs function argument.", remedy="a loop of known length")  # fmt: skip

    def keys(self, obj: Proxy) -> Any:
        """The program asks a value for its keys, as ** does."""
        return Attribute(obj, "keys")()


def _user_frames() -> list[traceback.FrameSummary]:
    """Where the program is, without this package's own frames."""
    frames = traceback.extract_stack(sys._getframe(2))
    return [frame for frame in frames if "/distcompile/fx/" not in frame.filename]


class GraphAppendingTracer(TracerBase):
    """Puts nodes at the end of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy:
    """What stands for the value of `node`."""

    node: Node
    tracer: TracerBase

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.node, self.tracer = node, tracer or GraphAppendingTracer(node.graph)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k in ("node", "tracer") or (k.startswith("__") and k.endswith("__")):
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        instructions = {i.offset: i for i in dis.get_instructions(frame.f_code)}
        current = instructions.get(frame.f_lasti)
        if current is not None and current.opname == "UNPACK_SEQUENCE":
            item = _operator("getitem")
            return iter([item(self, i) for i in range(current.argval)])
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _in_assert(sys._getframe(1)):
            import distcompile

            self.tracer.create_proxy("call_function", distcompile._assert, (self, ""), {})
            return True
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise FxError("'len' is not supported in symbolic tracing by default. If you want this call to be "
                               "recorded, please call torch.fx.wrap('len') at module scope")  # fmt: skip

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        import copy

        made = type(self).__new__(type(self))
        for name, value in vars(self).items():
            made.__dict__[name] = value if name in ("node", "tracer") else copy.deepcopy(value, memo)
        return made

    def keys(self) -> Any:
        """The keys, as the tracer sees them."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """A function of torch's, or a method of Tensor's, called with a Proxy among its arguments."""
        from distcompile.overrides import is_tensor_method_or_property

        tracers: dict[TracerBase, None] = {}

        def note(value: Any) -> Any:
            if isinstance(value, Proxy):
                tracers[value.tracer] = None
            return value

        map_aggregate((args, dict(kwargs or {})), note)
        if len(tracers) != 1:
            raise FxError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations {orig_method}"
            )
        (tracer,) = tracers
        if is_tensor_method_or_property(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs or {})
        return tracer.create_proxy("call_function", orig_method, args, kwargs or {})


class Attribute(Proxy):
    """root.attr: a node of its own only if it is used as a value; called, it is a method's call."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _in_assert(frame: Any) -> bool:
    """Whether the frame runs the condition of an `assert`."""
    code = list(dis.get_instructions(frame.f_code))
    place = next((i for i, step in enumerate(code) if step.offset == frame.f_lasti), None)
    if place is None or not code[place].opname.startswith("POP_JUMP") or place + 1 >= len(code):
        return False
    following = [step.opname for step in code[place + 1 : place + 2]]
    return "LOAD_ASSERTION_ERROR" in following


def _operator(name: str, is_reflected: bool = False) -> Callable[..., Any]:
    target = getattr(operator, name)

    def operate(self: Proxy, *args: Any) -> Any:
        given = (*reversed(args), self) if is_reflected else (self, *args)
        return self.tracer.create_proxy("call_function", target, given, {})

    return operate


for _name in (*MAGIC, *REFLECTABLE):
    setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name))
for _name in REFLECTABLE:
    setattr(Proxy, f"__r{_name.strip('_')}__", _operator(_name, is_reflected=True))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]  # __eq__ makes a node
