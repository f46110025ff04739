"""torch.func.vmap: a function of one example, mapped over a dimension of its arguments.

In: a function, where the dimension is in its arguments and results. Out: a function of batches.
Method: one call for each example, in order, and the results stacked: the meaning of torch's vmap, differentiable and
nested as deep as wanted; not its speed, for nothing is vectorised. It compiles as any other code with randomness=
"different"; the others look at the generator's state: a call of theirs ends the graph. So what torch refuses
because it is not vectorised (`item()`, an `if` on a value) works here, and what is written in place into a tensor from
outside is written by every example in turn, where torch refuses it. Without an example there is nothing to call, which
is an error. `chunk_size` changes nothing.
Source: torch's documentation; its tests judge (tests/distcompile/surface/test_vmap_against_torch.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from compiler_core.breaking import breaks_graph
from compiler_core.ops import functional as F
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.making.random import default_generator, get_rng_state, set_rng_state
from compiler_core.tensor.making.random_state import Together, Torch
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, NotSupportedError, RandomCallError
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
    draws under "error", NotSupportedError for a dimension of size 0.
    """
    if randomness not in RANDOMNESS:
        raise RandomCallError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )
    if chunk_size is not None and chunk_size < 1:
        raise ArgumentError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        name = getattr(func, "__name__", repr(func))
        dims, leaves, spec = _mapped_dims(name, in_dims, args)
        size = _size(leaves, dims)
        if size == 0:
            raise NotSupportedError("vmap: there is no example to map over", remedy="skip the call for an empty batch")
        draws, found = _Draws(randomness, size), []
        for k in range(size):
            row = [leaf if dim is None else leaf.select(dim, k) for leaf, dim in zip(leaves, dims, strict=True)]
            with draws:
                found.append(func(*tree_unflatten(row, spec), **kwargs))
        return _stacked(name, found, out_dims)

    return mapped if randomness == "different" else _looking(mapped)


_looking = breaks_graph(
    "vmap looks at the state of the random generator", 'pass randomness="different", if the function may draw'
)


class _Draws:
    """A block for each example's draws from the default generator; different ones of all examples are one draw."""

    def __init__(self, randomness: str, size: int) -> None:
        self.randomness = randomness
        self.first = get_rng_state() if randomness != "different" else None
        self.together: Together | None = None
        if randomness == "different" and current_trace() is None:
            state = default_generator._state()
            self.together = Together(state, size) if isinstance(state, Torch) else None

    def __enter__(self) -> None:
        if self.randomness == "same" and self.first is not None:
            set_rng_state(self.first)
        if self.together is not None:
            self.together.next_call()
            default_generator._put(self.together)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self.together is not None:
            default_generator._put(self.together.of)
        if self.randomness != "error" or self.first is None or kind is not None:
            return
        if not bool((get_rng_state() == self.first).all()):
            set_rng_state(self.first)
            raise RandomCallError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )


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


def _stacked(name: str, results: list[Any], out_dims: Any) -> Any:
    rows = [tree_flatten(result)[0] for result in results]
    spec = tree_flatten(results[0])[1]
    if any(tree_flatten(result)[1] != spec for result in results):
        raise ArgumentError(f"vmap({name}, ...): `{name}` returned other structures for other examples")
    dims = _spread(out_dims, results[0])
    if dims is None:
        raise ArgumentError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            "`outputs`."
        )
    return tree_unflatten(
        [_stack(name, leaves, dim, out_dims) for leaves, dim in zip(zip(*rows, strict=True), dims, strict=True)], spec
    )


def _stack(name: str, leaves: tuple[Any, ...], dim: Any, out_dims: Any) -> Any:
    """leaves: one of each example."""
    if dim is None:
        if not all(leaf is leaves[0] or _is_same(leaf, leaves[0]) for leaf in leaves):
            raise ArgumentError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return leaves[0]
    if not isinstance(dim, int):
        raise ArgumentError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ArgumentError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did you mean to set "
                "out_dims= to None for output?"
            )
    return F.stack(leaves, dim)


def _is_same(a: Any, b: Any) -> bool:
    """Whether the results of two examples are one that depends on neither, as far as can be seen."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return type(a) is type(b) and bool(a == b)
    return not (a.requires_grad or b.requires_grad) and a.shape == b.shape and bool((a == b).all())
