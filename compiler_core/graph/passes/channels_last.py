"""Channels last: convolutions become routines whose arrays have channels last, and what lies between follows.

In: a differentiated Graph, before the partition, and `judge`, which says what the library computes. Out: a Graph in
which a convolution that it computes is `convolution_last` of permuted operands, its result permuted back; and the ops
that read such a result (pointwise, reductions, pad, slice, cat, sums over windows) work on the array with channels
last and permute theirs back. So two permutes meet before the next convolution and vanish, and every array between is
contiguous with channels last: the shapes in the graph say how values lie in memory, and no later step knows of layouts.
For a GPU (`weights`) the weight, too, has its channels last, and convolutions are ops/convolution/inner.py's; one that
reads each position alone, or each patch of an image of few channels, is a matrix product there; and what a program
brought from channels last to first is followed, as a convolution's result is. Shapes that the user sees do not change.
A permute that stays (of an input, before a reshape) is a view, copied where its reader needs it. Method: one forward
sweep; layouts follow convolutions, as torch's channels_last format does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from compiler_core.dtype import int32, int64
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes import pooling_last
from compiler_core.graph.passes.cse import Cse
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.meta import Shape
from compiler_core.ops.convolution.inner import INNER
from compiler_core.ops.convolution.last import LAST, to_first, to_last
from compiler_core.ops.routine import Strided
from compiler_core.ops.rules import Reduction, is_elementwise
from compiler_core.records import dataclass


class Verdict(Protocol):
    """Yes, or no and why."""

    def __bool__(self) -> bool: ...


Judge = Callable[[str, Mapping[str, Any], tuple[Strided, ...]], Verdict]
"""judge(routine, attributes, layouts of operands and result): whether the library computes it."""


@dataclass(frozen=True, slots=True)
class ChannelsLast:
    """See the head of this file."""

    judge: Judge
    weights: bool = False

    def apply(self, graph: Graph) -> Graph:
        if not any(call.op in LAST for call in graph.calls):
            return graph
        made = Rewriter(graph, _Sweep(self.judge, self.weights)).run().called_as(graph)
        return Dce().apply(Cse().apply(made))


class _Sweep:
    """The rule. last: values that have channels last in memory -> the array that lies so."""

    def __init__(self, judge: Judge, weights: bool) -> None:
        self.judge, self.weights = judge, weights
        self.last: dict[Node, Node] = {}
        self.busy = False

    def __call__(self, rewriter: Rewriter, call: Call) -> Node | None:
        if self.busy:
            return None  # a node that this rule makes
        self.busy = True
        try:
            if call.op in LAST:
                return self._inner(rewriter, call) if self.weights else self._convolution(rewriter, call)
            if self.weights and call.op.name in ("window_max", "window_max_put"):
                return self._maximum(rewriter, call)
            if call.op.name in ("windows_add", "windows_put"):
                return self._windows_back(rewriter, call)
            if any(arg in self.last for arg in call.args):
                return self._follow(rewriter, call)
            is_image = self.weights and len(call.shape) > 3
            return self._as_first(rewriter, call.args[0]) if is_image and _brings_first(call) else None
        finally:
            self.busy = False

    # ---- values

    def _as_last(self, rewriter: Rewriter, node: Node) -> Node:
        """`node` with channels last: the array behind it, or a permute of it."""
        if node in self.last:
            return self.last[node]
        dims = to_last(len(node.shape))
        if isinstance(node, Call) and node.op.name == "full":
            return rewriter.full(node.meta.with_shape(_pick(node.shape, dims)), node.attrs["value"])
        if isinstance(node, Call) and _brings_first(node):
            return node.args[0]
        return rewriter.call("permute", node, dims=dims)

    def _as_first(self, rewriter: Rewriter, node: Node) -> Node:
        """The value that the rest of the graph sees, `node` being it with channels last."""
        seen = rewriter.call("permute", node, dims=to_first(len(node.shape)))
        self.last[seen] = node
        return seen

    # ---- convolutions

    def _convolution(self, rewriter: Rewriter, call: Call) -> Node | None:
        op = LAST[call.op]
        has_weight = call.op.name != "convolution_weight"
        shapes = [_pick(arg.shape, to_last(len(arg.shape))) for arg in call.args]
        if has_weight:
            shapes[1] = call.args[1].shape
        result = _pick(call.shape, to_last(len(call.shape))) if has_weight else call.shape
        arrays = tuple(_contiguous(call, shape) for shape in (*shapes, result))
        is_empty = not all(array.numel for array in arrays)
        if is_empty or call.dtype not in op.dtypes or not self.judge(op.name, call.attrs, arrays):
            return None
        first, second = call.args
        operands = self._as_last(rewriter, first), second if has_weight else self._as_last(rewriter, second)
        made = rewriter.call(op, *operands, **call.attrs)
        return self._as_first(rewriter, made) if has_weight else made

    def _inner(self, rewriter: Rewriter, call: Call) -> Node | None:
        """With the weight's channels last too."""
        op = INNER[call.op]
        arrays = [_contiguous(call, _pick(node.shape, to_last(len(node.shape)))) for node in (*call.args, call)]
        if not all(array.numel for array in arrays) or not self.judge(op.name, call.attrs, tuple(arrays)):
            return None
        operands = [self._as_last(rewriter, arg) for arg in call.args]
        kernel = _of_patches(call)
        if kernel is not None:
            return self._as_first(rewriter, _product(rewriter, call, kernel, *operands))
        return self._as_first(rewriter, rewriter.call(op, *operands, **call.attrs))

    # ---- what follows

    def _follow(self, rewriter: Rewriter, call: Call) -> Node | None:
        """`call` on arrays with channels last, if it is of a kind that can."""
        rank = len(call.args[0].shape)
        if isinstance(call.op.lower, Reduction):
            return self._reduction(rewriter, call, rank)
        if call.op.name == "slice" and self.weights:
            attrs = _moved_attrs(call, rank)
            inside = None if attrs is None else pooling_last.sliced(self.last[call.args[0]], attrs)
            if inside is not None:
                return self._as_first(rewriter, inside)
        if call.op.name == "permute":
            return self.last[call.args[0]] if call.attrs["dims"] == to_last(rank) else None
        if call.op.name == "window_argmax":
            return self._window_argmax(rewriter, call, rank)
        if call.op.name in _OVER_WINDOWS:
            return self._over_windows(rewriter, call, rank)
        attrs = _moved_attrs(call, rank)
        if attrs is None:
            return None
        args = [self._as_last(rewriter, arg) for arg in call.args]
        return self._as_first(rewriter, rewriter.call(call.op, *args, **attrs))

    def _reduction(self, rewriter: Rewriter, call: Call, rank: int) -> Node | None:
        dims: tuple[int, ...] = tuple(call.attrs["dims"])
        if call.op.name.startswith("arg") and len(dims) > 1:
            return None  # a place counts the reduced dims in their order
        order = to_last(rank)
        places = tuple(sorted(order.index(d) for d in dims))
        made = rewriter.call(call.op, self.last[call.args[0]], **{**call.attrs, "dims": places})
        kept = [d for d in order if d not in dims]  # the dims of `made`
        back = tuple(kept.index(d) for d in sorted(kept))
        if back == tuple(range(len(back))):
            return made
        if len(back) > 2 and back == to_first(len(back)):
            return self._as_first(rewriter, made)
        return rewriter.call("permute", made, dims=back)

    def _over_windows(self, rewriter: Rewriter, call: Call, rank: int) -> Node | None:
        """A reduction over the kernel's dims of the windows, channels innermost."""
        spatial = len(call.attrs["kernel"])
        if spatial != rank - 2:
            return None
        attrs = {name: call.attrs[name] for name in ("kernel", "stride", "dilation")}
        windows = rewriter.call("windows", call.args[0], **attrs)  # (N, C, *o, *k), a view
        moved = rewriter.call("permute", windows, dims=(0, *range(2, 2 + 2 * spatial), 1))
        dims = tuple(range(1 + spatial, 1 + 2 * spatial))
        return self._as_first(rewriter, rewriter.call(_OVER_WINDOWS[call.op.name], moved, dims=dims))

    def _window_argmax(self, rewriter: Rewriter, call: Call, rank: int) -> Node | None:
        """The places of maxima, found one place of the kernel after the other for all windows and channels at once.

        Of equals the first wins, of NaNs the last: a later element is better if it is greater than the best, or NaN.
        """
        kernel: tuple[int, ...] = call.attrs["kernel"]
        if len(kernel) != rank - 2 or math.prod(kernel) > _MAX_UNROLLED:
            return None
        best, *others = self._elements_of_windows(rewriter, call)
        place = rewriter.full(best.meta.with_dtype(int32), 0)
        for number, element in enumerate(others, 1):
            greater, is_nan = rewriter.call("gt", element, best), rewriter.call("ne", element, element)
            better = rewriter.call("bitwise_or", greater, is_nan)
            best = rewriter.call("where", better, element, best)
            place = rewriter.call("where", better, rewriter.full(place.meta, number), place)
        return self._as_first(rewriter, rewriter.call("cast", place, dtype=int64))

    def _elements_of_windows(self, rewriter: Rewriter, call: Call) -> list[Node]:
        """For each place of the kernel, that element of every window: slices of the operand, channels last."""
        source, attrs, counts = self.last[call.args[0]], call.attrs, call.shape[2:]
        found = []
        for place in itertools.product(*map(range, attrs["kernel"])):
            starts = [k * gap for k, gap in zip(place, attrs["dilation"])]
            stops = [a + (n - 1) * step + 1 for a, n, step in zip(starts, counts, attrs["stride"])]
            first, last = (0, *starts, 0), (source.shape[0], *stops, source.shape[-1])
            found.append(rewriter.call("slice", source, starts=first, stops=last, steps=(1, *attrs["stride"], 1)))
        return found

    def _maximum(self, rewriter: Rewriter, call: Call) -> Node | None:
        """Pooling by kernels; where they do not take it, as loops, as any call that follows."""
        x = call.args[-1]
        if len(call.attrs["kernel"]) == len(call.shape) - 2 and x in self.last:
            operands = [self._as_last(rewriter, arg) for arg in call.args]
            if call.op.name == "window_max":
                made = pooling_last.maximum(rewriter, call, operands[0], self.judge)
            else:
                made = pooling_last.put(rewriter, call, operands[0], operands[1], self.judge)
            if made is not None:
                return self._as_first(rewriter, made)
        return self._follow(rewriter, call) if x in self.last and call.op.name == "window_max" else None

    def _windows_back(self, rewriter: Rewriter, call: Call) -> Node | None:
        """The adjoint of a pooling beside convolutions: channels last, whoever asks for it."""
        if len(call.attrs["kernel"]) != len(call.shape) - 2 or call.attrs.get("trailing"):
            return None
        moved = [self._as_last(rewriter, arg) for arg in call.args]
        return self._as_first(rewriter, rewriter.call(call.op, *moved, **{**call.attrs, "trailing": 1}))


