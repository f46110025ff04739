"""GraphModule: a Module whose forward is Python made of a graph.

In: a Module, or a dict, with what the graph's nodes name; the graph. Out: a Module with those submodules, parameters
and buffers at the same paths (shared, not copied). Assigning `graph`, or `recompile()` after changing it, makes `code`
and `forward` anew. Each instance has a class of its own, since it has a forward of its own. What Python makes of the
code has tracebacks that show its lines.
"""

from __future__ import annotations

import copy
import itertools
import linecache
from collections.abc import Callable
from typing import Any

from compiler_core.tensor.tensor import Tensor
from distcompile.fx.errors import FxError
from distcompile.fx.graph import Graph
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_KNOWN = ("torch", "device", "inf", "nan", "NoneType")  # globals of every code
_numbers = itertools.count()


class GraphModule(Module):
    """See the head of this file. class_name: of the instance's class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        written = next(kind for kind in cls.__mro__ if kind.__qualname__.rpartition(".")[2] != "GraphModuleImpl")
        return object.__new__(type("GraphModuleImpl", (written,), {}))

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        self.meta: dict[str, Any] = {}
        if isinstance(root, Module):
            self.training = root.training
            if isinstance(root, _CodeOnlyModule):
                for name in root._names():
                    _copy_attr(root, self, name)
            for target in _targets(graph):
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for target in sorted(_targets(graph), key=lambda name: name.count(".")):
                if target not in root:
                    raise FxError(f"a node referenced target {target} but that target was not provided in ``root``!")
                _assign_attr(root[target], self, target)
        else:
            raise FxError(f"Unsupported type {root!r} passed for root!", expected="a Module or a dict")
        self.graph = graph
        kind = graph._tracer_cls
        self._tracer_cls = kind if kind is not None and "<locals>" not in kind.__qualname__ else None
        self._tracer_extras = graph._tracer_extras or {}

    @property
    def graph(self) -> Graph:
        """What the code is made of."""
        held: Graph = self.__dict__["_graph"]
        return held

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "graph":
            object.__setattr__(self, name, value)  # the property, not a Module's attribute
        else:
            super().__setattr__(name, value)

    def recompile(self) -> Any:
        """Make code and forward of the graph; gives the code."""
        made = self.graph.python_code("self")
        self.__dict__["_code"] = made.src
        forward = _function(made.src, made.globals, self.graph._codegen._func_name)
        setattr(type(self), self.graph._codegen._func_name, forward)
        return made

    @property
    def code(self) -> str:
        """The Python text of its forward."""
        text: str = self.__dict__["_code"]
        return text

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a path, with empty Modules on the way. Gives whether it could."""
        holder: Any = self
        *path, name = target.split(".")
        for part in path:
            if not hasattr(holder, part):
                setattr(holder, part, Module())
            holder = getattr(holder, part)
            if not isinstance(holder, Module):
                return False
        holder.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a path. Gives whether there was one."""
        *path, name = target.split(".")
        holder: Any = self
        for part in path:
            holder = getattr(holder, part, None)
        if not isinstance(getattr(holder, name, None), Module):
            return False
        delattr(holder, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that no node names."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
                if node.op == "call_module":
                    inner = self.get_submodule(str(node.target))
                    used.update(f"{node.target}.{name}" for name, _ in inner.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The code as a class, with those of the GraphModules in it; printed, too."""
        body = "".join("    " + line for line in self.code.strip().splitlines(keepends=True))
        graphs = [child for child in self.children() if isinstance(child, GraphModule)]
        inner = [child.print_readable(print_output=False) for child in graphs]
        text = "\n".join([f"class {self._get_name()}(torch.nn.Module):\n{body}\n", *inner])
        if print_output:
            print(text)
        return text

    def _deepcopy_init(self) -> Callable[..., None]:
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made: GraphModule = type(self).__new__(type(self))
        memo[id(self)] = made
        held = _CodeOnlyModule(copy.deepcopy(_state(self), memo))
        self._deepcopy_init()(made, held, copy.deepcopy(self.graph, memo), self._get_name())
        preserved = self.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {})
        for name, value in preserved.items():
            setattr(made, name, value)
        made.meta = {key: copy.copy(value) for key, value in self.meta.items()}
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph, self._get_name())
        made.meta = dict(self.meta)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        made = self.graph.python_code("self")
        kept = {name: value for name, value in made.globals.items() if name not in _KNOWN}
        return reduce_graph_module, (_state(self), made.src, kept, self._get_name(), self._tracer_cls)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), self.code, "# To see more debug info, please use "
                          "`graph_module.print_readable()`"])  # fmt: skip


def _function(src: str, names: dict[str, Any], function: str) -> Any:
    """The function that the text defines. Its lines are kept for tracebacks."""
    file = f"<eval_with_key>.{next(_numbers)}"
    space = dict(names)
    space["__name__"] = file
    linecache.cache[file] = len(src), None, src.splitlines(keepends=True), file
    exec(compile(src, file, "exec"), space)
    return space[function]


class _CodeOnlyModule(Module):
    """A Module with a state, for a forward that comes."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        for name, value in body.items():
            if isinstance(value, Tensor) and not isinstance(value, Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def _names(self) -> list[str]:
        kinds = (self.named_children(), self.named_buffers(recurse=False), self.named_parameters(recurse=False))
        return [name for each in kinds for name, _ in each]


def _state(module: Module) -> dict[str, Any]:
    """Children, parameters, buffers, and whether it trains."""
    held: dict[str, Any] = {**module._modules, **module._parameters, **module._buffers}
    others = {name: value for name, value in vars(module).items() if name == "training"}
    return {**held, **others}


def reduce_graph_module(
    body: dict[str, Any], code: str, names: dict[str, Any], name: str, tracer_cls: Any
) -> GraphModule:
    """The GraphModule of a pickle: its code traced again, every module of it a leaf."""
    import distcompile
    from distcompile.fx._symbolic_trace import Tracer

    class KeepModules(tracer_cls or Tracer):  # type: ignore[misc]
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    known = dict(zip(_KNOWN, (distcompile, distcompile.device, float("inf"), float("nan"), type(None))))

    class Held(_CodeOnlyModule):
        forward = _function(code, {**known, **names}, "forward")

    held = Held(body)
    graph = KeepModules().trace(held)
    graph._tracer_cls = tracer_cls
    return GraphModule(held, graph, name)


def _targets(graph: Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")]


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """What lies at a path of one module, at the same path of another."""
    *path, name = target.split(".")
    source: Any = from_module
    for part in path:
        source = getattr(source, part)
        if source is getattr(to_module, part, None):
            return  # a whole submodule that is shared already
        to_module = _child(to_module, part)
    value = getattr(source, name)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(name, value)
    else:
        setattr(to_module, name, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Put `value` at a path of a module."""
    *path, name = target.split(".")
    for part in path:
        to_module = _child(to_module, part)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(name, value)
    else:
        setattr(to_module, name, value)


def _child(module: Module, name: str) -> Module:
    """A submodule, made if it is not there."""
    if getattr(module, name, None) is None:
        setattr(module, name, Module())
    found: Module = getattr(module, name)
    return found
