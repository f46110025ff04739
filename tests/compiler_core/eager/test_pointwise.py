"""Composites that are pointwise: loops and kernels that the compiler makes of them, against their compositions.

Values, gradients and gradients of gradients at corners, on both devices; a new one is one block and is computed by a
kernel; a start that finds the libraries lowers nothing, and what decides them is in their key.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distcompile as dc
from compiler_core import dtype as dt
from compiler_core.codegen.pointwise import cpp_text
from compiler_core.eager import native, pointwise
from compiler_core.errors import LoweringError, OpDefinitionError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.composites.arithmetic import mul
from compiler_core.ops.special import elementary
from compiler_core.ops.whole import COMPOSITES, Composite, whole
from compiler_core.runtime.toolchain import find_toolchain
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.tape import WholeNode
from compiler_core.tensor.making.creation import tensor
from compiler_core.tensor.tensor import Tensor
from tests.fake_cupy import on_fake_device

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="no compiler")

assert elementary is not None  # declares composites
NAMES = sorted(name for name, one in COMPOSITES.items() if one.pointwise)
SMALL = [0.0, 1e-40, 1e-30, 1e-3, 0.3, 0.5, 0.9, 0.9999, 1.0, 1.5, 3.0, 6.0, 11.0, 20.0, 40.5, 90.0, 1e4, 3e38]
CORNERS = np.array([*SMALL, *(-x for x in SMALL), np.inf, -np.inf, np.nan])
NARROW = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
SLACK = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def numbers_of(composite: Composite) -> dict[str, float]:
    return {name: 0.7 + k for k, name in enumerate(composite.numbers)}


def by_kernel(name: str, *xs: Tensor) -> Tensor:
    """The composite, which must be computed whole."""
    made = Tensor.__whole__(COMPOSITES[name], xs, numbers_of(COMPOSITES[name]))
    assert made is not None
    return made


def composed(name: str, *xs: Tensor, rounded: Any = np.float64) -> Tensor:
    """Its composition, with numbers as an operand of dtype `rounded` meets them."""
    numbers = {name: float(np.dtype(rounded).type(v)) for name, v in numbers_of(COMPOSITES[name]).items()}
    out = COMPOSITES[name].compose(*xs, **numbers)
    assert isinstance(out, Tensor)
    return out


def corners(name: str, dtype: Any, place: str = "cpu") -> list[Tensor]:
    """Its operands: of one all corners, of two the one beside each of the other; of three some of them so."""
    more = np.random.default_rng(0).normal(size=37)
    with np.errstate(over="ignore"):
        array = np.concatenate([CORNERS, more]).astype(dtype)
    count = COMPOSITES[name].operands
    arrays = np.meshgrid(*[array[:: 1 if count < 3 else 4]] * count)
    return [tensor(one.ravel()).to(place).requires_grad_() for one in arrays]


def close(made: Any, right: Any, dtype: Any) -> None:
    a, b = (np.asarray(t.detach().cpu().to(dt.float64).numpy()) for t in (made, right))
    slack = SLACK[np.dtype(dtype).name]
    np.testing.assert_allclose(a, b, rtol=slack, atol=slack * 0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_corners_are_the_compositions(name: str, dtype: Any) -> None:
    xs, ys = corners(name, dtype), corners(name, dtype)
    slopes = np.cos(np.arange(xs[0].numel())).astype(dtype)
    out, expected = by_kernel(name, *xs), composed(name, *ys)
    assert isinstance(out._node, WholeNode)
    close(out, expected, dtype)
    for g in (slopes, np.full_like(slopes, np.inf), np.zeros_like(slopes)):
        made, right = (grad(y, x, tensor(g), retain_graph=True) for y, x in ((out, xs), (expected, ys)))
        for a, b in zip(made, right, strict=True):
            close(a, b, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_gradients_are_the_compositions(name: str) -> None:
    found = []
    for function in (by_kernel, composed):
        xs = corners(name, np.float64)
        first = grad(F.sum(function(name, *xs)), xs, create_graph=True)
        total = sum((F.sum(one * 2.0 + x) for one, x in zip(first, xs) if one is not None), tensor(0.0))
        found.append(grad(total, xs))
    for a, b in zip(*found, strict=True):
        close(a, b, np.float64)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64), *NARROW], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_on_a_device_corners_are_the_compositions(name: str, dtype: Any) -> None:
    """16-bit floats are computed in f32, and rounded once."""
    wide = np.float64 if dtype == np.float64 else np.float32
    with on_fake_device():
        xs = corners(name, dtype, "cuda")
        ys = [tensor(x.detach().cpu().numpy().astype(wide)).requires_grad_() for x in xs]
        out, expected = by_kernel(name, *xs), composed(name, *ys, rounded=dtype)
        assert isinstance(out._node, WholeNode)
        close(out, expected.to(out.dtype), dtype)
        slopes = np.cos(np.arange(xs[0].numel())).astype(dtype)
        made = grad(out, xs, tensor(slopes).to("cuda"))
        right = grad(expected, ys, tensor(slopes.astype(wide)))
        for a, b in zip(made, right, strict=True):
            assert b is not None
            close(a, b.to(out.dtype), dtype)


@pytest.mark.parametrize("name", NAMES)
def test_operands_are_saved(name: str) -> None:
    """As in torch: the operands, or the result of one that reads that alone."""
    packed: list[Any] = []
    xs = corners(name, np.float32)
    with dc.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        by_kernel(name, *[x * 1.0 for x in xs])
    assert len(packed) == (1 if COMPOSITES[name].from_result else len(xs))


# ---- several operands

SEVERAL = [name for name in NAMES if COMPOSITES[name].operands > 1]


def drawn(shape: tuple[int, ...], place: str, seed: int = 0) -> Tensor:
    return tensor(np.random.default_rng(seed).uniform(0.1, 0.9, shape)).to(place)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("name", SEVERAL)
def test_what_is_wanted_is_computed(name: str, place: str) -> None:
    """Of a cotangent of its own for each element, and of one for all, in sizes that are pieces of 16 bytes, or not."""
    choices = [*product((True, False), repeat=COMPOSITES[name].operands)][:-1]
    with on_fake_device():
        for shape, wanted in product(((3, 7), (5, 1030)), choices):
            xs = [drawn(shape, place, k).requires_grad_(want) for k, want in enumerate(wanted)]
            for weight in (drawn(shape, place, 9), tensor(0.3, dtype=dt.float64).to(place)):
                out, expected = by_kernel(name, *xs), composed(name, *xs)
                asked = [x for x in xs if x.requires_grad]
                made, right = (grad(F.sum(F.mul(one, weight)), asked) for one in (out, expected))
                for a, b in zip(made, right, strict=True):
                    close(a, b, np.float64)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_operands_may_lie_in_other_orders(place: str) -> None:
    with on_fake_device():
        x, y = drawn((2, 6, 5, 3), place), drawn((2, 6, 5, 3), place, 1)
        last = x.to(memory_format=dc.channels_last)
        pairs = [(last, y), (x, y.to(memory_format=dc.channels_last)), (last, y.to(memory_format=dc.channels_last))]
        pairs += [(x.transpose(1, 3), y.transpose(1, 3)), (x[:, ::2], y[:, 1::2]), (x[:, :1].expand(2, 6, 5, 3), y)]
        for a, b in pairs:
            a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
            out, expected = by_kernel("huber", a, b), composed("huber", a, b)
            assert out.stride() == expected.stride()
            close(out, expected, np.float64)
            for made, right in zip(grad(F.sum(out), [a, b]), grad(F.sum(expected), [a, b]), strict=True):
                close(made, right, np.float64)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_operands_of_other_shapes_or_dtypes_are_composed(place: str) -> None:
    with on_fake_device():
        x = drawn((3, 4), place).requires_grad_()
        others = [drawn((4,), place), drawn((3, 4), place).to(dt.float32), drawn((3, 4), place).to(dt.int64)]
        assert Tensor.__whole__(COMPOSITES["l1"], (x,), {}) is None
        for y in others:
            assert Tensor.__whole__(COMPOSITES["l1"], (x, y), {}) is None
            expected = abs(x.detach().cpu().numpy() - y.cpu().numpy())
            np.testing.assert_allclose(F.l1_loss(x, y, "none").detach().cpu().numpy(), expected)


def test_a_batch_is_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each operand is one of each example; else the composition's ops run by their rules."""
    x, y, one, seen = drawn((4, 3), "cpu"), drawn((4, 3), "cpu", 1), COMPOSITES["huber"], list[Any]()
    by_kernel("huber", x, y)  # it is made
    forward = one.forward
    monkeypatch.setattr(one, "forward", lambda *xs, **given: seen.append(xs[0].shape) or forward(*xs, **given))
    slopes = dc.func.grad(F.huber_loss, argnums=(0, 1))
    for dims, shapes in (((0, 0), [(4, 3)]), ((0, None), []), ((None, 0), [])):
        seen.clear()
        found = dc.func.vmap(slopes, in_dims=dims)(x, y)
        assert seen == shapes
        for place, got in enumerate(found):
            rows = [slopes(*(a if d is None else a[k] for a, d in zip((x, y), dims)))[place] for k in range(4)]
            close(got, dc.stack(rows), np.float64)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_losses_are_one_node_each(place: str) -> None:
    """Behind it stand the mean, and nothing else."""
    with on_fake_device():
        x, y = drawn((3, 4), place).requires_grad_(), drawn((3, 4), place, 1)
        losses = [F.mse_loss, F.l1_loss, F.huber_loss, F.smooth_l1_loss, F.kl_div, F.binary_cross_entropy_with_logits]
        for loss in losses:
            out = loss(x, y, reduction="none")
            assert isinstance(out._node, WholeNode), loss.__name__
            assert out._node.edges[0] is x, loss.__name__


