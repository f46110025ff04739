"""torch.cond, torch.while_loop, and map, scan and associative_scan: control flow as functions.

In: predicates, functions of Tensors, and trees of Tensors. Out: what the functions give, with gradients.
Eager: Python runs them, and of two branches that which is taken. In compiled code `cond` is part of the graph, with
both branches (compiler_core/capture/branching.py says how); so is it where there is a predicate for each example of
vmap, where both are computed. `map` is one call under vmap there, `scan` a call for each place, or, where there are
many, one op of the graph (aot/scan.py), `associative_scan` a logarithm of them everywhere. `while_loop` is part of the
graph (compiler_core/capture/looping.py); under vmap it runs as long as any example wants another turn.
Source: torch's documentation, and torch/_higher_order_ops; the results and errors of torch 2.13 judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.breaking import unbroken
from compiler_core.capture.branching import Branches, is_mapped
from compiler_core.capture.looping import Loop, Scan, check_turned, holds
from compiler_core.errors import BatchError, BranchError, IndexError_
from compiler_core.ops import functional as F
from compiler_core.ops.batching.value import held
from compiler_core.tensor.autograd.taped import traced
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.surface.mapping import vmap
from distcompile.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]

Function = Callable[..., Any]
MOST_UNROLLED = 128  # turns of a scan


# ---- cond


@unbroken
def cond(pred: Any, true_fn: Function, false_fn: Function, operands: Any = ()) -> Any:
    """true_fn(*operands) if `pred`, else false_fn(*operands).

    pred: a number, or a Tensor with one element. operands: a tuple of trees of Tensors. The branches return alike: in
    compiled code they are held to it. Raises: ArgumentError (a RuntimeError) for arguments that do not fit, BranchError
    for branches that return other structures, dtypes or numbers of dims.
    """
    if isinstance(pred, (bool, int, float)):
        return true_fn(*operands) if pred else false_fn(*operands)
    _check_cond(pred, true_fn, false_fn, operands)
    if not traced() and not is_mapped(pred):
        return true_fn(*operands) if pred else false_fn(*operands)
    branches = Branches("torch.cond", pred, (true_fn, false_fn), operands)
    found = []
    for number, branch in enumerate((true_fn, false_fn)):
        given = branches.begin(number)
        try:
            found.append(branch(*given))
        except Exception as error:
            branches.refuse(error)
            raise
    return branches.result(*found)


def _check_cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> None:
    if not isinstance(pred, Tensor):
        raise ArgumentError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise ArgumentError("Expected pred to be bool or single-element tensor", got=f"{tuple(pred.shape)}")
    if not callable(true_fn) or not callable(false_fn):
        raise ArgumentError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not _all_tensors(tree_flatten(operands)[0]):
        raise ArgumentError("Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of "
                            "tensor leaves", got=str(type(operands)))  # fmt: skip


def _all_tensors(leaves: Sequence[Any]) -> bool:
    return all(isinstance(leaf, Tensor) for leaf in leaves)


# ---- while_loop


def while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Any) -> tuple[Any, ...]:
    """carried = body_fn(*carried) as long as cond_fn(*carried). carried: Tensors and ints, in trees.

    Raises: ArgumentError (a RuntimeError) for other arguments, BranchError for a body that returns others than it was
    given, or a condition that is not one truth value.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise ArgumentError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise ArgumentError(f"carried_inputs must be a tuple or list but got {type(carried_inputs)}")
    before = tree_flatten(tuple(carried_inputs))[0]
    if not all(isinstance(leaf, (Tensor, int)) for leaf in before):
        raise ArgumentError("Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists "
                            "of tensor or int leaves", got=str([type(leaf) for leaf in before]))  # fmt: skip
    run = _in_graph if holds(before) else _turned
    return run(cond_fn, body_fn, tuple(carried_inputs))


