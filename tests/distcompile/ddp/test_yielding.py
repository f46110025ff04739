"""Which plans' buckets leave most of a GPU to the backward: those that it hides even so, on every rank alike."""

from __future__ import annotations

import pytest
from test_splitter import meta, record

from compiler_core import dtype as dtypes
from compiler_core.graph.ir import Node
from compiler_core.ops import prims
from distcompile.ddp.bucket_plan import Caps
from distcompile.ddp.splitter import plan_backward
from distcompile.ddp.yielding import LINK, RATES, is_hidden

WIDTH = 1024


def of_linear(rows: int, dtype: dtypes.DType) -> bool:
    """Of one layer, whose weight's gradient is f32."""

    def backward(g: Node, x: Node) -> list[Node]:
        return [prims.cast(prims.matmul(prims.permute(x, (1, 0)), g), dtypes.float32)]

    graph = record(backward, g=meta(rows, WIDTH, dtype=dtype), x=meta(rows, WIDTH, dtype=dtype))
    return is_hidden(graph, plan_backward(graph, {"w": 0}, Caps.from_mb(25)))


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float32], ids=str)
def test_long_backwards_hide_what_short_ones_do_not(dtype: dtypes.DType) -> None:
    travels_s = WIDTH * WIDTH * 4 / LINK
    rows = round(2 * travels_s * RATES[dtype.itemsize] / (2 * WIDTH * WIDTH))
    assert [of_linear(rows + more, dtype) for more in (-8, 8)] == [False, True]
