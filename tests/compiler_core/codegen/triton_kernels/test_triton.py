"""Triton kernels: scalars against the loop-IR interpreter, training steps against eager, and PTX for sm_90."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from native_harness import I0, assert_close, over, pointwise

import distcompile
import distcompile.nn.functional as F
from compiler_core.codegen.triton.load import compile_ptx, load
from compiler_core.codegen.triton.module import TritonModule, print_module
from compiler_core.codegen.triton.scalars import EMIT, emit_scalar
from compiler_core.codegen.triton_backend import KernelRunner, TritonBackend
from compiler_core.dtype import DType, bfloat16, float32, int64, uint32
from compiler_core.errors import BackendError, LoweringError
from compiler_core.loop_ir.expr import SCALARS, Cast, Load, ScalarCall
from compiler_core.loop_ir.interpret import run_kernel
from compiler_core.loop_ir.ir import Accumulate, Accumulator, Kernel, Local, Param, Store
from compiler_core.loop_ir.parse import parse_kernel
from distcompile import nn
from tests.compiler_core.codegen.cpp.test_cpp_scalars import COMPUTE, N, operand, takes
from tests.sharing import some

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.usefixtures("counter_draws"),
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:backend 'triton'", "ignore:TRITON_DEFAULT"),
]


COMPLEX = {"complex", "real", "imag", "conj"}
REAL = [d for d in COMPUTE if not d.is_complex]


def test_complex_numbers_are_refused_by_name() -> None:
    with pytest.raises(LoweringError, match="no complex numbers"):
        print_module([parse_kernel("kernel k(p0: c64[8] in, p1: c64[8] out)\n  p1[0] = add(p0[0], c64(1.0, 2.0))\n")])


def run_both(kernel: Kernel, arrays: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arrays after the loop-IR interpreter, and after Triton's."""
    module = print_module([kernel])
    expected, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
    with np.errstate(all="ignore"):
        run_kernel(kernel, expected)
        KernelRunner(module, load(module, interpret=True))(kernel, got)
    return expected, got


def test_the_emission_table_covers_every_scalar() -> None:
    assert set(EMIT) == set(SCALARS) - COMPLEX


def test_a_scalar_without_triton_names_those_that_have_it_and_where_it_is_to_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(EMIT, "erf")
    with pytest.raises(LoweringError, match="no Triton for the scalar function 'erf'") as caught:
        emit_scalar("erf", (), (), float32, set())
    assert "erf" not in caught.value.expected.split(", ")
    assert "compiler_core/codegen/triton/scalars.py" in caught.value.remedy


@pytest.mark.parametrize("dtype", some(sorted(REAL, key=lambda one: one not in (float32, int64)), 2), ids=str)
def test_scalars_equal_the_interpreter(dtype: DType, rng) -> None:
    for name in (name for name in EMIT if takes(name, dtype)):
        scalar = SCALARS[name]
        loads = tuple(Load(f"p{k}", I0, dtype) for k in range(scalar.arity))
        kernel = pointwise([dtype] * scalar.arity, N, ScalarCall(name, loads, scalar.result_dtype(dtype)))
        arrays = [operand(rng, dtype, name, k) for k in range(scalar.arity)]
        expected, got = run_both(kernel, [*arrays, np.zeros(N, kernel.params[-1].dtype.numpy)])
        try:
            assert_close(got[-1], expected[-1], ulp=4096 if name == "pow" and dtype is not float32 else 64)
        except AssertionError as error:
            raise AssertionError(f"{name} on {dtype}: {error}") from error


def test_products_and_sums_are_rounded_apart_where_normal_numbers_are_drawn() -> None:
    """Of 16-bit floats they may else be rounded together."""
    words = (Load("p0", I0, uint32), Load("p1", I0, uint32))
    for value, contracts in ((ScalarCall("normal32", words, float32), False), (Cast(words[0], float32), True)):
        kernel = pointwise([uint32, uint32], N, Cast(value, bfloat16))
        (launch,) = print_module([kernel]).launches[kernel.name]
        assert launch.contracts == contracts


