"""Each op alone through each engine: eager's numbers, NaN and infinity included.

What an engine refuses is our own code's, which other tests hold to eager. The ops of the core set that it does not take
are named (`LEFT`), so that it cannot pass by refusing. An engine that takes a second an op is tried with --long.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from cases import SPECIAL, Case, all_cases, by_op, check_each, tolerance
from one_op_graphs import graph_of

import distcompile as dc
from compiler_core import dtype as dt
from compiler_core.backend import find_backend
from compiler_core.engines.backend import EngineBackend
from compiler_core.errors import MissingPackageError
from compiler_core.ops.registry import OPS, Array, Sample
from compiler_core.ops.rules import Core, OwnCode, Reduction
from distcompile import nn

LONG = tuple(pytest.param(name, marks=pytest.mark.long) for name in ("openvino", "tvm"))  # a minute and more
ENGINES = ("onnxrt", "openxla", *LONG)
SLACK = 16  # times the tolerance of one op: engines take other polynomials, and compositions
DTYPES = (dt.float32, dt.float64, dt.int64, dt.int32, dt.bool_, dt.uint8, dt.float16, dt.bfloat16)
ROWS = np.array(SPECIAL, np.float32).repeat(3).reshape(-1, 3)  # of one value each
CASES = (
    *(c for c in all_cases() if c.dtype in DTYPES),
    *(
        Case(op, Sample(((3, 3),), {"dims": (1,)}), dt.float32, (ROWS,), "rows", f"{op.name}-rows")
        for op in OPS.values()
        if isinstance(op.lower, Reduction)
    ),
)
CORE = {op.name for op in OPS.values() if isinstance(op.engines, Core) and not op.dtypes[0].is_complex}
PLACES = {"take", "gather", "scatter", "scatter_add", "argmax", "argmin"}  # of i64, or not tested for their range
LEFT = {  # of f32, or of what there is
    "onnxrt": {"complex"},
    "openvino": {"complex", *PLACES, "remainder", "floor_divide"},
    "openxla": set(),
    "tvm": {"complex", *PLACES},
}
SLOW = ("tvm",)
SLOW_SIZE = 100  # elements of operands


@cache
def engine(name: str) -> EngineBackend:
    try:
        found = find_backend(name)
    except MissingPackageError as error:
        pytest.skip(str(error))
    assert isinstance(found, EngineBackend)
    return found


def assert_equal(result: Array, expected: Array) -> None:
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
        return
    relative, absolute = (SLACK * t for t in tolerance(dt.of(expected.dtype)))
    wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (result, expected)]
    largest = np.max(np.abs(wide[1]), initial=0.0, where=np.abs(wide[1]) < 1e6)
    np.testing.assert_allclose(*wide, rtol=relative, atol=absolute + relative * largest, equal_nan=True)


def is_taken(backend: EngineBackend, case: Case) -> bool:
    return all(segment.by_engine for segment in backend.segments(backend.decomposed(graph_of(case))))


@pytest.mark.filterwarnings("ignore:.*is run by our own code")
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("cases", by_op(CASES))
def test_an_engine_is_eager(name: str, cases: tuple[Case, ...]) -> None:
    backend = engine(name)
    if name in SLOW:
        cases = tuple(c for c in cases if c.dtype is dt.float32 and sum(a.size for a in c.arrays) <= SLOW_SIZE)

    def check(case: Case) -> None:
        if is_taken(backend, case):
            with np.errstate(all="ignore"):
                (executable,), expected = backend.compile([graph_of(case)], case.name), case.eager()
            assert_equal(executable(list(case.arrays))[0], expected)

    check_each(check, cases)


@pytest.mark.filterwarnings("ignore:.*is run by our own code")
@pytest.mark.parametrize("name", ENGINES)
def test_a_relu_and_maxima_of_windows_see_nan_and_infinities(name: str) -> None:
    """Which are patterns, or padded, and so in no graph of one op."""
    engine(name)
    special = dc.from_numpy(ROWS.copy())

    def f(x: dc.Tensor) -> tuple[dc.Tensor, ...]:
        return nn.functional.relu(x), nn.functional.max_pool1d(x[None], 2, 1, 1), x.clamp(-1, 1), x.amax(1)

    for ours, theirs in zip(dc.compile(f, backend=name)(special), f(special), strict=True):
        assert dc.allclose(ours, theirs, equal_nan=True)


@pytest.mark.filterwarnings("ignore:.*is run by our own code")
@pytest.mark.parametrize("name", ENGINES)
def test_numbers_near_0_and_1_are_not_taken_for_them(name: str) -> None:
    engine(name)
    x = dc.tensor([1.0, -2.0, 3.0], dtype=dc.float64)

    def f(x: dc.Tensor) -> dc.Tensor:
        return ((x.sin() * 0.99999999 + 1e-9) / 0.99999999 - x.sin()) * 1e9

    assert dc.allclose(dc.compile(f, backend=name)(x), f(x), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:.*is run by our own code")
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_takes_the_core_set(name: str) -> None:
    backend = engine(name)
    plain = [c for c in CASES if c.variant == "plain" and (c.dtype is dt.float32 or dt.float32 not in c.op.dtypes)]
    taken = {c.op.name for c in plain if c.op.name in CORE and is_taken(backend, c)}
    assert CORE - taken == LEFT[name]


def test_what_runs_beside_says_why() -> None:
    assert all(rule.why for op in OPS.values() if isinstance(rule := op.engines, OwnCode))