def _turned(cond_fn: Function, body_fn: Function, carried: tuple[Any, ...]) -> tuple[Any, ...]:
    """Python runs the loop."""
    before, spec = tree_flatten(carried)
    while True:
        test = _truth(cond_fn(*carried))
        check_turned(test)
        if isinstance(test, Tensor) and is_mapped(test):
            if not held(test._cell.raw).any():
                return carried
            carried = _turn_of_some(test, body_fn, carried, before, spec)
        elif test:
            carried = _turn(body_fn, carried, before, spec)
        else:
            return carried


def _turn_of_some(test: Tensor, body_fn: Function, carried: tuple[Any, ...], before: Any, spec: Any) -> tuple[Any, ...]:
    """Under vmap: the examples whose test says no stay as they are, and have no gradient from this turn."""
    choice = Branches("torch.while_loop", test, (), ())
    leaves = tree_flatten(carried)[0]
    if not _all_tensors(leaves):
        raise BatchError("vmap: while_loop carries a number, which each example would have its own of",
                         remedy="carry a tensor: torch.tensor(0)")  # fmt: skip
    given = tree_unflatten([choice.gated(x, 0) for x in leaves], spec)
    made = tree_flatten(_turn(body_fn, given, before, spec))[0]
    chosen: tuple[Any, ...] = tree_unflatten([choice.where(a, b) for a, b in zip(made, leaves, strict=True)], spec)
    return chosen


def _turn(body_fn: Function, carried: tuple[Any, ...], before: Sequence[Any], spec: Any) -> tuple[Any, ...]:
    made = body_fn(*carried)
    made = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    leaves, found = tree_flatten(made)
    _check_alike("body_fn_output and carried_inputs", before, leaves, spec, found)
    return made


@unbroken
def _in_graph(cond_fn: Function, body_fn: Function, carried: tuple[Any, ...]) -> tuple[Any, ...]:
    """One turn is captured; after a break Python runs the loop."""
    if not traced():
        return _turned(cond_fn, body_fn, carried)
    before, spec = tree_flatten(carried)
    loop = Loop((cond_fn, body_fn), before)
    given = tree_unflatten(loop.carried, spec)
    loop.start()
    test = _truth(cond_fn(*given))
    if isinstance(test, bool):
        loop.drop()
        return _turned(cond_fn, body_fn, carried)
    loop.start()
    made = _turn(body_fn, given, before, spec)
    results: tuple[Any, ...] = tree_unflatten(loop.result(test, tree_flatten(made)[0]), spec)
    return results


def _truth(found: Any) -> Any:
    if isinstance(found, bool) or (isinstance(found, Tensor) and not found.dim() and found.dtype.kind == "b"):
        return found
    raise BranchError(f"cond_fn must return a boolean scalar tensor or a boolean but got {type(found)}")


def _check_alike(what: str, before: Sequence[Any], after: Sequence[Any], spec: Any, found: Any) -> None:
    """Raises BranchError if what comes out of a turn is not what goes into the next one."""
    if len(before) != len(after):
        raise BranchError(f"Expected {what} to have same number of outputs but got lhs:{len(after)} and "
                          f"rhs:{len(before)}")  # fmt: skip
    if spec != found:
        raise BranchError(f"Expected {what} to have same pytree structure", expected=str(spec), got=str(found))
    for k, (a, b) in enumerate(zip(before, after, strict=True)):
        if isinstance(a, Tensor) != isinstance(b, Tensor):
            raise BranchError(f"Expected {what} to be tensors in the same places", got=f"{type(a)}, {type(b)}")
        if isinstance(a, Tensor) and (a.shape != b.shape or a.dtype != b.dtype):
            raise BranchError(f"Expected {what} to have same metadata but found: pair[{k}] differ",
                              expected=f"{a.dtype}{list(a.shape)}", got=f"{b.dtype}{list(b.shape)}")  # fmt: skip


# ---- map


