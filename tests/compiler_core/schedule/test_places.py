"""argmax and argmin over every dim: first of ties, NaN, dtypes; where others come behind the dim, in lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.dtype import DType, bfloat16, float32, float64, int64, uint8
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import GraphBuilder
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule


def drawn(shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Few different values, so that ties are common; NaN in some lines, whole lines of infinities."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 40, shape).astype(dtype.numpy)
    if dtype.is_floating_point:
        values[rng.random(shape) < 0.05] = np.nan
        values[..., 3] = -np.inf
        values[..., 4] = np.inf
    return values


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, int64, uint8], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((7, 18), 0), ((3, 5, 4, 6), 1), ((2, 9, 2311), 1), ((4, 600), 1)])
def test_places(shape: tuple[int, ...], dim: int, dtype: DType, name: str) -> None:
    builder = GraphBuilder("places")
    values = drawn(shape, dtype)
    with use_trace(builder):
        x = builder.placeholder("x", TensorMeta(shape, dtype))
        graph = builder.build([getattr(F, name)(x, dim)])
    (program,) = lower_and_schedule([graph])
    verify_program(program)
    (wanted,) = interpret(graph, [values])
    if values.size < 5000:
        np.testing.assert_array_equal(interpret_program(program, [values])[0].reshape(wanted.shape), wanted)
    x_ = dc.from_numpy(values)
    compiled = dc.compile(lambda x: getattr(x, name)(dim), fullgraph=True)
    np.testing.assert_array_equal(compiled(x_).numpy(), wanted)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_truths_have_no_place(name: str) -> None:
    with pytest.raises(NotImplementedError, match="bool"):
        getattr(dc.tensor([True, False]), name)()


def test_what_is_searched_is_computed_on_the_way() -> None:
    builder = GraphBuilder("searched")
    with use_trace(builder):
        x = builder.placeholder("x", TensorMeta((8, 32), float32))
        graph = builder.build([F.argmin(F.mul(F.add(x, 1.0), x), 0)])
    (program,) = lower_and_schedule([graph])
    assert len(program.kernels) == 1
