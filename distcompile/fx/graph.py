"""A graph: nodes in the order in which they run, and the tools to add, move, copy, check and remove them.

In: ops, targets, arguments. Out: `Graph`; its code by `python_code`. Raises: FxError (a RuntimeError).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Literal

from distcompile.fx.codegen import CodeGen as CodeGen
from distcompile.fx.codegen import PythonCode
from distcompile.fx.errors import FxError
from distcompile.fx.naming import Namespace, snake_case
from distcompile.fx.node import Argument, Node, Target, erase_uses, map_arg, qualified_name

__all__ = ["Graph", "PythonCode"]


class NodeList:
    """A graph's nodes, from the first on or from the last; nodes may come and go meanwhile."""

    def __init__(self, graph: Graph, direction: Literal["_next", "_prev"] = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        node = getattr(self.graph._root, self.direction)
        while node is not self.graph._root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> NodeList:
        return NodeList(self.graph, "_prev" if self.direction == "_next" else "_next")


class _Inserting:
    """A block in which new nodes are put elsewhere."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph, self.before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self.graph._insert = self.before


class Graph:
    """Nodes. owning_module: the GraphModule that runs it."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self.owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    @property
    def nodes(self) -> NodeList:
        """All nodes, in order."""
        return NodeList(self)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """Those of this op, and of this target if one is given."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    def output_node(self) -> Node:
        """The output."""
        (node,) = self.find_nodes(op="output")
        return node

    def _place(self, node: Node) -> int:
        return next(place for place, other in enumerate(self.nodes) if other is node)

    # -- making nodes

    def create_node(
        self, op: str, target: Target, args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A node, put where nodes are put now (at the end). Its name is `name`, or near to it."""
        candidate = name if name is not None else self._target_to_str(target)
        node = Node(self, self._graph_namespace.create_name(candidate, None), op, target, args or (), kwargs or {},
                    type_expr)  # fmt: skip
        self._graph_namespace.associate_name_with_obj(node.name, node)
        self._insert(node)
        self._len += 1
        return node

    def _target_to_str(self, target: Target) -> str:
        if callable(target):
            return snake_case(getattr(target, "__name__", type(target).__name__))
        inner = target[2:-2] if target.startswith("__") and target.endswith("__") else target
        return snake_case(inner)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An argument of the function."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A call of a method of args[0]."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """What the function returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """A node like `node`, of another graph, on the arguments that `arg_transform` gives for its."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies of all nodes of `g`, noted in `val_map`; gives what its output holds."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # -- changing

    def inserting_before(self, n: Node | None = None) -> _Inserting:
        """A block in which new nodes stand before `n` (None: before all)."""
        return self.inserting_after(self._root) if n is None else _Inserting(self, self._own(n).prepend)

    def inserting_after(self, n: Node | None = None) -> _Inserting:
        """A block in which new nodes stand behind `n` (None: behind all), each behind the one before."""
        if n is None:
            return _Inserting(self, self._root.prepend)
        follower = self._own(n).next if n is not self._root else self._root.next
        return _Inserting(self, follower.prepend)

    def _own(self, node: Node) -> Node:
        if node.graph is not self:
            raise FxError(f"Node to insert at is of another graph: {node!r}")
        return node

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node. Raises FxError (a RuntimeError) if it has users, or is of another graph."""
        if to_erase.users:
            raise FxError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the "
                                f"graph: {to_erase.users}!")  # fmt: skip
        if to_erase.graph is not self:
            raise FxError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._cut()
        erase_uses(to_erase)
        self._len -= 1

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove nodes that nobody reads and that do nothing else. Gives whether there were any."""
        self.lint()
        impure = is_impure_node or Node.is_impure
        before = self._len
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
        return self._len < before

    # -- asking

    def lint(self) -> None:
        """Raise FxError (a RuntimeError) unless nodes read earlier ones of this graph, and targets are there."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise FxError(f"Node '{node}' does not belong to this Graph!")
            if node.name in names:
                raise FxError(f"Node redefined name {node.name}!")
            for used in node._input_nodes:
                if used not in seen:
                    raise FxError(f"Argument '{used}' of Node '{node}' was used before it has been defined! "
                                        "Please check that Nodes in the graph are topologically ordered")  # fmt: skip
            seen.add(node)
            names.add(node.name)
            if node.op in ("get_attr", "call_module") and self.owning_module is not None:
                self._check_target(node)

    def _check_target(self, node: Node) -> None:
        value = self.owning_module
        for part in str(node.target).split("."):
            if not hasattr(value, part):
                raise FxError(f"Node {node} target {node.target} does not reference an attribute {part} of the "
                                    "module")  # fmt: skip
            value = getattr(value, part)

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        """The graph as a Python function, whose attributes are those of `root_module` ("self")."""
        namespace = Namespace()
        nodes = list(self.nodes)
        for node in nodes:
            node._repr_fn = lambda n, known=namespace: known.create_name(n.name, n)
        try:
            return self._codegen.python(nodes, root_module, namespace)
        finally:
            for node in nodes:
                node._repr_fn = None

    def set_codegen(self, codegen: CodeGen) -> None:
        """Make functions of it in another way."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Any], Any]) -> _Transforming:
        """Pass the lines of code through make_transformer(the function before); a context manager."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        return _Transforming(self, before)

    def process_inputs(self, *args: Any) -> Any:
        """What the placeholders are given, of the function's arguments."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the function returns, of the output's value."""
        return self._codegen.process_outputs(out)

    def print_tabular(self) -> None:
        """Print the nodes, a line each, in columns."""
        rows = [["opcode", "name", "target", "args", "kwargs"]]
        rows += [[n.op, n.name, _shown(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        rows.insert(1, ["-" * width for width in widths])
        print("\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows))

    def __str__(self) -> str:
        parameters: list[str] = []
        lines = [node.format_node(parameters) for node in self.nodes]
        return "\n    ".join(["graph():", *lines])

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls)
        known: dict[Node, Node] = {}
        for node in self.nodes:
            known[node] = made.node_copy(node, lambda n: known[n])
            memo[id(node)] = known[node]
        made._codegen = copy.deepcopy(self._codegen)
        memo[id(self)] = made
        return made


class _Transforming:
    def __init__(self, graph: Graph, before: Any) -> None:
        self.graph, self.before = graph, before

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self.graph._codegen._body_transformer = self.before


def _shown(target: Target) -> str:
    return target if isinstance(target, str) else qualified_name(target)
