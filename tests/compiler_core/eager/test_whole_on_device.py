"""Composites computed whole on a CUDA device, by kernels that the stand-in runs: the composition's numbers, and what is
promised of them: they are used from the first call on or never, they decline what they do not take, they compile."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.config import config
from compiler_core.eager.device import batch_norm as device_batch_norm
from compiler_core.eager.device import checks as device_checks
from compiler_core.eager.device import kernels as device_kernels
from compiler_core.eager.device import pointwise as device_pointwise
from compiler_core.eager.device import proof as device_proof
from compiler_core.eager.device import rows as device_rows
from compiler_core.eager.device import rules as device_rules
from compiler_core.eager.device import several as device_several
from compiler_core.errors import DeviceError, DTypeError, IndexError_
from compiler_core.log import DistCompileWarning
from compiler_core.ops import functional as F
from compiler_core.ops.whole import COMPOSITES
from compiler_core.runtime.cuda import driver
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.tape import WholeNode
from compiler_core.tensor.making.creation import tensor
from compiler_core.tensor.tensor import Tensor
from tests.compiler_core.eager.test_whole import CASES, Case, close, drawn, leaves, weighted, whole
from tests.fake_cupy import on_fake_device

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
DEFINED = {*device_proof.SAMPLES, *(name for name, one in COMPOSITES.items() if one.pointwise or one.rows)}


def is_composed(case: Case) -> bool:
    """Whether the definitions decline f32 and f64: classes before other dims, images without a batch, sizes of 0,
    composites without one."""
    sizes = [n for operand in case.operands[:2] if isinstance(operand, tuple) for n in operand]
    is_wide = case.name == "cross_entropy" and len(case.operands[0]) > 2
    is_wide |= case.name == "maxima_of_windows" and len(case.operands[0]) != len(case.attrs["kernel"]) + 2
    return case.name not in DEFINED - {"with_number", "convolution"} or 0 in sizes or is_wide


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device() as module:
        yield module


def there(operands: list[Tensor | None]) -> list[Tensor | None]:
    """The operands on the device, as leaves, but keys of draws."""
    made: list[Tensor | None] = []
    for x in operands:
        stays = x is None or x.dtype is dt.uint64
        made.append(x if stays or x is None else x.detach().to("cuda:1").requires_grad_(x.requires_grad))
    return made


def is_whole(out: Tensor) -> bool:
    return isinstance(out._node, WholeNode)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_the_compositions(case: Case, dtype: Any) -> None:
    theirs = drawn(case, dtype)
    ours = there(theirs)
    out, expected = whole(case, ours), COMPOSITES[case.name].compose(*theirs, **case.attrs)
    assert (tuple(out.shape), out.dtype, str(out.device)) == (tuple(expected.shape), expected.dtype, "cuda:1")
    assert is_whole(out) != is_composed(case)
    close(out.cpu(), expected, dtype)
    for a, b in zip(grad(weighted(out.cpu()), leaves(ours)), grad(weighted(expected), leaves(theirs)), strict=True):
        assert a is not None
        close(a.cpu(), b, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted(DEFINED))
def test_each_dtype_is_proved(name: str, dtype: Any) -> None:
    operands, attrs = device_proof.operands_of(name, dtype)
    arrays = [device_proof._there(a, 0) for a in operands]
    found = COMPOSITES[name].on_device()
    assert found is not None
    narrow = {"linear", "lowered_linear", "affine", "lowered_affine"}
    wide = {"with_number", "lowered_linear", "lowered_affine", "widened_sum", "widened_product", "average"}
    declined = name in (narrow if dtype.itemsize == 2 else wide) or "convolution" in name  # there is no cuDNN
    assert (found.forward(*arrays, **attrs) is None) == declined


@pytest.mark.parametrize("name", ["layer_norm", "softmax", "batch_norm", "cross_entropy"])
def test_a_gradient_of_the_gradient_is_the_compositions(name: str) -> None:
    case, results = next(c for c in CASES if c.name == name and not is_composed(c)), []
    for place in (list, there):
        operands = place(drawn(case, dt.float64))
        first = grad(weighted(whole(case, operands).cpu()), leaves(operands), create_graph=True)
        total = sum((weighted(F.sin(g.cpu())) for g in first if g is not None), weighted(leaves(operands)[0].cpu()))
        results.append(grad(total, leaves(operands), allow_unused=True, materialize_grads=True))
    for a, b in zip(*results, strict=True):
        close(a.cpu(), b.cpu(), dt.float64)


def test_infinities_and_nan_are_the_compositions() -> None:
    x = tensor([[np.inf, 0.0], [-np.inf, -np.inf], [np.nan, 1.0], [-np.inf, 1.0]], dtype=dt.float32)
    for name, attrs in (("softmax", {"dim": 1}), ("log_softmax", {"dim": 1}), ("gelu", {}), ("relu", {}), ("silu", {})):
        expected = COMPOSITES[name].compose(x, **attrs)
        found = whole(Case(name, (), attrs), [x.to("cuda")]).cpu()
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6, err_msg=name)


def test_with_given_statistics_an_infinite_gradient_stays_where_it_is() -> None:
    x = tensor(np.ones((4, 1), np.float32), device="cuda").requires_grad_()
    one = tensor(np.ones(1, np.float32), device="cuda")
    out = whole(Case("batch_norm", (), {"eps": 0.0}), [x, one, one, None, None])
    slope = tensor(np.array([[1], [np.inf], [2], [3]], np.float32), device="cuda")
    out.backward(slope)
    assert is_whole(out)
    assert x.grad is not None
    assert x.grad.tolist() == slope.tolist()


def test_dropout_draws_the_cpus_bits() -> None:
    case = next(c for c in CASES if c.name == "dropout")
    for dtype in (dt.float32, dt.float64, dt.bfloat16):
        x = tensor(np.linspace(1, 2, 360).reshape(40, 9), dtype=dtype)
        key = case.operands[1]
        expected = COMPOSITES["dropout"].compose(x, key, **case.attrs)
        found = Tensor.__whole__(COMPOSITES["dropout"], (x.to("cuda"), key), case.attrs)
        assert found is not None
        assert found.cpu().tolist() == expected.tolist()


def test_rows_that_are_many_or_long() -> None:
    """Sums over several blocks of rows; rows of parts of a warp, of several and of a block, not as many as fill it."""
    rng = np.random.default_rng(0)
    lanes = [device_kernels.lanes_of(n) for n in (5, 49, 300, 700, 1500, 9000)]
    assert lanes == [4, 8, 32, 64, 128, 256]
    for shape in ((300, 5), (70, 49), (7, 300), (3, 700), (2, 1500), (9, 31), (1, 65)):
        case = Case("layer_norm", (shape, shape[1:], shape[1:]), {"dims": 1, "eps": 1e-5})
        theirs = [tensor(rng.normal(size=s)).requires_grad_() for s in case.operands]
        ours = there(theirs)
        out = whole(case, ours)
        expected = COMPOSITES["layer_norm"].compose(*theirs, **case.attrs)
        close(out.cpu(), expected, dt.float64)
        for a, b in zip(grad(weighted(out.cpu()), leaves(ours)), grad(weighted(expected), theirs), strict=True):
            close(a.cpu(), b, dt.float64)


def test_more_rows_than_a_launch_has_blocks_are_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, classes = tensor(np.ones((4, 3)), device="cuda").requires_grad_(), tensor([0, 1, 2, 0], device="cuda")
    calls = (
        lambda: F.layer_norm(x, (3,)),
        lambda: F.rms_norm(x, (3,)),
        lambda: F.softmax(x, 1),
        lambda: F.log_softmax(x, -1),
        lambda: F.cross_entropy(x, classes),
    )
    assert all(is_whole(call()) for call in calls)
    for module in (device_rules, device_rows):
        monkeypatch.setattr(module, "MOST_ROWS", 4)
    assert not any(is_whole(call()) for call in calls)
    assert is_whole(F.softmax(x, 0))


def test_channels_of_many_elements_are_added_up_by_several_blocks() -> None:
    case = Case("batch_norm", ((8, 3, 9, 75), None, None, (3,), (3,)), {"eps": 1e-5})
    sizes = device_batch_norm._sizes((8, 3, 9, 75), False, 2)
    assert sizes is not None
    assert sizes.sums[0] == (3, 5)
    theirs = drawn(case, dt.float64)
    ours = there(theirs)
    out, expected = whole(case, ours), COMPOSITES["batch_norm"].compose(*theirs, **case.attrs)
    assert is_whole(out)
    close(out.cpu(), expected, dt.float64)
    for a, b in zip(grad(weighted(out.cpu()), leaves(ours)), grad(weighted(expected), leaves(theirs)), strict=True):
        np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=1e-10, atol=1e-10)
    x = np.asarray(theirs[0].detach().numpy())
    moved = device_several.moved_statistics(cuda.put(x, 0), *(cuda.put(np.ones(3), 0) for _ in "12"), 0.25)
    assert moved is not None
    for made, right in zip(moved, (x.mean((0, 2, 3)), x.var((0, 2, 3), ddof=1))):
        np.testing.assert_allclose(cuda.fetch(made), 0.75 + 0.25 * right)


def test_operands_of_other_kinds_are_composed_or_refused() -> None:
    x = tensor(np.ones((2, 3), np.float32), device="cuda").requires_grad_()
    other = tensor(np.ones(3), device="cuda")
    assert not is_whole(F.linear(x.to(dt.bfloat16), x.detach().to(dt.bfloat16)))
    with pytest.raises(DTypeError, match="mixed dtype"):
        F.layer_norm(x, (3,), other)
    with pytest.raises(DeviceError, match="at least two devices"):
        F.layer_norm(x, (3,), tensor(np.ones(3, np.float32)))
    with pytest.raises(DeviceError, match="at least two devices"):
        F.layer_norm(x, (3,), tensor(np.ones(3, np.float32), device="cuda:1"))


def test_a_target_out_of_range_is_an_error() -> None:
    with pytest.raises(IndexError_, match="index 4 is out of range"):
        F.cross_entropy(tensor(np.ones((3, 4), np.float32), device="cuda"), tensor([0, 4, 1], device="cuda"))


@pytest.mark.parametrize(("wrong", "said"), [("* 0.51f)", "other numbers"), ("nothing C", "do not compile")])
def test_a_kernel_that_is_wrong_is_not_used(wrong: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = device_pointwise.source(COMPOSITES["gelu"], DTYPES[0])
    made = right.replace("* 0.5f)", wrong)
    assert made != right
    monkeypatch.setattr(device_pointwise, "source", lambda composite, dtype: made)
    monkeypatch.setattr(device_kernels, "_modules", {})
    monkeypatch.setattr(device_proof, "_proved", {})
    x = tensor(np.ones(3, np.float32), device="cuda").requires_grad_()
    with pytest.warns(DistCompileWarning, match=said):
        out = F.gelu(x)
    assert not is_whole(out)
    assert out.tolist() == pytest.approx([0.8413447] * 3)


def test_the_kernels_compile_for_devices() -> None:
    """By NVRTC, as CuPy compiles them; it needs no device."""
    nvrtc = nvrtc_library()
    pointwise = [one for one in COMPOSITES.values() if one.pointwise]
    texts = [device_kernels.source(dtype) for dtype in DTYPES[1:3]]
    for text in (*texts, *(device_pointwise.source(one, t) for one in pointwise for t in DTYPES)):
        program = ctypes.c_void_p()
        assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
        options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++17")
        status = nvrtc.nvrtcCompileProgram(program, 2, options)
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        said = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, said)
        assert (status, said.value.decode()) == (0, "")


def nvrtc_library() -> Any:
    names = [driver._found_by_pathfinder("nvrtc"), "libnvrtc.so.13", "libnvrtc.so.12"]
    for name in filter(None, names):
        with suppress(OSError):
            return ctypes.CDLL(name)
    pytest.skip("no NVRTC")


def test_definitions_are_for_devices_alone() -> None:
    assert device_rules is not None
    for one in COMPOSITES.values():
        one.on_device()
    assert {name for name, one in COMPOSITES.items() if one.there is not None} == DEFINED
    assert cuda.is_loaded()


# ---- indices are tested without waiting


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Tests of indices, which run when asked to: as on a device that has other work first."""
    ones = tensor(np.ones(3, np.float32), device="cuda")
    F.index_select(ones, 0, tensor([0], device="cuda"))  # the kernel is tried out
    waiting: list[Any] = []
    launch = device_checks._Words.launch

    def later(self: Any, word: int, *args: Any) -> None:
        self.values[word] = 0
        waiting.append(lambda: launch(self, word, *args))

    monkeypatch.setattr(device_checks._Words, "launch", later)
    yield waiting
    for one in waiting:
        one()
    with suppress(IndexError_):
        device_checks.look()


