"""torch.func.vmap: a function of one example, mapped over a dimension of its arguments.

In: a function, where the dimension is in its arguments and results. Out: a function of batches.
Method: the function is called once. Its arguments are views of the batch that stand for one example
(compiler_core/tensor/batching.py), and each op in it works on all examples at once by the rule in its block; one that
has none runs once for each example, which is said. So `item()`, an `if` on a value and a write of what depends on the
example into a tensor from outside are errors, as in torch. chunk_size: so many examples a call.
Source: torch's documentation; its tests judge (tests/distcompile/surface/test_vmap_against_torch.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from compiler_core.breaking import copied_from, unbroken
from compiler_core.ops import functional as F
from compiler_core.ops.batching.value import Level, levels_of, running
from compiler_core.ops.broadcasting import normalize_dim
from compiler_core.tensor.batching import entered, left
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, RandomCallError
from distcompile.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["vmap"]

RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`func` for every index of the mapped dimension, as one function of batches.

    in_dims: the mapped dimension of each positional argument (None: the argument is the same for all), one int for all,
    or a tuple in the arguments' structure. Keyword arguments are the same for all. out_dims: its place in the results.
    randomness: "different" draws, or the "same" for each example; "error": none are allowed.
    Raises: ArgumentError (a ValueError) for dimensions, structures and results that do not fit, RandomCallError for
    draws under "error", BatchError for what is not the same operation for every example.
    """
    if randomness not in RANDOMNESS:
        raise RandomCallError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )
    if chunk_size is not None and chunk_size < 1:
        raise ArgumentError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @unbroken
    @functools.wraps(func, updated=copied_from(func))
    def mapped(*args: Any, **kwargs: Any) -> Any:
        name = getattr(func, "__name__", type(func).__name__)
        dims, leaves, spec = _mapped_dims(name, in_dims, args)
        size = _size(leaves, dims)
        found = []
        for part, count in _parts(leaves, dims, size, chunk_size):
            level = Level(count, randomness)
            rows = [leaf if dim is None else entered(leaf, level, dim) for leaf, dim in zip(part, dims, strict=True)]
            with running(level):
                result = func(*tree_unflatten(rows, spec), **kwargs)
            found.append(_all_left(name, result, level, out_dims))
        return found[0] if len(found) == 1 else _joined(found, out_dims)

    return mapped


def _parts(leaves: list[Any], dims: list[int | None], size: int, most: int | None) -> Iterator[tuple[list[Any], int]]:
    """The arguments of each call, and how many examples those are."""
    if most is None or most >= size:
        yield leaves, size
        return
    for start in range(0, size, most):
        count = min(most, size - start)
        yield (
            [leaf if dim is None else leaf.narrow(dim, start, count) for leaf, dim in zip(leaves, dims, strict=True)],
            count,
        )


def _joined(found: list[Any], out_dims: Any) -> Any:
    """The results of several calls, one behind the other."""
    rows, spec = [tree_flatten(result)[0] for result in found], tree_flatten(found[0])[1]
    dims = _spread(out_dims, found[0]) or []
    columns = zip(zip(*rows, strict=True), dims, strict=True)
    return tree_unflatten([column[0] if dim is None else F.cat(column, dim) for column, dim in columns], spec)


def _mapped_dims(name: str, in_dims: Any, args: tuple[Any, ...]) -> tuple[list[int | None], list[Any], Any]:
    """(each leaf's dimension, counted from the front, or None; the leaves of args; their structure)."""
    if not isinstance(in_dims, (int, tuple)):
        raise ArgumentError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) "
            f"tuple matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ArgumentError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            "function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args)
    where = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): "
    dims = _spread(in_dims, args)
    if dims is None:
        raise ArgumentError(f"{where}in_dims is not compatible with the structure of `inputs`.")
    return [_checked(where, dim, leaf) for dim, leaf in zip(dims, leaves, strict=True)], leaves, spec


def _spread(dims: Any, tree: Any) -> list[Any] | None:
    """A dimension for every leaf of `tree`, from a tree of them that may end earlier; None if they do not fit."""
    if not isinstance(dims, (tuple, list, dict)):
        return [dims] * len(tree_flatten(tree)[0])
    if type(dims) is not type(tree) or len(dims) != len(tree):
        return None
    if isinstance(dims, dict) and set(dims) != set(tree):
        return None
    pairs = ((dims[key], tree[key]) for key in tree) if isinstance(dims, dict) else zip(dims, tree, strict=True)
    parts = [_spread(below, subtree) for below, subtree in pairs]
    return None if any(part is None for part in parts) else [dim for part in parts if part for dim in part]


def _checked(where: str, dim: Any, leaf: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ArgumentError(
            f"{where}Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(leaf, Tensor):
        raise ArgumentError(
            f"{where}Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
            "non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -leaf.dim() <= dim < leaf.dim():
        raise ArgumentError(
            f"{where}Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.dim()} so "
            f"expected in_dim to satisfy -{leaf.dim()} <= in_dim < {leaf.dim()}."
        )
    return dim % leaf.dim()


def _size(leaves: list[Any], dims: list[int | None]) -> int:
    sizes = [int(leaf.shape[dim]) for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise ArgumentError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ArgumentError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _all_left(name: str, result: Any, level: Level, out_dims: Any) -> Any:
    """What the function returned, for all examples."""
    leaves, spec = tree_flatten(result)
    dims = _spread(out_dims, result)
    if dims is None:
        raise ArgumentError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            "`outputs`."
        )
    return tree_unflatten([_left(name, leaf, level, dim, out_dims) for leaf, dim in zip(leaves, dims)], spec)


def _left(name: str, leaf: Any, level: Level, dim: Any, out_dims: Any) -> Any:
    if dim is None:
        if isinstance(leaf, Tensor) and level in levels_of(leaf._cell.raw):
            raise ArgumentError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return leaf
    if not isinstance(dim, int):
        raise ArgumentError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )
    if not isinstance(leaf, Tensor):
        raise ArgumentError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did you mean to set "
            "out_dims= to None for output?"
        )
    return left(leaf, level, normalize_dim(dim, leaf.dim() + 1))
