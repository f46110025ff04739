"""Each op as an ONNX model: checked in full, and judged by ONNX's reference evaluator and by ONNX Runtime.

The model is `distcompile.onnx.export`'s: decomposed with its table. What ONNX's reference evaluator computes otherwise
than the specification says, or not at all, is named (`UNJUDGED`); ONNX Runtime judges that alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, all_cases, by_op, check_each, tolerance
from one_op_graphs import graph_of

from compiler_core import dtype as dt
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import Cse, Dce, Decompose, run_passes
from compiler_core.ops.registry import Array

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from compiler_core.engines.onnx.exported import EXPORTED  # noqa: E402
from compiler_core.engines.onnx.model import refused, to_model  # noqa: E402

NOT_IMPLEMENTED = runtime.capi.onnxruntime_pybind11_state.NotImplemented
SLACK = 16
DTYPES = (dt.float32, dt.int64, dt.bool_)
SIZE = 700  # elements: larger samples are engines' (test_conformance_engines.py)
UNJUDGED = {
    "convolution_input": "its ConvTranspose knows no dilation with strides, and no empty batch",
    "gather": "its GatherElements wants all other dims of one size",
}
CASES = tuple(c for c in all_cases() if c.dtype in DTYPES and sum(a.size for a in c.arrays) <= SIZE)


def written(case: Case) -> Graph | None:
    """The case's graph with ONNX's ops; None: ONNX has none for it."""
    graph = run_passes(graph_of(case), (Decompose(lambda call: not refused(call, EXPORTED)), Dce(), Cse()))
    return None if any(refused(call, EXPORTED) for call in graph.calls) else graph


def assert_equal(result: Array, expected: Array) -> None:
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
        return
    relative, absolute = (SLACK * t for t in tolerance(dt.of(expected.dtype)))
    largest = np.max(np.abs(expected), initial=0.0, where=np.abs(expected) < 1e6)
    np.testing.assert_allclose(result, expected, rtol=relative, atol=absolute + relative * largest, equal_nan=True)


def check_by_reference(case: Case) -> None:
    graph = written(case)
    if graph is None:
        return
    model = to_model(graph, table=EXPORTED)
    onnx.checker.check_model(model, full_check=True)
    if case.op.name in UNJUDGED or case.variant == "special":  # NaN: what its NumPy functions do is not said to be so
        return
    from onnx.reference import ReferenceEvaluator

    feed = {node.name: array for node, array in zip(graph.inputs, case.arrays, strict=True)}
    with np.errstate(all="ignore"):
        (result,), expected = ReferenceEvaluator(model).run(None, feed), case.eager()
    assert_equal(np.asarray(result), expected)


def check_by_runtime(case: Case) -> None:
    graph = written(case)
    if graph is None or case.meta().dtype is dt.bfloat16:  # which its Python API does not hand out
        return
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    model = to_model(graph, table=EXPORTED).SerializeToString()
    try:
        session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except NOT_IMPLEMENTED:  # ONNX has it, ONNX Runtime not of this dtype
        return
    pairs = zip(graph.inputs, case.arrays, strict=True)
    feed = {node.name: np.ascontiguousarray(array).reshape(array.shape) for node, array in pairs}
    with np.errstate(all="ignore"):
        (result,), expected = session.run(None, feed), case.eager()
    assert_equal(np.asarray(result), expected)


@pytest.mark.parametrize("cases", by_op(CASES))
def test_a_model_is_valid_and_is_its_op_by_the_reference(cases: tuple[Case, ...]) -> None:
    check_each(check_by_reference, cases)


@pytest.mark.parametrize("cases", by_op(CASES))
def test_a_model_is_its_op_by_onnx_runtime(cases: tuple[Case, ...]) -> None:
    check_each(check_by_runtime, cases)


def test_sizes_that_the_call_decides_stay_open() -> None:
    """A model that was made of symbols, run at other sizes."""
    import distcompile as dc
    from distcompile import nn
    from distcompile.export import Dim, export

    class Net(nn.Module):
        def forward(self, x: dc.Tensor) -> dc.Tensor:
            rows, columns = x.shape
            ramp = dc.arange(columns).float()
            y = (x + ramp).reshape(rows * columns // 1).flip(0).reshape(rows, columns)
            return dc.cat([y, y.t().sum(1, keepdim=True).t().expand(rows, columns)], 1)[1:]

    dims = ({0: Dim("rows", min=2), 1: Dim("columns", min=2)},)
    program = export(Net(), (dc.zeros(3, 4),), dynamic_shapes=dims)
    made = dc.onnx.export(program)
    for shape in ((2, 5), (7, 2), (3, 4)):
        x = dc.randn(*shape)
        assert dc.allclose(made(x)[0], Net()(x), atol=1e-6)