def test_a_wrong_index_is_told_once_it_is_known(held: list[Any]) -> None:
    x = tensor(np.ones((3, 2), np.float32), device="cuda")
    F.index_select(x, 0, tensor([2, 0], device="cuda"))
    F.index_select(x, 0, tensor([1, 7, -9], device="cuda"))
    x.cpu()  # nothing is known yet
    for one in held:
        one()
    held.clear()
    with pytest.raises(IndexError_, match=r"index 7 is out of range(.|\n)*test_whole_on_device.py:\d+ \(CUDA_LAUNCH"):
        x.cpu()
    x.cpu()


def test_with_blocking_launches_the_call_itself_tells() -> None:
    with config.patch(cuda_blocking=True), pytest.raises(IndexError_, match="index 3 is out of range") as error:
        F.index_select(tensor(np.ones(3), device="cuda"), 0, tensor([3], dtype=dt.int32, device="cuda"))
    assert "CUDA_LAUNCH_BLOCKING" not in str(error.value)


def test_many_indices_are_tested_by_several_blocks() -> None:
    x, many = tensor(np.ones(3), device="cuda"), np.ones(5 * device_checks.FEW + 3, np.int64)
    F.index_select(x, 0, tensor(many, device="cuda"))
    many[[-1, 4 * device_checks.FEW, -2]] = -7, 8, 9
    with pytest.raises(IndexError_, match="index 8 is out of range"):
        F.index_select(x, 0, tensor(many, device="cuda"))


