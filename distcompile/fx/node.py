"""Nodes of a graph: one operation each, with arguments that are other nodes or plain values.

In: an op ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output"), a target, arguments.
Out: `Node`. Invariants: `users` of a node are the nodes whose arguments hold it, whoever assigns `args` or `kwargs`;
nodes of a graph are a ring, in which the graph's root stands before the first.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from distcompile.fx.errors import FxError
from distcompile.fx.immutable_collections import immutable_dict, immutable_list
from distcompile.surface.asking import _assert

if TYPE_CHECKING:
    from distcompile.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = Any  # a Node, a plain value, or a tuple, list, dict or slice of these
OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output", "root")
F = TypeVar("F", bound=Callable[..., Any])
_side_effectful_functions: set[Any] = {_assert}


def has_side_effect(fn: F) -> F:
    """`fn`: calls of it stay in a graph, though nobody reads what they give."""
    _side_effectful_functions.add(fn)
    return fn


class Node:
    """One operation. name: of its value in the code. users: an ordered set, as a dict. meta: what passes note on it."""

    def __init__(
        self, graph: Graph, name: str, op: str, target: Target, args: tuple[Argument, ...],
        kwargs: dict[str, Argument], return_type: Any = None,
    ) -> None:  # fmt: skip
        if op not in OPS:
            raise FxError(f"no such op of a node: {op!r}", expected=", ".join(OPS))
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self.meta: dict[str, Any] = {}
        self._take(args, kwargs)

    # -- arguments

    @property
    def args(self) -> tuple[Argument, ...]:
        """By place."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._take(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """By name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Argument]) -> None:
        self._take(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in its arguments, each once."""
        return list(self._input_nodes)

    def _take(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        found: dict[Node, None] = {}

        def note(value: Node) -> Node:
            found[value] = None
            return value

        self._args = tuple(map_arg(tuple(args), note))
        self._kwargs = map_arg(dict(kwargs), note)
        self._input_nodes = found
        for node in found:
            node.users[self] = None

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Another argument at this place."""
        self.args = (*self.args[:idx], arg, *self.args[idx + 1 :])

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """One more argument at this place."""
        if not 0 <= idx <= len(self.args):
            raise FxError("insert_args index must be between 0 and len(self.args)", got=str(idx))
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Another argument of this name."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """`new_input` wherever `old_input` stands in its arguments."""
        swap: Callable[[Node], Node] = lambda node: new_input if node is old_input else node  # noqa: E731
        self._take(map_arg(self.args, swap), map_arg(self.kwargs, swap))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *,
        propagate_meta: bool = False,
    ) -> list[Node]:  # fmt: skip
        """`replace_with` wherever this is an argument of a node that `delete_user_cb` says yes to; gives those."""
        if propagate_meta:
            replace_with.meta.update({key: value for key, value in self.meta.items() if key not in replace_with.meta})
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # -- place in the graph

    @property
    def next(self) -> Node:
        """The node after it; of the last, the graph's root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before it; of the first, the graph's root."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x` before this one."""
        if x is self:
            return
        if x.graph is not self.graph:
            raise FxError("Attempting to move a Node into a different Graph")
        x._cut()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Move `x` behind this one."""
        self._next.prepend(x)

    def _cut(self) -> None:
        """Take it out of the ring; it still knows its neighbours, for whoever is walking over it."""
        self._prev._next, self._next._prev = self._next, self._prev

    # -- questions

    @property
    def stack_trace(self) -> str | None:
        """Where the program was, if the tracer noted it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it stays in the graph though nobody reads its value."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _side_effectful_functions
        if self.op == "call_module":
            owner: Any = self.graph.owning_module
            if owner is None:
                raise FxError("self.graph.owning_module not set for purity check")
            return bool(getattr(owner.get_submodule(self.target), "_is_impure", False))
        return False

    def _pretty_print_target(self, target: Any) -> str:
        if isinstance(target, str):
            return target
        return f"builtins.{target.__name__}" if target in _SHORT.values() else qualified_name(target)

    def format_node(self, placeholder_names: list[str] | None = None, **options: Any) -> str:
        """The node as a line of text."""
        kind = "" if self.type is None else f"{getattr(self.type, '__name__', self.type)} "
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] ="
        target = self._pretty_print_target(self.target)
        if self.op == "placeholder":
            return f"{head} placeholder[target={target}]" + (f"(default={self.args[0]!r})" if self.args else "")
        if self.op == "output":
            return f"return {self.args[0]}"
        called = f"(args = {_listed(self.args)}, kwargs = {_listed(self.kwargs)})" if self.op != "get_attr" else ""
        return f"{head} {self.op}[target={target}]{called}"

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def __lt__(self, other: Node) -> bool:
        return self.graph._place(self) < other.graph._place(other)

    def __gt__(self, other: Node) -> bool:
        return other < self


def _listed(value: Any) -> str:
    """Arguments with a % before nodes."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_listed, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_listed, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_listed(entry)}" for key, entry in value.items()) + "}"
    return str(value)


_SHORT = {name: getattr(builtins, name) for name in ("getattr", "len", "int", "float", "bool", "isinstance")}


def qualified_name(function: Any) -> str:
    """What code calls a function by: `torch.relu`, `torch.nn.functional.gelu`, `getattr`, `package.module.name`."""
    from distcompile.fx.naming import name_in_torch

    known = name_in_torch(function)
    if known is not None:
        return known
    module = {"_operator": "operator", "builtins": ""}.get(function.__module__ or "", function.__module__ or "")
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", repr(function))
    return f"{module}.{name}" if module else str(name)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Any:
    """`a` with fn(node) for each node in it."""
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


def map_aggregate(a: Argument, fn: Callable[[Any], Any]) -> Any:
    """`a` with fn(value) for each value in its tuples, lists, dicts and slices; those are immutable afterwards."""
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else type(a)(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


def erase_uses(node: Node) -> None:
    """A node that goes has no arguments left."""
    node._take((), {})
    node._erased = True
