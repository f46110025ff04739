"""torch.fx: programs over Modules as lists of nodes, traced by proxies, changed by programs, and run as Python again.

In: a Module or a function. Out: `symbolic_trace` gives a `GraphModule`, whose `graph` is a `Graph` of `Node`s and
whose `code` is Python made from it. This is a tool for programs that rewrite models; `compile` captures by other means
and has an IR of its own (`compiler_core.graph`).

    node.py              a node, and functions over the values in its arguments
    graph.py             the list of nodes; naming.py, codegen.py: their names, and Python made of them
    graph_module.py      a Module that runs a graph
    proxy.py             what stands for a value while a program is traced; _symbolic_trace.py traces
    interpreter.py       runs a graph node by node, or makes another of it
    of_compiler.py       the compiler's graphs as modules, for functions that are backends; tracing.py: make_fx
"""

from __future__ import annotations

from distcompile.fx import _symbolic_trace as _symbolic_trace
from distcompile.fx import graph_module as graph_module
from distcompile.fx import proxy as proxy
from distcompile.fx._symbolic_trace import Tracer, symbolic_trace, wrap
from distcompile.fx.graph import CodeGen, Graph
from distcompile.fx.graph_module import GraphModule
from distcompile.fx.interpreter import Interpreter, Transformer
from distcompile.fx.node import Node, has_side_effect, map_arg
from distcompile.fx.proxy import Proxy

__all__ = [
    "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "has_side_effect",
    "map_arg", "symbolic_trace", "wrap",
]  # fmt: skip