def test_words_are_used_again() -> None:
    x = tensor(np.ones(3), device="cuda")
    index = tensor([1, 2], device="cuda")
    for _ in range(3):
        F.index_select(x, 0, index)
    assert len(device_checks.words_here().free) == device_checks.WORDS


def test_without_the_kernel_each_index_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_checks._Words, "try_out", lambda self: False)
    monkeypatch.setattr(device_checks, "_words", {})
    with pytest.raises(IndexError_, match="index 3 is out of range"):
        F.index_select(tensor(np.ones(3), device="cuda"), 0, tensor([3], device="cuda"))
    with pytest.raises(IndexError_, match="index 4 is out of range"):
        F.cross_entropy(tensor(np.ones((1, 4), np.float32), device="cuda"), tensor([4], device="cuda"))


# ---- what a step computes beside its graph


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_running_statistics_and_norms(dtype: Any, recwarn: pytest.WarningsRecorder) -> None:
    rng = np.random.default_rng(1)
    wide = np.float64 if dtype == np.float64 else np.float32
    x, more = rng.normal(size=(5, 3, 4, 6)).astype(dtype), rng.normal(size=(300, 7)).astype(dtype)
    mean, variance = rng.normal(size=3).astype(wide), rng.normal(size=3).astype(wide) ** 2
    moved = device_several.moved_statistics(*(cuda.put(a, 1) for a in (x, mean, variance)), 0.1)
    assert moved is not None
    full = x.astype(np.float64)
    for made, old, new in zip(moved, (mean, variance), (full.mean((0, 2, 3)), full.var((0, 2, 3), ddof=1))):
        np.testing.assert_allclose(cuda.fetch(made), 0.9 * old + 0.1 * new, rtol=1e-4, atol=1e-6)
    total = device_several.norm([cuda.put(x, 1), cuda.put(more, 1)])
    assert total is not None
    assert total.dtype == wide
    expected = np.sqrt((full**2).sum() + (more.astype(np.float64) ** 2).sum())
    np.testing.assert_allclose(float(cuda.fetch(total)), expected, rtol=1e-5)
    assert not recwarn.list


