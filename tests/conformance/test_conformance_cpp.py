"""Each op compiled alone to C++: eager's numbers, NaN and infinity included. One shared object a dtype.

With --long compiled as users do, with -O3, and in the dtypes that are like others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cases import Case, all_cases, assert_same
from one_op_graphs import graph_of

from compiler_core import dtype as dt
from compiler_core.backend import Executable
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config
from compiler_core.errors import IndexError_
from compiler_core.ops.registry import OPS
from compiler_core.ops.routine import Routine
from compiler_core.runtime.onednn import No, find_onednn
from tests.sharing import some

MISSING = isinstance(find_onednn(), No)  # its routines then are in no graph, and in no native code


def _is_planned(case: Case) -> bool:
    rule = case.op.lower
    return isinstance(rule, Routine) and rule.native is not None and rule.native.planned


CASES = tuple(c for c in all_cases() if c.variant != "strided" and not (MISSING and _is_planned(c)))
ALWAYS = (dt.bool_, dt.int64, dt.float32)  # one of each kind
DTYPES = sorted((d for d in dt.ALL if any(c.dtype is d for c in CASES)), key=lambda d: d not in ALWAYS)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, compiled_as_by_users: None) -> Iterator[None]:
    with config.patch(cache_dir=Path(tmp_path_factory.mktemp("cache"))):
        yield


def compiled(dtype: dt.DType) -> dict[str, Executable]:
    """Case name -> executable, for all cases of `dtype`, built at once."""
    cases = [c for c in CASES if c.dtype is dtype]
    executables = NativeBackend().compile([graph_of(c) for c in cases], f"conformance_{dtype.short}")
    return {case.name: executable for case, executable in zip(cases, executables)}


@pytest.mark.parametrize("dtype", some(DTYPES, len(ALWAYS)), ids=lambda d: d.short)
def test_generated_cpp_is_eager(dtype: dt.DType) -> None:
    wrong = []
    executables = compiled(dtype)
    for case in CASES:
        if case.dtype is dtype:
            with np.errstate(all="ignore"):
                expected = case.eager()
                (result,) = executables[case.name](list(case.arrays))
            try:
                assert_same(result, expected, dtype)
            except AssertionError as error:
                wrong.append(f"{case.name}: {error}")
    assert not wrong, f"{len(wrong)} cases\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", ["take", "index_add", "index_copy", "gather", "scatter_add", "scatter", "check_index"])
def test_generated_cpp_refuses_a_bad_index(name: str) -> None:
    case = next(
        c for c in CASES if c.op is OPS[name] and c.variant == "plain" and c.arrays[min(1, len(c.arrays) - 1)].size
    )
    position = min(1, len(case.arrays) - 1)
    for bad in (-1, 5):
        arrays = [a.copy() for a in case.arrays]
        arrays[position].ravel()[-1] = bad
        (executable,) = NativeBackend().compile([graph_of(case)], f"bad_{name}")
        with pytest.raises(IndexError_):
            executable(arrays)
        with pytest.raises(IndexError_):
            case.op.eager(np, *arrays, **case.sample.attrs)
