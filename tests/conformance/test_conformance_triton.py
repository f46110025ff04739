"""Each op compiled alone to Triton, run by Triton's interpreter: eager's numbers, NaN and infinity included."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, all_cases, assert_same
from one_op_graphs import graph_of

from compiler_core import dtype as dt
from compiler_core.codegen.triton.load import load
from compiler_core.codegen.triton.module import print_module
from compiler_core.codegen.triton_backend import TritonBackend
from compiler_core.errors import IndexError_
from compiler_core.lowering.target import GPU
from compiler_core.ops.registry import OPS, Array, meta_of
from compiler_core.schedule.from_graphs import lower_and_schedule

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:backend 'triton'", "ignore:TRITON_DEFAULT")]


def _has_complex(case: Case) -> bool:
    """Whether a complex number stands somewhere: Triton has none."""
    return any(meta.dtype.is_complex for meta in (*map(meta_of, case.arrays), case.meta()))


CASES = tuple(c for c in all_cases() if c.variant != "strided" and not _has_complex(c))
DTYPES = tuple(d for d in dt.ALL if not d.is_complex and any(c.dtype is d for c in CASES))


# one program walks every window of these, and Triton's interpreter takes a tenth of a second an element
SLOW_OPS = ("convolution_input", "windows_add", "windows_put")


def cases_of(dtype: dt.DType, in_full: bool) -> list[Case]:
    """The cases of a dtype; of the slow ops those on one dim alone, unless `in_full`."""
    cases = [c for c in CASES if c.dtype is dtype]
    return cases if in_full else [c for c in cases if c.op.name not in SLOW_OPS or len(c.sample.attrs["size"]) == 1]


ALWAYS = (dt.bool_, dt.int64, dt.float32)  # one of each kind; with --long those of other sizes too
RUNS = [pytest.param(d, id=d.short, marks=() if d in ALWAYS else pytest.mark.long) for d in DTYPES]
IN_FULL = (dt.float32, dt.int64)  # with --long


@pytest.mark.parametrize("dtype", RUNS)
def test_interpreted_triton_is_eager(dtype: dt.DType, in_full: bool) -> None:
    cases = cases_of(dtype, dtype in IN_FULL and in_full)
    executables = TritonBackend().compile([graph_of(c) for c in cases], f"conformance_{dtype.short}")
    wrong = []
    for case, executable in zip(cases, executables):
        with np.errstate(all="ignore"):
            expected = case.eager()
            try:
                (result,) = executable(list(case.arrays))
                if case.op.name in SUMS and dtype is dt.bfloat16:
                    assert_near_in_bf16(result, expected)
                else:
                    assert_same(result, expected, dt.of(expected))
            except (AssertionError, RuntimeError) as error:
                wrong.append(f"{case.name}: {error}")
    assert not wrong, f"{len(wrong)} of {len(cases)} cases\n" + "\n".join(wrong)


SUMS = {"convolution_input"}  # sums of terms that are stored: to bf16 Triton's interpreter truncates each of them


def assert_near_in_bf16(actual: Array, expected: Array) -> None:
    """Near, also measured by the greatest element: terms that cancel leave what was truncated of them."""
    assert actual.dtype == expected.dtype
    wide = [x.astype(np.float64) for x in (actual, expected)]
    np.testing.assert_allclose(*wide, rtol=2**-6, atol=2**-7 * np.abs(wide[1]).max(initial=0.0))


@pytest.mark.parametrize("name", ["take", "index_add", "gather", "scatter_add"])
def test_interpreted_triton_refuses_a_bad_index(name: str) -> None:
    case = next(c for c in CASES if c.op is OPS[name] and c.variant == "plain" and c.arrays[1].size)
    arrays = [a.copy() for a in case.arrays]
    arrays[1].ravel()[-1] = 50
    (executable,) = TritonBackend().compile([graph_of(case)], f"bad_{name}")
    with pytest.raises(IndexError_):
        executable(arrays)


FRONT_END = (dt.float32, dt.int64)


@pytest.mark.long
@pytest.mark.parametrize("dtype", FRONT_END, ids=lambda d: d.short)
def test_tritons_compiler_takes_every_function(dtype: dt.DType) -> None:
    """As far as its front end goes, which checks types that its interpreter does not: a twentieth of a compilation."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    programs = lower_and_schedule([graph_of(c) for c in cases_of(dtype, True)], "front_end", GPU)
    module = print_module(list(dict.fromkeys(kernel for program in programs for kernel in program.kernels)))
    functions = load(module, interpret=False)
    wrong = []
    for launch in (launch for launches in module.launches.values() for launch in launches):
        source = ASTSource(functions[launch.function], signature=dict(launch.signature), constexprs={}, attrs={})
        options = backend.parse_options({"num_warps": launch.warps})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        try:
            source.make_ir(
                target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
            )
        except Exception as error:  # noqa: BLE001  CompilationError, and what its checks raise
            wrong.append(f"{launch.function}: {error}")
    assert not wrong, f"{len(wrong)} of {len(functions)} functions\n" + "\n".join(wrong)


def test_every_op_is_run_in_every_dtype_it_has() -> None:
    for dtype in DTYPES:
        ops = {c.op.name for c in CASES if c.dtype is dtype}
        assert {c.op.name for c in cases_of(dtype, False) if c.variant != "empty"} == ops