def map(f: Function, xs: Any, *args: Any) -> Any:
    """f(x, *args) for each x of `xs` along its first dim, stacked. xs, and what f returns: trees of Tensors.

    Raises: ArgumentError (a RuntimeError) for leaves that are no Tensors, or of other or no lengths; BranchError if f
    returns something else than Tensors.
    """
    leaves, spec = tree_flatten(xs)
    if not _all_tensors(leaves):
        raise ArgumentError(f"Mapped xs can only consist of tensors. Got xs {[type(leaf) for leaf in leaves]}.")
    if any(not leaf.dim() for leaf in leaves):
        raise IndexError_("map: xs have a first dim", got="a tensor without dims")
    sizes = [leaf.shape[0] for leaf in leaves]
    if any(size != sizes[0] for size in sizes):
        raise ArgumentError(f"Leading dimensions of mapped xs must be consistent. Got shapes {_shapes(leaves)}.")
    if not sizes or not sizes[0]:
        raise ArgumentError("Leading dimensions of mapped xs cannot be 0.")
    if traced():
        return vmap(_only_tensors(f), (0, *(None for _ in args)), randomness="different")(xs, *args)
    return _stacked([_only_tensors(f)(tree_unflatten([leaf[k] for leaf in leaves], spec), *args)
                     for k in range(sizes[0])], 0)  # fmt: skip


def _only_tensors(f: Function) -> Function:
    def checked(*args: Any) -> Any:
        found = f(*args)
        if not _all_tensors(tree_flatten(found)[0]):
            raise BranchError("map: Expected all leaves to be of torch.Tensor type.")
        return found

    return checked


def _shapes(leaves: Sequence[Tensor]) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape) for leaf in leaves]


def _stacked(found: Sequence[Any], dim: int) -> Any:
    """Results in trees, one beside the other."""
    spec = tree_flatten(found[0])[1]
    columns = zip(*[tree_flatten(one)[0] for one in found], strict=True)
    return tree_unflatten([F.stack(column, dim if dim <= column[0].dim() else 0) for column in columns], spec)


# ---- scan


