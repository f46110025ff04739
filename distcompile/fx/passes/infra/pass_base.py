"""A pass over a GraphModule, and what it gives.

In: a GraphModule. Out: `PassResult`.
"""

from __future__ import annotations

from typing import NamedTuple

from distcompile.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """graph_module: what came of it. modified: whether anything is other than before."""

    graph_module: GraphModule
    modified: bool


class PassBase:
    """A subclass says in `call` what it does."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        found = self.call(graph_module)
        self.ensures(graph_module)
        return found

    def call(self, graph_module: GraphModule) -> PassResult | None:
        """What it does."""
        raise NotImplementedError

    def requires(self, graph_module: GraphModule) -> None:
        """Checks before."""

    def ensures(self, graph_module: GraphModule) -> None:
        """Checks after."""