STRIPS = """
kernel long(p0: f32[20000] in, p1: f32[20000] out, p2: f32[1] out)
  acc a0: f32 max
  local s0: f32[20000]
  for i0 in 20000 vector
    t0 = mul(p0[i0], p0[i0])
    s0[i0] = t0
    a0 <- t0
  for i0 in 20000 vector
    p1[i0] = div(s0[i0], a0)
  p2[0] = a0
"""


def test_a_loop_longer_than_a_block_runs_in_strips_over_scratch_memory(rng) -> None:
    kernel = parse_kernel(STRIPS)
    module = print_module([kernel])
    (launch,) = module.launches["long"]
    assert [s.name for s in launch.scratch] == ["s0"]
    arrays = [rng.standard_normal(20000).astype(np.float32), np.zeros(20000, np.float32), np.zeros(1, np.float32)]
    for expected, got in zip(*run_both(kernel, arrays), strict=True):
        assert_close(got, expected)


def test_independent_lanes_become_the_grid(rng) -> None:
    kernel = pointwise([float32], 5000, ScalarCall("exp", (Load("p0", I0, float32),), float32))
    (launch,) = print_module([kernel]).launches["k"]
    assert launch.programs == 10
    expected, got = run_both(kernel, [rng.standard_normal(5000).astype(np.float32), np.zeros(5000, np.float32)])
    assert_close(got[-1], expected[-1])


class Block(nn.Module):
    """Embedding, attention and MLP: every kind of fused kernel that a transformer has."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(16, 11, bias=False)

    def forward(self, x: distcompile.Tensor, y: distcompile.Tensor) -> distcompile.Tensor:
        h = self.embed(x)
        q, k, v = (t.view(2, 6, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(h)).split(16, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 6, 16)
        h = h + self.drop(a)
        h = h + self.down(F.gelu(self.up(h)))
        return F.cross_entropy(self.head(h).view(-1, 11), y.view(-1))


def gradients(backend: str | TritonBackend | None) -> tuple[float, list[np.ndarray]]:
    """Loss and gradients of one step under `backend` (None: eager)."""
    distcompile.manual_seed(3)
    model = Block()
    x, y = distcompile.randint(0, 11, (2, 6)), distcompile.randint(0, 11, (2, 6))
    run = model if backend is None else distcompile.compile(model, backend=backend, fullgraph=True)
    loss = run(x, y)
    loss.backward()
    return loss.item(), [p.grad.numpy().copy() for p in model.parameters()]


class Keeping(TritonBackend):
    """Backend "triton" that keeps what it compiled: the last module, and all."""

    module: TritonModule

    def compile(self, graphs, name):
        executables = super().compile(graphs, name)
        self.module = executables[0].run_kernel.module
        self.modules = [*getattr(self, "modules", []), self.module]
        return executables


def test_a_training_step_equals_eager_and_every_kernel_is_ptx_for_hopper() -> None:
    backend = Keeping()
    loss, found = gradients(backend)
    expected_loss, expected = gradients(None)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-6)
    functions = load(backend.module, interpret=False)
    launches = [launch for group in backend.module.launches.values() for launch in group]
    assert len(launches) > 10
    for launch in launches:
        ptx = compile_ptx(functions[launch.function], launch)
        assert re.search(r"\.target sm_90", ptx)
        assert f".entry {launch.function}(" in ptx


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_every_scalar_compiles_to_ptx(dtype: DType) -> None:
    """One kernel that stores all scalars of a dtype, each into an output of its own."""
    names = [name for name in EMIT if takes(name, dtype)]
    loads = [Load(f"p{k}", I0, dtype) for k in range(3)]
    params = [Param(f"p{k}", dtype, N, "in") for k in range(3)]
    stores = []
    for name in names:
        scalar = SCALARS[name]
        result = scalar.result_dtype(dtype)
        params.append(Param(f"out_{name}", result, N, "out"))
        stores.append(Store(f"out_{name}", I0, ScalarCall(name, tuple(loads[: scalar.arity]), result)))
    kernel = Kernel("all_scalars", tuple(params), (over("i0", N, "vector", tuple(stores)),))
    module = print_module([kernel])
    (launch,) = module.launches["all_scalars"]
    assert ".target sm_90" in compile_ptx(load(module, interpret=False)[launch.function], launch)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_block_reductions_compile_to_ptx(kind: str) -> None:
    body = (
        Accumulator("a0", float32, kind),
        Local("s0", float32, N),
        over("i0", N, "vector", (Accumulate("a0", Load("p0", I0, float32)),)),
    )
    kernel = Kernel("reduce", (Param("p0", float32, N, "in"),), body)
    module = print_module([kernel])
    assert ".target sm_90" in compile_ptx(load(module, interpret=False)["reduce_0"], module.launches["reduce"][0])


def test_without_triton_the_error_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(BackendError, match="distcompile\\[triton\\]"):
        TritonBackend().compile([], "none")


def clipped_surrogate(logits, actions, before, advantages):
    """PPO's: a gather, checked, in rows beside a mean and a deviation over columns."""
    ratio = (F.log_softmax(logits, 1).gather(1, actions[:, None])[:, 0] - before).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return distcompile.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2)).mean(), ratio.mean()