def test_what_there_is_no_kernel_for_is_left_to_the_caller() -> None:
    x, y, double = (cuda.put(np.ones(3, t), n) for t, n in ((np.float32, 0), (np.float32, 1), (np.float64, 0)))
    whole, empty = cuda.put(np.arange(3), 0), cuda.put(np.ones(0, np.float32), 0)
    for others in ([y], [double], [whole], [empty], [np.ones(3, np.float32)]):
        assert device_several.norm([x, *others]) is None
    assert device_several.norm([]) is None
    assert device_several.moved_statistics(x.reshape(1, 3), double, double, 0.1) is None


def test_many_arrays_are_scaled_at_once_in_place() -> None:
    rng, factor = np.random.default_rng(2), cuda.put(np.full((), 0.3, np.float32), 1)
    given = [rng.normal(size=s).astype(np.float32) for s in ((3,), (2 * device_several.CHUNK,), (0,), (40, 9), ())]
    there = [cuda.put(array, 1) for array in given]
    assert device_several.scale(there, factor)
    for array, made in zip(given, there):
        np.testing.assert_array_equal(cuda.fetch(made), array * np.float32(0.3))
    many = [cuda.put(np.full(k % 3 + 1, k, np.float32), 1) for k in range(2 * device_several.MANY + 5)]
    assert float(cuda.fetch(device_several.norm(many))) == pytest.approx(
        sum((k % 3 + 1) * k**2 for k in range(261)) ** 0.5
    )
    assert device_several.scale(many, factor)
    assert all((cuda.fetch(array) == np.float32(k) * np.float32(0.3)).all() for k, array in enumerate(many))
    before = cuda.fetch(there[3])
    for others in ([there[3].T], [cuda.put(np.ones(3), 1)], [cuda.put(np.ones(3, np.float32), 0)], [given[0]]):
        assert not device_several.scale([there[3], *others], factor)
    np.testing.assert_array_equal(cuda.fetch(there[3]), before)