def _brings_first(call: Call) -> bool:
    """Whether it permutes an array whose channels were last."""
    return call.op.name == "permute" and call.attrs["dims"] == to_first(len(call.shape))


def _of_patches(call: Call) -> Shape | None:
    """The kernel, if patches of it cover what is convolved, each once: then it is a product of matrices (positions,
    elements of a patch) and (elements, channels). None where it is not; or of so many channels, and more than one
    position a patch, that copying patches would cost more than it gains."""
    attrs, rank = call.attrs, len(call.attrs["stride"])
    kernel: Shape = tuple(attrs["kernel"] if call.op.name == "convolution_weight" else call.args[1].shape[2:])
    x = call if call.op.name == "convolution_input" else call.args[0]
    covers = all(isinstance(n, int) and n % k == 0 for n, k in zip(x.shape[2:], kernel))
    if rank == 0 or kernel != tuple(attrs["stride"]) or attrs["groups"] != 1 or any((*attrs["low"], *attrs["high"])):
        return None
    if set(kernel) == {1}:
        return kernel
    return kernel if covers and x.shape[1] < _FEW and set(attrs["dilation"]) == {1} else None


def _product(rewriter: Rewriter, call: Call, kernel: Shape, first: Node, second: Node) -> Node:
    """The convolution `call` of arrays with channels last, as a product."""
    shape = _pick(call.shape, to_last(len(call.shape)))
    if call.op.name == "convolution_input":
        found = rewriter.call("matmul", _matrix(rewriter, first, 1), _matrix(rewriter, second, len(kernel) + 1))
        return _from_patches(rewriter, found, shape, kernel)
    patches = _patches(rewriter, first, kernel)
    if call.op.name == "convolution":
        weight = _matrix(rewriter, second, len(kernel) + 1)
        found = rewriter.call("matmul", patches, rewriter.call("permute", weight, dims=(1, 0)))
    else:
        g = rewriter.call("permute", _matrix(rewriter, second, 1), dims=(1, 0))
        found = rewriter.call("matmul", g, patches)
    return rewriter.call("reshape", found, shape=shape)


