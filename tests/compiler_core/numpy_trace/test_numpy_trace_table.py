"""Every rule for a function of NumPy's against NumPy: as arrays on Tensors, captured, and a part of them compiled."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as torch
from compiler_core.numpy_trace import TracedArray, as_traced
from compiler_core.numpy_trace.dispatch import RULES
from compiler_core.numpy_trace.ufuncs import UFUNCS
from tests.compiler_core.numpy_trace import numpy_cases, numpy_cases_math, numpy_cases_shape, numpy_programs
from tests.compiler_core.numpy_trace.numpy_cases import Case

CASES = [*numpy_cases.CASES, *numpy_cases_shape.CASES, *numpy_cases_math.CASES]
CODEGEN_SHARE = 12  # one in so many cases is compiled, in one of its dtypes
TOLERANCE = {"float16": 2e-2, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-9, "complex128": 1e-9}


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def same(got: Any, expected: Any) -> None:
    """Values, dtypes and shapes, and whether it is an array or a number."""
    got, expected = leaves(got), leaves(expected)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected):
        assert type(mine) is type(theirs)
        if not isinstance(theirs, (np.ndarray, np.generic)):
            assert mine == theirs
            continue
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        tolerance = TOLERANCE.get(theirs.dtype.name, 0)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def real(tree: Any) -> Any:
    """Traced arrays as NumPy's, outside of a trace."""
    if isinstance(tree, (tuple, list)):
        return [real(part) for part in tree]
    return tree._as_numpy("a test") if type(tree) is TracedArray else tree


def plain(case: Case, dtype: str) -> Any:
    with np.errstate(all="ignore"):
        return case.call(*case.arrays(dtype))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_on_tensors(case: Case) -> None:
    for dtype in case.dtypes:
        given = [as_traced(torch.from_numpy(np.asarray(array))) for array in case.arrays(dtype)]
        same(real(case.call(*given)), plain(case, dtype))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_captured_in_one_graph(case: Case) -> None:
    """The call that is captured gives what NumPy gives, and so does the next, by the graph."""
    for dtype in case.dtypes:
        compiled = torch.compile(case.call, backend="eager", fullgraph=True)
        for _ in range(2 if dtype == case.dtypes[-1] else 1):
            same(compiled(*case.arrays(dtype)), plain(case, dtype))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case", [case for case in CASES if zlib.crc32(case.name.encode()) % CODEGEN_SHARE == 0], ids=lambda case: case.name
)
def test_compiled(case: Case) -> None:
    dtype = case.dtypes[zlib.crc32(case.name.encode()) // CODEGEN_SHARE % len(case.dtypes)]
    same(torch.compile(case.call, fullgraph=True)(*case.arrays(dtype)), plain(case, dtype))


def test_empty_and_single_arrays() -> None:
    def function(x: Any) -> Any:
        return (
            x * 2,
            x.sum(),
            x.sum(axis=0),
            np.concatenate([x, x]),
            x.T,
            x.reshape(-1),
            np.where(x > 0, x, 0),
            x.mean(0),
        )

    for shape in ((0, 3), (1, 1), (2, 0), (1, 3)):
        with pytest.warns(RuntimeWarning) if shape == (0, 3) else _nothing():
            expected = function(np.ones(shape))
        same(torch.compile(function, backend="eager", fullgraph=True)(np.ones(shape)), expected)


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


@pytest.mark.parametrize("name", numpy_programs.PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "codegen"])
def test_programs(name: str, backend: str) -> None:
    """Realistic functions in one graph: results, and what they write, over calls with other data."""
    function, make = numpy_programs.PROGRAMS[name]
    if backend == "codegen" and zlib.crc32(name.encode()) % 4:
        pytest.skip("compiled by another run: one in four")
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for seed in range(3):
        mine, theirs = make(np.random.default_rng(seed)), make(np.random.default_rng(seed))
        same(compiled(*mine), function(*theirs))
        same(mine, theirs)
    assert len(compiled.explain().entries) == 1


def test_every_rule_is_called_by_a_case() -> None:
    """A rule that no case reaches is not tested."""
    called: set[Any] = set()
    watched = {function: _noting(function, rule.function, called) for function, rule in RULES.items()}
    before, ufuncs = dict(RULES), dict(UFUNCS)
    try:
        for function, rule in before.items():
            RULES[function] = type(rule)(watched[function], rule.view, rule.keeps_0d, rule.effect)
        for ufunc, rule in ufuncs.items():
            UFUNCS[ufunc] = _noting(ufunc, rule, called)
        for case in CASES:
            with np.errstate(all="ignore"):
                case.call(*(as_traced(torch.from_numpy(array)) for array in case.arrays(case.dtypes[0])))
    finally:
        RULES.update(before)
        UFUNCS.update(ufuncs)
    left = {getattr(f, "__name__", str(f)) for f in (*RULES, *UFUNCS) if f not in called} - NOT_IN_CASES
    assert not left, " ".join(sorted(left))


NOT_IN_CASES = {"allclose", "array_equal"}  # they answer with a bool, which breaks a graph: see test_numpy_trace.py


def _noting(function: Any, rule: Callable[..., Any], called: set[Any]) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        called.add(function)
        return rule(*args, **kwargs)

    return noted