def scan(combine_fn: Function, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """(carry, ys): carry, y = combine_fn(carry, x) for each x of `xs` along `dim`, from `init` on; ys stacked there.

    Raises: ArgumentError (a RuntimeError) for arguments that do not fit; BranchError for a carry that is not as before,
    or results that are no Tensors.
    """
    before = tree_flatten(init)[0]
    leaves, spec_xs = tree_flatten(xs)
    if not leaves:
        return init, []
    along = _along("scan", leaves, dim)
    if not callable(combine_fn):
        raise ArgumentError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(reverse, bool):
        raise ArgumentError(f"Reverse must be a bool, but got {type(reverse)}")
    if not before:
        raise ArgumentError("scan() operator requires init leaves.")
    if not _all_tensors(before):
        raise ArgumentError("All init leaves must be a Tensor", got=str([type(leaf) for leaf in before]))
    places = range(leaves[0].shape[along])
    if len(places) > MOST_UNROLLED and holds([*before, *leaves]):
        made = _scanned(combine_fn, init, tree_unflatten([leaf.movedim(along, 0) for leaf in leaves], spec_xs), reverse)
        if made is not None:
            carry, ys = made
            return carry, tree_map(lambda y: y.movedim(0, along if along < y.dim() else 0), ys)
    carry, found = init, []
    for k in reversed(places) if reverse else places:
        carry, y = _handed_on(combine_fn, carry, tree_unflatten([leaf.select(along, k) for leaf in leaves], spec_xs))
        found.append(y)
    if reverse:
        found.reverse()
    return carry, _stacked(found, along)


def _handed_on(combine_fn: Function, carry: Any, x: Any) -> tuple[Any, Any]:
    """One turn of a scan."""
    before, spec = tree_flatten(carry)
    made = combine_fn(carry, x)
    if not isinstance(made, tuple) or len(made) != 2:
        raise BranchError(f"Expect combine_fn to return a tuple (next_carry, y) but got {type(made)}.")
    after, now = tree_flatten(made[0])
    _check_alike("init and carry", before, after, spec, now)
    if not _all_tensors(tree_flatten(made[1])[0]):
        raise BranchError("scan: Expected all leaves to be of torch.Tensor type.")
    return made


@unbroken
def _scanned(combine_fn: Function, init: Any, xs: Any, reverse: bool) -> tuple[Any, Any] | None:
    """As one call of a graph, along the first dim of xs; None where it cannot be that."""
    if not traced():
        return None
    (begun, spec), (leaves, spec_xs) = tree_flatten(init), tree_flatten(xs)
    one = Scan(combine_fn, begun, leaves)
    one.start()
    carry, y = _handed_on(combine_fn, tree_unflatten(one.turn[: len(begun)], spec),
                          tree_unflatten(one.turn[len(begun) :], spec_xs))  # fmt: skip
    results, spec_y = tree_flatten(y)
    found = one.result([*tree_flatten(carry)[0], *results], reverse)
    if found is None:
        return None
    return tree_unflatten(found[: len(begun)], spec), tree_unflatten(found[len(begun) :], spec_y)


def _along(name: str, leaves: Sequence[Any], dim: int) -> int:
    """The dim, counted from the front. Raises ArgumentError if not all leaves have it, of one length."""
    if not _all_tensors(leaves):
        raise ArgumentError("All xs leaves must be a Tensor", got=str([type(leaf) for leaf in leaves]))
    if not isinstance(dim, int):
        raise ArgumentError(f"Dim must be an int, but got {type(dim)}")
    ndim = leaves[0].dim()
    if not -ndim <= dim < ndim:
        raise IndexError_(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    along: int = dim % ndim
    if any(leaf.dim() <= along or not leaf.shape[along] for leaf in leaves):
        raise ArgumentError(f"{name}: All xs leaves must at least have 'dim' number of dimensions and scan dimension "
                            "> 0", got=str(_shapes(leaves)))  # fmt: skip
    if any(leaf.shape[along] != leaves[0].shape[along] for leaf in leaves):
        raise ArgumentError(f"{name}: xs of one length along dim {along}", got=str(_shapes(leaves)))
    return along


def associative_scan(
    combine_fn: Function, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """Running combinations along `dim`: y[0] = x[0], y[i] = combine_fn(y[i - 1], x[i]); reverse: from the end.

    xs: a tree of Tensors of one size along `dim`. combine_fn is associative: neighbours are combined, then pairs of
    these, each time all at once under vmap. combine_mode: both of torch's mean this, on all devices.
    Raises: ArgumentError (a ValueError) for arguments that do not fit, BranchError for another structure.
    """
    leaves, spec = tree_flatten(xs)
    if not callable(combine_fn):
        raise ArgumentError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(reverse, bool):
        raise ArgumentError(f"Reverse must be a bool, but got {type(reverse)}")
    if combine_mode not in ("pointwise", "generic"):
        raise ArgumentError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    if not leaves:
        raise ArgumentError("Expected at least 1 xs leaf")
    along = _along("associative_scan", leaves, dim)

    def combined(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        made, found = tree_flatten(combine_fn(tree_unflatten(a, spec), tree_unflatten(b, spec)))
        _check_alike("what combine_fn returns and xs", a, made, spec, found)
        return made

    rows = [leaf.movedim(along, 0) for leaf in leaves]
    rows = [row.flip(0) for row in rows] if reverse else rows
    rows = _running(vmap(combined), rows)
    rows = [row.flip(0) for row in rows] if reverse else rows
    return tree_unflatten([row.movedim(0, along) for row in rows], spec)


def _running(combined: Function, rows: list[Tensor]) -> list[Tensor]:
    """Pairs are combined, and run over by itself; what is in between lies one step further on."""
    size = rows[0].shape[0]
    if size < 2:
        return rows
    odd = _running(combined, combined([x[: size - 1 : 2] for x in rows], [x[1::2] for x in rows]))
    even = [x[:1] for x in rows]
    if size > 2:
        before = odd if size % 2 else [x[:-1] for x in odd]
        later = combined(before, [x[2::2] for x in rows])
        even = [F.cat([first, rest], 0) for first, rest in zip(even, later, strict=True)]
    return [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """even: T[n + (0 or 1), ...], odd: T[n, ...]: in turn."""
    count = odd.shape[0]
    pairs: Tensor = F.stack([even[:count], odd], 1).reshape((2 * count, *odd.shape[1:]))
    return F.cat([pairs, even[count:]], 0) if even.shape[0] > count else pairs