def attention_of_groups(x, weight):
    """A group norm of few channels whose gradient comes back transposed."""
    y = F.group_norm(x, 4, weight).flatten(2)
    return distcompile.einsum("bci,bcj->bij", y, y).softmax(-1).square().sum(), y.mean()


@pytest.mark.parametrize("fn", [clipped_surrogate, attention_of_groups])
def test_loops_of_one_axis_and_of_two_kinds_are_kept_apart(fn) -> None:
    """Rows, columns and numbers of one axis: what was loaded of the one is not taken for the other's."""
    if fn is clipped_surrogate:
        logits = distcompile.linspace(-2, 1, 32).sin().reshape(8, 4)
        actions = distcompile.tensor([0, 3, 1, 2, 2, 0, 1, 3])
        given = [logits, actions, distcompile.linspace(-2, -1, 8), distcompile.linspace(1, 4, 8).cos()]
    else:
        given = [distcompile.linspace(-3, 3, 1024).sin().reshape(2, 8, 8, 8), distcompile.linspace(0.5, 2, 8)]
    found = []
    for run in (fn, distcompile.compile(fn, backend=(backend := Keeping()))):
        leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in given]
        value, other = run(*leaves)
        (value + other).backward()
        found.append([value.detach(), *(x.grad for x in leaves if x.requires_grad)])
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=2e-4, atol=2e-6)
    for module in backend.modules:
        functions = load(module, interpret=False)
        for launch in (launch for group in module.launches.values() for launch in group):
            assert ".target sm_90" in compile_ptx(functions[launch.function], launch)


ROWS_THAT_STORE = """
kernel k(p0: f32[6144] in, p1: f32[768] in, p2: f32[6144] out, p3: f32[6144] in, p4: f32[6144] out, p5: f32[3072] out)
  for i0 in 4 parallel
    local s0: f32[768]
    for i1 in 768 vector
      s0[i1] = f32(0.0)
    for i2 in 8 block of i0
      acc a0: f32 sum
      for i1 in 768 vector
        t0 = mul(p0[768*i2 + i1], p1[i1])
        p2[768*i2 + i1] = t0
        a0 <- t0
      for i1 in 768 vector
        t1 = add(p3[768*i2 + i1], a0)
        p4[768*i2 + i1] = t1
        s0[i1] += t1
    for i1 in 768 vector
      p5[768*i0 + i1] = s0[i1]
"""


def test_a_turn_loads_before_it_stores_and_what_all_turns_share_is_loaded_before_them(rng) -> None:
    """Triton's compiler moves no load past a store."""
    kernel = parse_kernel(ROWS_THAT_STORE.lstrip())
    lines = [line.strip() for line in print_module([kernel]).source.partition("def k_0(")[2].splitlines()]
    (begin,) = (n for n, line in enumerate(lines) if line.startswith("for i2"))
    assert "num_stages" in lines[begin]
    turn = lines[begin : next(n for n, line in enumerate(lines) if "p5 +" in line)]
    stored = next(n for n, line in enumerate(turn) if "tl.store" in line)
    assert [any("tl.load(" + p in line for line in turn[:stored]) for p in ("p0", "p3")] == [True, True]
    assert not any("tl.load" in line for line in turn[stored:])
    assert any("tl.load(p1" in line for line in lines[:begin])
    arrays = [rng.standard_normal(int(p.numel)).astype(np.float32) for p in kernel.params]
    for got, expected in zip(*run_both(kernel, arrays)):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