# ---- a new one is one block

CALLS: list[type] = []


def _cubed(x: Any, *, factor: float) -> Any:
    CALLS.append(type(x))
    return mul(prims.mul(prims.mul(x, x), x), factor)


def _summed(x: Any) -> Any:
    return F.add(x, F.sum(x))


def _turned(x: Any) -> Any:
    return prims.mul(x, F.flip(x, (0,)))


def _compared(x: Any) -> Any:
    return prims.gt(x, prims.full_like(x, 0.0))


@pytest.fixture
def declare() -> Iterator[Any]:
    """Declares a composite, which goes with the test."""
    before = set(COMPOSITES)
    yield lambda compose: whole(lies="alike", pointwise=True)(compose)
    for name in set(COMPOSITES) - before:
        del COMPOSITES[name]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_new_one_is_computed_by_a_kernel(place: str, declare: Any) -> None:
    function = declare(_cubed)
    with on_fake_device():
        for dtype in (dt.float32, dt.float64):
            x = tensor([1.0, -2.0, 3.0], dtype=dtype).to(place).requires_grad_()
            function(x, factor=1.0)  # it is made, and on a device proved against the composition
            CALLS.clear()
            for factor in (0.5, 2.0):
                out = function(x, factor=factor)
                assert isinstance(out._node, WholeNode)
                assert out.tolist() == [factor, -8.0 * factor, 27.0 * factor]
                (slope,) = grad(F.sum(out), [x])
                assert slope is not None
                assert slope.tolist() == [3.0 * factor, 12.0 * factor, 27.0 * factor]
            assert CALLS == [], "the composition was called"


