"""How functions of sparse tensors are recorded: one tape node a call, with a gradient rule for each operand.

In: operands, a result, and for each operand a function of the result's gradient (a dense or a sparse Tensor). Out: the
result, with its history. Rules are written with the functions of this folder, so that under create_graph they record
themselves; forward mode has none, and is refused. Invariant: a rule keeps operands as handles; one that was written to
since is an AutogradError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from compiler_core.errors import AutogradError
from compiler_core.forward import level
from compiler_core.forward.level import tangent_of
from compiler_core.ops.registry import meta_of
from compiler_core.sparse.rules import not_there
from compiler_core.tensor.autograd.grad_mode import thread_mode
from compiler_core.tensor.autograd.tape import FunctionNode, OutputNode
from compiler_core.tensor.tensor import Tensor

T = TypeVar("T", bound=Tensor)
Pull = Callable[[Any], Any]


class Rules:
    """The gradient rules of one call. kept: the tensors that they read, and the versions of these then."""

    def __init__(self, name: str, pulls: Sequence[Pull | None], kept: Sequence[Tensor]) -> None:
        self.name, self.pulls = name, pulls
        self.kept = [(tensor, tensor._version) for tensor in kept]

    def __call__(self, grads: Sequence[Any]) -> list[Any]:
        for tensor, version in self.kept:
            if tensor._version != version:
                raise AutogradError(
                    f"a value needed for the gradient was changed in place: {meta_of(tensor)} of {self.name} is at "
                    f"version {tensor._version}, was saved at {version}",
                    remedy="clone() the tensor before writing to it",
                )
        (grad,) = grads
        came = grad if isinstance(grad, Tensor) else Tensor._wrap(grad)
        found = [None if pull is None else pull(came) for pull in self.pulls]
        return found if thread_mode.enabled else [g if g is None else g._read() for g in found]


class SparseNode(FunctionNode):
    """The node of one call, under torch's name."""

    __slots__ = ()

    def name(self) -> str:
        return f"{self.label}Backward0"


def record(name: str, result: T, operands: Sequence[Any], pulls: Sequence[Pull], kept: Sequence[Tensor] = ()) -> T:
    """`result`, a fresh handle, with its history. pulls: the gradient of each operand. kept: operands that they read.

    name: torch's for the node.
    """
    if level.on and any(tangent_of(one) is not None for one in operands):
        raise not_there(f"forward-mode differentiation of {name}")
    if not thread_mode.enabled or not result.dtype.is_inexact:
        return result
    edges = tuple([one._edge() if isinstance(one, Tensor) else None for one in operands])
    if all(edge is None for edge in edges):
        return result
    wanted = [None if edge is None else pull for edge, pull in zip(edges, pulls, strict=True)]
    rules: Any = Rules(name, wanted, kept)
    node = SparseNode(name, edges, 1, rules, raw=False)
    result._node = OutputNode(node, 0, meta_of(result))
    return result


def is_recorded(*operands: Any) -> bool:
    """Whether a function of these operands has a history."""
    return thread_mode.enabled and any(isinstance(one, Tensor) and one._edge() is not None for one in operands)
