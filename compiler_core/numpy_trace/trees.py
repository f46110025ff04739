"""What `wrap_numpy` does before and after the call of its function: Tensors to arrays, and back, in nested containers.

In: a tree (compiler_core/trees.py: the containers are those of torch.utils._pytree) with Tensors or arrays in it. Out:
the same tree with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compiler_core.numpy_trace.array import TracedArray
from compiler_core.numpy_trace.known import constant
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.grad_mode import thread_mode
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import leaves_of, mapped


def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The arguments for a function of arrays: traced ones under a trace, or where a gradient is asked for."""
    traced = current_trace() is not None or (
        thread_mode.enabled and any(t.requires_grad for t in _tensors((args, kwargs)))
    )
    return _mapped((args, kwargs), Tensor, TracedArray if traced else _copy)


def taken(result: Any, arguments: Any) -> Any:
    """What a function of arrays has returned, as Tensors: on the CUDA device of one among the arguments, if any is."""
    made = _mapped(result, (TracedArray, np.ndarray, np.generic), _tensor)
    if current_trace() is not None:
        return made
    place = next((t.device for t in _tensors(arguments) if t.is_cuda), None)
    return made if place is None else _mapped(made, Tensor, lambda tensor: tensor.to(place))


def _copy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """An array that may be written to: the values of Tensors are not changed in place."""
    return tensor.cpu().numpy(force=True).copy()


def _tensor(x: Any) -> Tensor:
    return x.tensor if type(x) is TracedArray else constant(np.asarray(x))


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in leaves_of(tree) if isinstance(leaf, Tensor))


def _mapped(tree: Any, kind: Any, function: Callable[[Any], Any]) -> Any:
    """The tree with `function` of its leaves of this kind."""
    return mapped(lambda leaf: function(leaf) if isinstance(leaf, kind) else leaf, tree)
