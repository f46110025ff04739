"""Products of bf16 on a CPU that multiplies them: rounded once, with one set of bits however they are computed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distcompile as dc
from compiler_core.codegen import native_backend
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config
from compiler_core.eager import products
from compiler_core.graph.ir import Graph
from compiler_core.graph.parse import parse_graph
from compiler_core.ops.linear_algebra.matmul import MATMUL
from compiler_core.ops.registry import run_eager
from compiler_core.runtime.toolchain import multiplies_bf16

BF16 = np.dtype(ml_dtypes.bfloat16)
# batch, m, n, k: parts of tiles and of panels, odd k, one of each, a batch
SHAPES = [
    ((), 1, 1, 1),
    ((), 7, 5, 3),
    ((), 13, 200, 34),
    ((), 100, 70, 33),
    ((), 97, 129, 64),
    ((), 1, 65, 40),
    ((2, 3), 20, 17, 31),
    ((4,), 5, 1, 40),
]
on_such_a_cpu = pytest.mark.skipif(not multiplies_bf16(), reason="this CPU has no AVX512_BF16")


def text_of(shape: tuple[int, ...]) -> str:
    return f"bf16[{', '.join(map(str, shape))}]"


def product_graph(batch: tuple[int, ...], m: int, n: int, k: int, turned: str) -> Graph:
    """turned: which of the operands, "a" and "b", lie transposed."""
    last = (*range(len(batch)), len(batch) + 1, len(batch))
    a = (*batch, k, m) if "a" in turned else (*batch, m, k)
    b = (*batch, n, k) if "b" in turned else (*batch, k, n)
    lines = [f"graph g(%a: {text_of(a)} input 'a', %b: {text_of(b)} input 'b') {{"]
    for name in turned:
        shape = (*batch, m, k) if name == "a" else (*batch, k, n)
        lines.append(f"  %{name}t: {text_of(shape)} = permute(%{name}) dims={last}")
    first, second = (f"%{name}t" if name in turned else f"%{name}" for name in "ab")
    lines.append(f"  %c: {text_of((*batch, m, n))} = matmul({first}, {second})")
    return parse_graph("\n".join([*lines, "  return %c", "}"]))


def drawn(graph: Graph, rng: Any) -> list[Any]:
    return [rng.standard_normal(node.shape).astype(BF16) for node in graph.inputs]


def compiled(graph: Graph, given: list[Any]) -> Any:
    (run,) = NativeBackend().compile([graph], "product")
    return np.array(run(given)[0])


@on_such_a_cpu
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(("batch", "m", "n", "k"), SHAPES)
def test_compiled_and_eager_are_one_product_rounded_once(
    batch: tuple[int, ...], m: int, n: int, k: int, turned: str, rng: Any
) -> None:
    graph = product_graph(batch, m, n, k, turned)
    given = drawn(graph, rng)
    a, b = (x.swapaxes(-1, -2) if name in turned else x for name, x in zip("ab", given))
    found, eager = compiled(graph, given), run_eager(MATMUL, (a, b), {})
    np.testing.assert_array_equal(found.view(np.int16), np.asarray(eager).view(np.int16))
    wide = [x.astype(np.float64) for x in (a, b)]
    exact, size = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    assert np.all(np.abs(found.astype(np.float64) - exact) <= np.abs(exact) * 2.0**-8 + size * 1e-6)


@on_such_a_cpu
@pytest.mark.parametrize("turned", ["", "a", "b"])
def test_their_bits_do_not_depend_on_the_number_of_threads(turned: str, rng: Any) -> None:
    graph = product_graph((), 403, 331, 257, turned)
    given = drawn(graph, rng)
    found = []
    for threads in (1, 2, 3):
        with config.patch(num_threads=threads):
            found.append(compiled(graph, given).tobytes())
    assert len(set(found)) == 1


@on_such_a_cpu
def test_what_is_not_finite_stays_in_its_row_and_column(rng: Any) -> None:
    graph = product_graph((), 13, 18, 33, "")
    a, b = drawn(graph, rng)
    a[12, 32], b[0, 17] = np.inf, np.nan
    found = compiled(graph, [a, b]).astype(np.float64)
    assert np.isnan(found[:, 17]).all()
    assert np.isinf(found[12, :17]).all()
    assert np.isfinite(found[:12, :17]).all()


@on_such_a_cpu
def test_eager_code_takes_arrays_as_they_lie(rng: Any) -> None:
    wide = rng.standard_normal((64, 90)).astype(BF16)
    repeated = np.broadcast_to(wide[:1, :40], (30, 40))
    for a, b in ((wide[3:40, 5:45], wide[::2, 1:80][:, ::2].T[:, :32].T), (repeated, wide[10:50, 7:8])):
        k = min(a.shape[1], b.shape[0])
        made = run_eager(MATMUL, (a[:, :k], b[:k]), {})
        alone = run_eager(MATMUL, (a[:, :k].copy(), b[:k].copy()), {})
        np.testing.assert_array_equal(np.asarray(made).view(np.int16), np.asarray(alone).view(np.int16))


@on_such_a_cpu
def test_what_does_not_fit_is_left_to_numpy(rng: Any) -> None:
    a, b = rng.standard_normal((3, 4)).astype(BF16), rng.standard_normal((5, 2)).astype(BF16)
    assert products.product(a, b) is None
    assert products.product(a, rng.standard_normal((4, 2)).astype(np.float32)) is None
    made = products.product(np.empty((2, 3, 0), BF16), np.empty((2, 0, 4), BF16))
    assert made is not None
    assert not made.astype(np.float32).any()


def test_others_widen(rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CPUs that do not, f32 copies are multiplied, eager and compiled."""
    monkeypatch.setattr(native_backend, "multiplies_bf16", lambda: False)
    monkeypatch.setattr(products, "_forms", lambda: None)
    a, b = (rng.standard_normal((40, 40)).astype(BF16) for _ in "ab")
    assert products.product(a, b) is None
    graph = product_graph((), 40, 40, 40, "b")
    (program,), _ = native_backend.generate([graph], "product")
    (call,) = [step for step in program.steps if type(step).__name__ == "RoutineCall"]
    assert {view.layout.dtype.short for view in (*call.operands, call.result)} == {"f32"}


