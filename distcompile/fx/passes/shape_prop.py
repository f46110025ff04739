"""ShapeProp: run a graph once, and note each value's shape, dtype and strides on its node.

In: a GraphModule, arguments. Out: its result; `node.meta["tensor_meta"]` and `node.meta["type"]`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from compiler_core.dtype import DType
from compiler_core.tensor.tensor import Size, Tensor
from distcompile.fx.interpreter import Interpreter
from distcompile.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """Facts of a tensor."""

    shape: Size
    dtype: DType
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    import distcompile

    kept = distcompile.contiguous_format if include_contiguity and result.is_contiguous() else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, _strides(result), kept, False, {})


def _strides(tensor: Tensor) -> tuple[int, ...]:
    steps: Any = tensor.stride()
    return tuple(steps)


class ShapeProp(Interpreter):
    """See the head of this file."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        found = False

        def facts(value: Any) -> Any:
            nonlocal found
            if isinstance(value, Tensor):
                found = True
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, facts)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """The result for these arguments."""
        return super().run(*args)