def _turned_other(x: Any, y: Any) -> Any:
    return prims.mul(x, F.flip(y, (0,)))


def _halved(x: Any, y: Any) -> Any:
    return F.cat([x, y])


@pytest.mark.parametrize("compose", [_summed, _turned, _compared, _turned_other, _halved])
def test_what_is_not_pointwise_is_refused(compose: Any, declare: Any) -> None:
    function = declare(compose)
    with pytest.raises(LoweringError, match=f"{compose.__name__[1:]}' is declared `pointwise`"):
        function(*[tensor([1.0, 2.0])] * compose.__code__.co_argcount)


def test_what_depends_on_variables_around_it_is_refused(declare: Any) -> None:
    factor = 2.0
    with pytest.raises(OpDefinitionError, match=r"depends on variables(.|\n)*factor"):
        declare(lambda x: mul(x, factor))


def test_other_dtypes_are_composed(declare: Any) -> None:
    x = tensor([1.0, 2.0], dtype=dt.bfloat16).requires_grad_()
    assert declare(_cubed)(x, factor=1.0)._node.op.name == "with_number"


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_numbers_that_are_tensors_are_composed(place: str, declare: Any) -> None:
    function = declare(_cubed)
    with on_fake_device():
        x, factor = (tensor([v], dtype=dt.float64).to(place).requires_grad_() for v in (2.0, 3.0))
        out = function(x, factor=factor)
        assert [g.tolist() for g in grad(F.sum(out), [x, factor]) if g is not None] == [[36.0], [8.0]]