def test_gradients_are_float64s(rng: Any) -> None:
    """Of a layer, with its bias; on any CPU."""
    arrays = [rng.standard_normal(shape) for shape in ((37, 48), (65, 48), (65,))]

    def outcome(function: Any, dtype: Any) -> list[Any]:
        leaves = [dc.tensor(x).to(dc.bfloat16).to(dtype).requires_grad_() for x in arrays]
        out = function(*leaves)
        out.backward(dc.ones_like(out))
        return [x.detach().double().numpy() for x in (out, *(leaf.grad for leaf in leaves))]

    linear = dc.nn.functional.linear
    found, eager = outcome(dc.compile(linear, fullgraph=True), dc.bfloat16), outcome(linear, dc.bfloat16)
    for ours, plain, exact in zip(found, eager, outcome(linear, dc.float64), strict=True):
        np.testing.assert_array_equal(ours, plain)
        np.testing.assert_allclose(ours, exact, rtol=2e-2, atol=0.1)


def test_compiled_code_under_autocast_has_eagers_bits() -> None:
    dc.manual_seed(0)
    model = dc.nn.Sequential(dc.nn.Linear(48, 96), dc.nn.GELU(), dc.nn.Linear(96, 16))
    x = dc.randn(24, 48)

    def step(run: Any) -> list[bytes]:
        for parameter in model.parameters():
            parameter.grad = None
        with dc.autocast("cpu", dtype=dc.bfloat16):
            out = run(x)
        out.float().square().mean().backward()
        return [value.detach().float().numpy().tobytes() for value in (out, *(p.grad for p in model.parameters()))]

    assert step(model) == step(dc.compile(model))