def _patches(rewriter: Rewriter, x: Node, kernel: Shape) -> Node:
    """x: [N, *n, C] -> [N * patches, elements of a patch, channels innermost]."""
    if set(kernel) == {1}:
        return _matrix(rewriter, x, 1)
    cut = [size for n, k in zip(x.shape[1:-1], kernel) for size in (n // k, k)]
    apart = rewriter.call("reshape", x, shape=(x.shape[0], *cut, x.shape[-1]))
    order = _patches_first(len(kernel))
    return _matrix(rewriter, rewriter.call("permute", apart, dims=order), len(kernel) + 1)


def _from_patches(rewriter: Rewriter, patches: Node, shape: Shape, kernel: Shape) -> Node:
    """The inverse: x, of `shape`."""
    if set(kernel) == {1}:
        return rewriter.call("reshape", patches, shape=shape)
    cut = tuple(n // k for n, k in zip(shape[1:-1], kernel))
    apart = rewriter.call("reshape", patches, shape=(shape[0], *cut, *kernel, shape[-1]))
    order = _patches_first(len(kernel))
    back = tuple(order.index(d) for d in range(len(order)))
    return rewriter.call("reshape", rewriter.call("permute", apart, dims=back), shape=shape)


def _patches_first(rank: int) -> tuple[int, ...]:
    """The order of dims [N, n0, k0, n1, k1, ..., C] in which patches come before what is in them."""
    return (0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1)


def _matrix(rewriter: Rewriter, node: Node, inner: int) -> Node:
    """`node` as a matrix; its columns are the last `inner` dims."""
    shape = node.shape
    return rewriter.call("reshape", node, shape=(math.prod(shape[:-inner]), math.prod(shape[-inner:])))


def _pick(shape: Shape, dims: tuple[int, ...]) -> Shape:
    return tuple(shape[d] for d in dims)


def _contiguous(call: Call, shape: Shape) -> Strided:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return Strided(call.dtype, shape, tuple(reversed(strides)))


def _moved_attrs(call: Call, rank: int) -> Mapping[str, Any] | None:
    """The attributes of `call` on operands with channels last; None if it is of no kind that follows."""
    if len(call.shape) != rank:
        return None
    if is_elementwise(call.op.lower) or call.op.name in ("cast", "detach"):
        return call.attrs
    order = to_last(rank)
    names = _PER_DIM.get(call.op.name)
    if names is not None:
        moved = {name: _pick(tuple(call.attrs[name]), order) for name in names}
        return {**call.attrs, **moved}
    if call.op.name == "cat":
        return {**call.attrs, "dim": order.index(call.attrs["dim"])}
    return None


_OVER_WINDOWS = {"window_sum": "sum", "window_max": "max"}
_FEW = 16  # channels
_MAX_UNROLLED = 16  # places of a kernel: beyond, a loop over them is better
_PER_DIM: dict[str, tuple[str, ...]] = {"pad": ("low", "high"), "slice": ("starts", "stops", "steps")}
