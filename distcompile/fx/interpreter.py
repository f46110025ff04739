"""A graph run node by node, by `Interpreter`, whose methods a subclass may replace; `Transformer` makes another of it.

In: a GraphModule, arguments. Out: its result; a GraphModule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distcompile.fx.errors import FxError
from distcompile.fx.graph import Graph
from distcompile.fx.graph_module import GraphModule
from distcompile.fx.node import Argument, Node, Target, map_arg
from distcompile.fx.proxy import Proxy, TracerBase
from distcompile.nn.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph. Each op is a method: placeholder, get_attr, call_function, call_method, call_module, output.

    garbage_collect_values: a value is dropped after its last use. graph: instead of the module's.
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self.name = "Interpreter"
        self.args_iter: Iterator[Any] = iter(())
        self._last: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(self.graph.nodes) if garbage_collect_values else ():
            for used in node._input_nodes:
                if used not in seen:
                    seen.add(used)
                    self._last.setdefault(node, []).append(used)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """What the module gives for these arguments."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(self.graph.process_inputs(*args) if enable_io_processing else args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            for gone in self._last.get(node, ()):
                del self.env[gone]
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """As `run`; the list is emptied, so that the arguments can go."""
        args = tuple(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """A node's value."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    # -- one method for each op

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument, or its default."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise FxError(f"Expected positional argument for parameter {target}, but one was not passed in!")

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A function's result."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A method's result."""
        return getattr(args[0], str(target))(*args[1:], **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A submodule's result."""
        return self.submodules[str(target)](*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What is returned."""
        return args[0]

    # -- values

    def fetch_attr(self, target: str) -> Any:
        """What lies at a path of the module."""
        value: Any = self.module
        for part in target.split("."):
            if not hasattr(value, part):
                raise FxError(f"Node referenced nonexistent target {target}")
            value = getattr(value, part)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments, with values for nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """Arguments with values for nodes."""

        def value(used: Node) -> Any:
            if used not in self.env:
                raise FxError(f"Node {n} referenced nonexistent value {used}!", remedy="Graph.lint() says more")
            return self.env[used]

        return map_arg(args, value)


class _Appending(TracerBase):
    """Puts the nodes of a transformed graph into a new one; a tensor is the attribute that it was."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.tensor_attrs = graph, {}  # type: ignore[var-annotated]

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Every call of a Module stays one."""
        return True


class Transformer(Interpreter):
    """Makes a GraphModule of a GraphModule: each method gives the Proxy of what stands for the node."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _Appending(self.new_graph)
        self.tracer.root = module  # type: ignore[attr-defined]

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new GraphModule."""
        result = super().run(enable_io_processing=False)
        if result is not None:
            self.new_graph.output(map_proxies(result))
        return GraphModule(self.module, self.new_graph)


def map_proxies(value: Any) -> Argument:
    """A value with nodes for Proxies."""
    from distcompile.fx.node import map_aggregate

    return map_aggregate(value, lambda v: v.node if isinstance(v, Proxy) else v)
