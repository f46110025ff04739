"""Maximum pooling with channels last, for a GPU: what channels_last.py asks when it comes to such a call.

In: the sweep's rewriter, a call, and its operands with channels last. Out: `pool_max_inner` or `pool_max_put_inner` of
the array in front of the padding, which is not written to memory then; None where the kernels do not take it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from compiler_core.graph.ir import Call, Node
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.ops.pooling.inner import POOL_MAX_INNER, POOL_MAX_PUT_INNER
from compiler_core.ops.routine import Strided, contiguous

Judge = Callable[[str, Mapping[str, Any], tuple[Strided, ...]], object]


def maximum(rewriter: Rewriter, call: Call, x: Node, judge: Judge) -> Node | None:
    """window_max of x: f[N, *n, C], with channels last."""
    source, attrs = _unpadded(x, call)
    made = POOL_MAX_INNER.infer(source.meta, **attrs)
    if not judge(POOL_MAX_INNER.name, attrs, (contiguous(source.meta), contiguous(made))):
        return None
    return rewriter.call(POOL_MAX_INNER, source, **attrs)


def put(rewriter: Rewriter, call: Call, g: Node, x: Node, judge: Judge) -> Node | None:
    """window_max_put of g and x, with channels last: padded as x is."""
    source, attrs = _unpadded(x, call)
    layouts = (contiguous(g.meta), contiguous(source.meta), contiguous(source.meta))
    if not judge(POOL_MAX_PUT_INNER.name, attrs, layouts):
        return None
    made = rewriter.call(POOL_MAX_PUT_INNER, g, source, **attrs)
    low, high = ((0, *attrs[name], 0) for name in ("low", "high"))
    return rewriter.call("pad", made, low=low, high=high, value=0.0) if source is not x else made


def sliced(node: Node, attrs: Mapping[str, Any]) -> Node | None:
    """x, if `node` is pad(x) and `attrs` are those of the slice that takes x out of it."""
    if not isinstance(node, Call) or node.op.name != "pad":
        return None
    (x,) = node.args
    low = tuple(node.attrs["low"])
    stops = tuple(a + n for a, n in zip(low, x.shape, strict=True))
    whole = (tuple(attrs["starts"]), tuple(attrs["stops"])) == (low, stops) and set(attrs["steps"]) == {1}
    return x if whole else None


def _unpadded(x: Node, call: Call) -> tuple[Node, dict[str, Any]]:
    """What is in front of x's padding, and the attributes of the pooling of it."""
    spatial = len(call.attrs["kernel"])
    attrs = {name: tuple(call.attrs[name]) for name in ("kernel", "stride", "dilation")}
    source = x
    while isinstance(source, Call) and source.op.name == "detach":
        (source,) = source.args
    if isinstance(source, Call) and source.op.name == "pad" and source.attrs["value"] == -math.inf:
        low, high = tuple(source.attrs["low"]), tuple(source.attrs["high"])
        outside = (low[0], low[-1], high[0], high[-1])
        if set(outside) == {0} and low[1:-1] == tuple(call.attrs["low"]) and min((*low, *high)) >= 0:
            return source.args[0], attrs | {"low": low[1:-1], "high": high[1:-1]}
    zeros = (0,) * spatial
    return x, attrs | {"low": zeros, "high": zeros}