# ---- what is kept

_WARM = """
import sys
import distcompile as dc
x = dc.ones(3, requires_grad=True)
dc.nn.functional.gelu(x).sum().backward()
dc.nn.functional.layer_norm(x, (3,)).sum().backward()
print(*(f"compiler_core.{m}" in sys.modules for m in ("codegen.pointwise", "codegen.rows", "lowering.define")))
"""


def test_a_start_that_finds_it_lowers_nothing() -> None:
    for _ in range(2):
        made = subprocess.run([sys.executable, "-c", _WARM], capture_output=True, text=True, timeout=300, check=True)
    assert made.stdout.split() == ["False"] * 3


def test_what_makes_texts_is_in_the_key() -> None:
    """Every file of ours that runs while a text is made."""
    seen = set()
    sys.setprofile(lambda frame, event, arg: seen.add(frame.f_code.co_filename))
    try:
        for name in NAMES:
            cpp_text(pointwise.told(COMPOSITES[name]), "")
    finally:
        sys.setprofile(None)
    core = Path(pointwise.__file__).parent.parent
    ours = {file for file in seen if Path(file).is_relative_to(core)} - {pointwise.__file__}
    assert len(ours) > 20
    assert ours - {entry.path for entry in pointwise.sources()} == set()


@pytest.mark.parametrize("name", NAMES)
def test_the_key_is_the_same_in_each_process(name: str) -> None:
    """No address stands in it."""
    assert " at 0x" not in pointwise.identity(COMPOSITES[name])["composition"]


def test_on_a_device_relu_keeps_what_it_knows() -> None:
    with on_fake_device():
        there = COMPOSITES["relu"].on_device()
    assert there is not None
    assert there.is_piecewise
    assert there.reads_out
    assert not there.reads


CLAMPS = ["hardsigmoid", "hardswish", "hardtanh", "huber", "relu"]


def test_loops_of_clamps_are_vectorized(tmp_path: Path) -> None:
    """g++ makes branches of two maxima in a row unless they are written so that it does not: 30 times the time."""
    toolchain = find_toolchain()
    if "g++" not in Path(toolchain.path).resolve().name:
        pytest.skip("g++ tells what it vectorized")
    for name in CLAMPS:
        text = cpp_text(pointwise.told(COMPOSITES[name]), native.text_of("arrays.h"))
        (tmp_path / f"{name}.cpp").write_text(text)
        flags = [*toolchain.flags, "-O3", "-fopt-info-vec-optimized"]  # tests compile with -O0
        command = [toolchain.path, *flags, "-c", f"{name}.cpp", "-o", "x.o"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
        told = {int(line.split(":")[1]) for line in done.stderr.splitlines() if "vectorized" in line}
        lines = text.splitlines()
        loops = [n for n, line in enumerate(lines) if line.startswith("#pragma omp simd")]
        assert len(loops) == 4 if COMPOSITES[name].operands == 1 else 8
        for begin in loops:
            body = range(begin + 1, lines.index("  }", begin) + 2)
            assert told & set(body), f"{name}, line {begin + 1}:\n{done.stderr}"
