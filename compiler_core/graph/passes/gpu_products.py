"""Products of matrices that a GPU's library computes slowly, as what it computes fast.

In: a Graph. Out: one in which

    a b of few columns   a sum of outer products, element by element, where both inner and one outer size are small: the
                         library reads such matrices with next to nothing to do (talking heads: 4 by 4)
    a b of odd sizes     slice(pad(a) pad(b)), of 16-bit floats: where rows do not start on 16 bytes the library has
                         slow kernels alone (a vocabulary of 50257)

Sums are taken in f32 either way. What is padded is zeros, so it adds nothing. A pad is most often part of the kernel
that makes the operand; a slice, of those that read the result.
"""

from __future__ import annotations

from compiler_core.dtype import bfloat16, float16, float32
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.cse import Cse
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.ops.linear_algebra.matmul import MATMUL
from compiler_core.ops.registry import OPS
from compiler_core.records import dataclass

_PERMUTE = OPS["permute"]
_FEW = 8  # the inner size, and the smaller of the outer ones, of what is summed element by element
_MIN_RESULT = 1 << 18  # elements of such a product's result
_ALIGNED = 8  # elements: 16 bytes
_MIN_SIZE = 512  # of a size that is padded: less than a sixty-fourth is added
_MIN_FLOPS = 1 << 31  # of a product whose operands are padded
_HALF = (bfloat16, float16)


@dataclass(frozen=True, slots=True)
class GpuProducts:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        if not any(_is_small(call) or _odd_sizes(call) for call in graph.calls):
            return graph
        return Cse().apply(Rewriter(graph, _rule).run())


def _rule(rewriter: Rewriter, call: Call) -> Node | None:
    if _is_small(call):
        return _outer_products(rewriter, call)
    odd = _odd_sizes(call)
    return _padded(rewriter, call, odd) if odd else None


def _sizes(call: Call) -> tuple[int, int, int] | None:
    """(m, k, n) of a product whose sizes are known."""
    if call.op is not MATMUL or not all(isinstance(n, int) for arg in call.args for n in arg.shape):
        return None
    a, b = call.args
    return int(a.shape[-2]), int(a.shape[-1]), int(b.shape[-1])


# ---- small ones


def _is_small(call: Call) -> bool:
    sizes = _sizes(call)
    if sizes is None or not call.dtype.is_floating_point or call.dtype.itemsize > 4:
        return False
    m, k, n = sizes
    return 0 < k <= _FEW and min(m, n) <= _FEW and call.meta.numel >= _MIN_RESULT


def _outer_products(rewriter: Rewriter, call: Call) -> Node:
    a, b = map(rewriter.wide, call.args)
    found: Node | None = None
    for k in range(a.shape[-1]):
        column = rewriter.call("expand", _sliced(rewriter, a, len(a.shape) - 1, k, k + 1), shape=call.shape)
        row = rewriter.call("expand", _sliced(rewriter, b, len(b.shape) - 2, k, k + 1), shape=call.shape)
        term = rewriter.call("mul", column, row)
        found = term if found is None else rewriter.call("add", found, term)
    assert found is not None
    return found if call.dtype is float32 else rewriter.call("cast", found, dtype=call.dtype)


# ---- odd ones


def _odd_sizes(call: Call) -> str:
    """Those of "m", "k", "n" along which some matrix lies in memory, its rows not aligned; "": none that matters."""
    sizes = _sizes(call)
    if sizes is None or call.dtype not in _HALF or len(call.shape) != 2:
        return ""
    m, k, n = sizes
    if 2 * m * k * n < _MIN_FLOPS:
        return ""
    a, b = call.args
    along = {"m" if _is_turned(a) else "k", "k" if _is_turned(b) else "n", "n"}
    odd = "".join(name for name, size in zip("mkn", sizes) if name in along and size % _ALIGNED)
    return odd if all(size >= _MIN_SIZE for name, size in zip("mkn", sizes) if name in odd) else ""


def _is_turned(x: Node) -> bool:
    return isinstance(x, Call) and x.op is _PERMUTE and x.attrs["dims"] == (1, 0)


def _padded(rewriter: Rewriter, call: Call, odd: str) -> Node:
    a, b = call.args
    first = _pad(rewriter, a, ("m" in odd, "k" in odd))
    second = _pad(rewriter, b, ("k" in odd, "n" in odd))
    found = rewriter.call(MATMUL, first, second)
    for dim, size in enumerate(call.shape):
        found = _sliced(rewriter, found, dim, 0, size) if found.shape[dim] != size else found
    return found


def _pad(rewriter: Rewriter, x: Node, dims: tuple[bool, bool]) -> Node:
    """x with zeros behind, so that these dims are aligned: of one that is turned, what it turns is padded."""
    if not any(dims):
        return x
    if isinstance(x, Call) and _is_turned(x):
        return rewriter.call(_PERMUTE, _pad(rewriter, x.args[0], dims[::-1]), dims=(1, 0))
    high = tuple(-size % _ALIGNED if chosen else 0 for size, chosen in zip(x.shape, dims))
    return rewriter.call("pad", x, low=(0, 0), high=high, value=0)


def _sliced(rewriter: Rewriter, x: Node, dim: int, start: int, stop: int) -> Node:
    """x[..., start:stop, ...] along a dim."""
    starts = tuple(start if d == dim else 0 for d in range(len(x.shape)))
    stops = tuple(stop if d == dim else n for d, n in enumerate(x.shape))
    return rewriter.call("slice", x, starts=starts, stops=stops, steps=(1,) * len(x.shape))
