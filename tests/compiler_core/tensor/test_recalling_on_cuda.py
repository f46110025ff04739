"""A call of tensors of a CUDA device that is remembered gives what it would give anew, also under autocast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.ops.remembered import Plan
from compiler_core.runtime.cuda import cudnn
from compiler_core.runtime.cuda.again import library
from compiler_core.tensor import recalling
from compiler_core.tensor.autograd import tape
from compiler_core.tensor.autograd.watching import watch
from distcompile.nn import functional as F
from tests.compiler_core.tensor.test_recalling import CALLS, operands
from tests.fake_cuda import FakeCuda
from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture
from tests.fake_cuda.dnn import add_cudnn
from tests.fake_cupy import on_fake_device

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning")]


def _attended(parts: Any) -> Any:
    q, k, v = parts[0], parts[1], parts[2]
    return ((q * 0.5) @ k.transpose(-2, -1) + q @ k.mT).softmax(-1) @ v


MORE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "linear": (lambda t, x, w, b: F.linear(x, w, b), ((4, 8), (16, 8), (16,))),
    "linear alone": (lambda t, x, w: F.linear(x, w), ((2, 4, 8), (8, 8))),
    "linear of odd sizes": (lambda t, x, w, b: F.linear(x, w, b), ((4, 6), (5, 6), (5,))),
    "addmm": (lambda t, b, x, w: t.addmm(b, x, w), ((16,), (4, 8), (8, 16))),
    "sum of halves": (lambda t, x, y: x.bfloat16() + y.bfloat16(), ((4, 6), (4, 6))),
    "sum of a half and a whole": (lambda t, x, y: x.bfloat16() + y, ((4, 6), (4, 6))),
    "halves and numbers": (lambda t, x: (x.bfloat16() * 2 - 0.5) / 3, ((4, 6),)),
    "a row": (lambda t, x, y: x * y, ((4, 6), (6,))),
    "numbers first": (lambda t, x: 0.5 * x.bfloat16() + (1 - x) * 2, ((4, 6),)),
    "compared": (lambda t, x, y: t.where(x != y, x, -y) * (x > 0.25), ((4, 6), (4, 6))),
    "padded": (lambda t, x: F.pad(F.pad(x, (0, 0)), (1, 2, 0, 1)), ((4, 6),)),
    "cubed": (lambda t, x: t.pow(x.bfloat16(), 3) + x**2, ((4, 6),)),
    "queries, keys and values of one product": (
        lambda t, x: _attended(x.view(2, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)),
        ((2, 4, 24),),
    ),
    "a view of another order": (lambda t, x: t.relu(x.transpose(0, 1).contiguous().transpose(0, 1)), ((4, 6),)),
    "layers": (
        lambda t, x, w, b, v: F.linear(F.gelu(F.linear(F.layer_norm(x, (8,)), w, b)), v),
        ((4, 8), (16, 8), (16,), (8, 16)),
    ),
}
IMAGES: dict[str, Callable[..., Any]] = {
    "averages of windows": lambda t, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "maxima of windows": lambda t, x: F.max_pool2d(x, 2),
    "means of halves": lambda t, x: F.adaptive_avg_pool2d(x.bfloat16(), 1).flatten(1),
    "rolled": lambda t, x: t.roll(x, (-2, 1), (2, 3)),
    "rolled halves": lambda t, x: t.roll(x.bfloat16(), -1, 1),
    "by channel": lambda t, x: x.bfloat16() * x.mean((2, 3), keepdim=True).sigmoid(),
    "halves in the middle": lambda t, x: t.softmax(x.bfloat16().mean((2, 3)), -1) + 0.5,
}
MORE.update({name: (call, ((2, 8, 6, 6),)) for name, call in IMAGES.items()})
MORE["scaled by channel"] = lambda t, x, g: (g * x.bfloat16()) * x[:, :1] + x, ((2, 8, 6, 6), (8, 1, 1))
MORE["scaled by channel, in place"] = (
    lambda t, x, g: (g * x.bfloat16()).add_(x).mul_(0.5).div_(3).sub_(x.bfloat16(), alpha=2),
    ((2, 8, 6, 6), (8, 1, 1)),
)
MORE["methods"] = (
    lambda t, x, y: t.sub(x.bfloat16().mul(y).add(y, alpha=2), 1).div(y.abs() + 1).true_divide(2).add(x.bfloat16()),
    ((2, 8, 6, 6), (6,)),
)
MORE["convolution"] = CALLS["conv2d"][0], ((2, 8, 6, 6), (8, 8, 3, 3), (8,))
every_call = pytest.mark.parametrize(("call", "shapes"), {**CALLS, **MORE}.values(), ids={**CALLS, **MORE})
bfloat16 = distcompile.bfloat16


@pytest.fixture(autouse=True)
def _one_device(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cudnn, "_eager_plans", {})
    add_cudnn(fake_cuda)
    with on_fake_device(devices=1):
        yield


def _there(shapes: Any, seed: int = 0) -> list[Any]:
    return [x.to("cuda") for x in operands(distcompile, shapes, seed)]


def _bits(x: Any) -> Any:
    return str(x.dtype), x.detach().cpu().float().numpy().tobytes()


def _anew(known: Any, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


@every_call
def test_it_gives_the_same_again_and_what_the_cpu_gives(call: Any, shapes: Any) -> None:
    for seed in (0, 1, 0):
        with distcompile.device("cuda"):
            made = [call(distcompile, *_there(shapes, seed)) for _ in range(4)]
        expected = call(distcompile, *operands(distcompile, shapes, seed))
        assert len({_bits(x) for x in made}) == 1
        assert (made[0].is_cuda, made[0].dtype, made[0].shape) == (True, expected.dtype, expected.shape)
        slack = 2e-2 if expected.dtype is bfloat16 else 2e-5
        np.testing.assert_allclose(made[0].cpu().float().numpy(), expected.float().numpy(), rtol=slack, atol=slack)


@every_call
def test_gradients_are_the_same_in_every_call(call: Any, shapes: Any) -> None:
    def told(records: bool, frozen: int | None = None) -> list[Any]:
        xs = [x.requires_grad_(records and k != frozen) for k, x in enumerate(_there(shapes))]
        with distcompile.device("cuda"):
            out = call(distcompile, *xs)
        if not records:
            return [_bits(out), out.requires_grad]
        out.float().square().sum().backward()
        return [_bits(out), *[None if x.grad is None else _bits(x.grad) for x in xs]]

    first = [told(True), told(False)]
    assert [told(True), told(False)] * 2 == first * 2
    if len(shapes) > 1:
        assert told(True, 1)[:3] == [*first[0][:2], None]
    assert told(True) == first[0]


@every_call
def test_under_autocast_casts_are_as_in_a_call_anew(call: Any, shapes: Any) -> None:
    def told(dtype: Any, kind: str, uses: int = 1) -> list[Any]:
        xs = [x.requires_grad_(kind != "frozen" or not k) for k, x in enumerate(_there(shapes))]
        given = [x * 1 if kind == "made" or (kind == "layer" and not k) else x for k, x in enumerate(xs)]
        with distcompile.device("cuda"), distcompile.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            outs = [call(distcompile, *given) for _ in range(uses)]
        sum(out.float().square().sum() for out in outs).backward()
        return [*map(_bits, outs), *[None if x.grad is None else _bits(x.grad) for x in xs]]

    cases = [
        (dtype, kind)
        for dtype in (bfloat16, None, distcompile.float16)
        for kind in ("layer", "made", "leaves", "frozen")
    ]
    anew = {}
    for case in cases:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(
                distcompile.Tensor, "__recall__", staticmethod(lambda known, f, args, kwargs: f(*args, **kwargs))
            )
            anew[case] = told(*case)
    for _ in range(4):
        for case in cases:
            assert told(*case) == anew[case], case
    twice = told(bfloat16, "layer", 2)
    assert twice[0] == twice[1] == anew[bfloat16, "layer"][0]


def test_calls_are_remembered_there_and_not_where_there_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Plan] = []
    computed, stepped = recalling._computed, recalling._in_steps
    monkeypatch.setattr(recalling, "_computed", lambda plan, *rest: taken.append(plan) or computed(plan, *rest))
    monkeypatch.setattr(recalling, "_in_steps", lambda plan, *rest: taken.append(plan) or stepped(plan, *rest))
    x, w = (v.requires_grad_() for v in _there(((4, 8), (16, 8))))
    y = x * 1
    for _ in range(4):
        F.layer_norm(y, (8,))
    assert {plan.what.name for plan in taken} == {"layer_norm"}
    taken.clear()
    for _ in range(4):
        with distcompile.autocast("cuda", dtype=bfloat16):
            F.linear(y, w)
    whole = [plan for plan in taken if plan.steps]
    assert [[step.what.name for step in plan.steps] for plan in whole] == [["cast", "lowered_linear"]] * len(whole)
    assert whole
    taken.clear()
    with on_fake_device(devices=2):
        z = distcompile.ones(4, 8, device="cuda:1")
        for _ in range(4):
            assert F.layer_norm(z + z, (8,)).device == distcompile.device("cuda:1")
        with pytest.raises(RuntimeError, match="same device"):
            _ = z.bfloat16() + distcompile.ones(4, 8, device="cuda:0").bfloat16()
    assert not taken


def test_numbers_of_the_cpu_stand_beside_and_tensors_do_not() -> None:
    x = distcompile.ones(3, device="cuda", dtype=bfloat16)
    for _ in range(3):
        assert (x + distcompile.tensor(2.0)).tolist() == [3.0] * 3
        assert (x + x).tolist() == [2.0] * 3
        with pytest.raises(RuntimeError, match="same device"):
            _ = x + distcompile.ones(3, dtype=bfloat16)


def test_a_count_in_place() -> None:
    n = distcompile.zeros((), dtype=distcompile.int64, device="cuda")
    v = distcompile.zeros(4, dtype=distcompile.int64, device="cuda")
    for k in range(1, 5):
        n.add_(1)
        v[1:3].add_(k)
        assert (n.item(), n._version) == (k, k)
    assert v.tolist() == [0, 10, 10, 0]
    last = distcompile.full((3,), (1 << 63) - 2, device="cuda")
    for made in (1, 2):
        for one in (last, n, v):
            one += 1
            one.sub_(3).add_(3)
        assert (last.tolist(), n.item(), (v - 1).tolist()) == ([[(1 << 63) - 1], [-(1 << 63)]][made - 1] * 3, 4 + made,
               [made - 1, made + 9, made + 9, made - 1])  # fmt: skip
    w = distcompile.ones(2, device="cuda", requires_grad=True)
    for _ in range(3):
        u = w * 1
        u.mul_(3)
        u.sum().backward()
    assert w.grad.tolist() == [9.0, 9.0]
    with pytest.raises(RuntimeError):
        w.add_(1)


def test_counts_that_come_again_are_made_by_native_code() -> None:
    n, positions = (distcompile.zeros(s, dtype=distcompile.int64, device="cuda") for s in ((), (3, 4)))

    def counted() -> None:
        n.add_(1)
        _ = positions + 2, 3 - n, positions.t() - 1, n + True

    for _ in range(3):
        counted()
    native = library()
    assert native is not None
    before = native.repeats()
    counted()
    assert native.repeats() >= before + 2
    assert n.item() == 4


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@every_call
def test_results_of_operands_in_other_orders_lie_as_in_a_call_anew(call: Any, shapes: Any, place: str) -> None:
    def orders(x: Any) -> list[Any]:
        last = [x.contiguous(memory_format=distcompile.channels_last)] if x.ndim == 4 else []
        return [x, x.transpose(0, -1).contiguous().transpose(0, -1), *last]

    def told(number: int, records: bool) -> list[Any]:
        xs = [x.to(place).requires_grad_(records) for x in operands(distcompile, shapes)]
        given = [orders(x)[min(number, len(orders(x)) - 1)] if k % 2 == 0 else x for k, x in enumerate(xs)]
        with distcompile.device(place):
            out = call(distcompile, *given)
        lies = [out.stride(), out.is_contiguous(), out._version, out._base is None]
        if records:
            out.float().square().sum().backward()
        return [_bits(out), *lies, *[None if x.grad is None else (_bits(x.grad), x.grad.stride()) for x in xs]]

    cases = [(number, records) for number in (1, 0, 2) for records in (True, False)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(distcompile.Tensor, "__recall__", staticmethod(_anew))
        anew = [told(*case) for case in cases]
    for _ in range(4):
        assert [told(*case) for case in cases] == anew


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "softmax", "hardswish", "elu"])
def test_a_result_in_another_order_knows_of_writes(place: str, name: str) -> None:
    def gradient(lies: Any) -> Any:
        x = (distcompile.arange(24.0, device=place) / 8 - 1).reshape(1, 2, 3, 4).requires_grad_()
        y = getattr(F, name)(x.contiguous(memory_format=lies) * 1, *((1,) if name == "softmax" else ()))
        y.mul_(3)
        try:
            (y * y).sum().backward()
        except RuntimeError:
            return "refused"
        return x.grad.cpu().numpy()

    for _ in range(3):
        found = [gradient(lies) for lies in (distcompile.contiguous_format, distcompile.channels_last)]
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("devices", [1, 2])
def test_numbers_beside_what_is_mapped(devices: int) -> None:
    """A batched value is no array of the device: the general way maps it."""
    functions: list[Any] = [lambda x: x * 2 + x, lambda x: 1 - x, lambda x: x / 3, lambda x: x - 1.5]
    with on_fake_device(devices):
        x = distcompile.arange(12.0).reshape(3, 4)
        for function in functions:
            made = distcompile.func.vmap(function)(x.cuda())
            np.testing.assert_allclose(made.cpu().numpy(), function(x).numpy(), rtol=1e-6)
        slopes = distcompile.func.vmap(distcompile.func.grad(lambda x: (x * 2 + x).sum()))(x.cuda())
        assert slopes.tolist() == [[3.0] * 4] * 3


def test_a_call_is_learned_though_rules_are_looked_at_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call records what the first did not: which operands its rule reads is no part of it. Of a size that no
    other test has, whose calls would be known."""
    monkeypatch.setattr(tape, "LARGE", 1)
    monkeypatch.setattr(watch, "active", False)  # from the first inference tensor of the process on somebody looks
    x, w = (v.requires_grad_() for v in _there(((6, 13), (13,))))
    made = []
    for given in (x.detach(), x * 1, x * 1, x * 1):
        with distcompile.autocast("cuda", dtype=bfloat16):
            made.append(F.layer_norm(given, (13,), w, w))
    assert made[-1]._node.plan is not None
    assert len({_bits(y) for y in made}) == 1


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(
    "how", [{}, {"is_causal": True}, {"scale": 0.3}, {"mask": True}, {"enable_gqa": True}], ids=str
)
def test_attention_that_draws_is_looked_up(how: dict[str, Any], lower: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call draws by a key of its own; which it is says nothing about what the call comes to."""

    def told(records: bool) -> list[Any]:
        rng = np.random.default_rng(0)
        shapes = ((2, 4, 6, 8), (2, 2 if "enable_gqa" in how else 4, 5, 8), (2, 2 if "enable_gqa" in how else 4, 5, 8))
        q, k, v = (
            distcompile.tensor(rng.normal(size=s).astype(np.float32), device="cuda").requires_grad_(records)
            for s in shapes
        )
        mask = distcompile.ones(6, 5, dtype=distcompile.bool, device="cuda").tril() if "mask" in how else None
        given = {name: value for name, value in how.items() if name != "mask"}
        with distcompile.autocast("cuda", dtype=bfloat16, enabled=lower):
            out = F.scaled_dot_product_attention(q, k * 1, v, mask, dropout_p=0.4, **given)
        if records:
            out.float().square().sum().backward()
        return [_bits(out), out.stride(), *[_bits(x.grad) for x in (q, k, v) if x.grad is not None]]

    def trained() -> list[Any]:
        distcompile.manual_seed(5)
        return [told(records) for records in (True, True, True, False, False, False)]

    taken: list[Plan] = []
    stepped = recalling._in_steps
    monkeypatch.setattr(recalling, "_in_steps", lambda plan, *rest: taken.append(plan) or stepped(plan, *rest))
    found = [trained(), trained()]
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
    assert "mask" in how or any("dropout" in [step.what.name for step in plan.steps] for plan in taken)
    monkeypatch.setattr(distcompile.Tensor, "__recall__", staticmethod(_anew))
    assert found[0] == trained()
