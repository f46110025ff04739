"""Functions, methods and generators that draw: from the same seed all give torch's numbers, and leave torch's state."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.errors import DomainError, DTypeError, GraphBreak, NoKernelError, RandomStateError
from compiler_core.tensor.making.random import counter_draws
from tests.same_draws import assert_same_draws

pytestmark = pytest.mark.torch
SIZES = (0, 1, 3, 7, 15, 16, 17, 20, 33, 100)
IN_PLACE = ("uniform_", "normal_", "exponential_", "bernoulli_", "random_", "log_normal_", "cauchy_")


def mixed_calls(t: Any) -> Iterator[Any]:
    """The second of a pair of normal numbers is kept from one call to the next, of whatever dtype."""
    for n in SIZES:
        yield t.rand(n), t.randn(n), t.randn(n, dtype=t.float64), t.rand(n, dtype=t.float16)
        yield t.randn(n, dtype=t.bfloat16), t.randint(0, 10, (n,)), t.randperm(n), t.empty(n).exponential_()
        yield t.empty(n).log_normal_(), t.empty(n).cauchy_(), t.empty(n, dtype=t.int64).geometric_(0.3)
        yield t.bernoulli(t.rand(n)), t.empty(n).bernoulli_(0.2), t.randn(n, dtype=t.complex64)
        yield t.rand(n, dtype=t.complex128)


def memory_that_is_not_contiguous(t: Any) -> Iterator[Any]:
    x = t.zeros(4, 5)
    for view in (x.t(), x[:, ::2], x[1:3], x[::2], x.reshape(2, 2, 5).permute(2, 0, 1)):
        for name in IN_PLACE:
            getattr(view, name)()
            yield x.clone()
        view.bernoulli_(t.full(tuple(view.shape), 0.3))
        yield x.clone()
        view.bernoulli_(t.full((view.shape[-1],), 0.3, dtype=t.float64))
        yield x.clone()
    large = t.zeros(30, 40)
    large.t().normal_()
    yield large.clone()
    large[:, ::2].normal_()
    yield large


def tensors_like_others(t: Any) -> Iterator[Any]:
    x = t.zeros(3, 4, 5, 6)
    last = x.to(memory_format=t.channels_last)
    turned = (x.permute(0, 2, 3, 1), x.transpose(0, 1), x.transpose(0, 3) + 1, last, last + 1, last[:, ::2])
    for like in (x, x[:, ::2], x[:, :, :, ::2], *turned):
        yield t.rand_like(like), t.randn_like(like), t.rand_like(like, dtype=t.float64)
        yield t.randint_like(like, 10), t.randint_like(like, 3, 9, dtype=t.int32)
        yield t.bernoulli(like * 0 + 0.5), like.bernoulli(0.3)
        yield t.randn_like(like, memory_format=t.contiguous_format)
        yield t.rand_like(like, memory_format=t.channels_last)
        dropped = t.nn.functional.dropout(like + 1, 0.3)
        yield dropped, list(dropped.stride())


def whole_numbers(t: Any) -> Iterator[Any]:
    floats, whole = (t.float32, t.float64, t.float16, t.bfloat16), (t.int64, t.int32, t.int16, t.int8, t.uint8)
    for dtype in (*floats, *whole, t.bool):
        x = t.zeros(20).to(dtype)
        yield x.clone().random_()
        if dtype is not t.bool:
            yield x.clone().random_(50), x.clone().random_(3, 50), x.clone().random_(to=7)
        if dtype in (t.int64, t.int32, t.float32):
            yield x.clone().random_(-3, 50), x.clone().random_(5, None)
    x = t.zeros(20, dtype=t.int64)
    yield x.clone().random_(-(2**63), None), x.clone().random_(0, 2**62)
    yield t.randint(5, (3,)), t.randint(high=5, size=(3,)), t.randint(-5, 5, [2, 2], dtype=t.float32)
    yield [t.randint(0, high, (7,)) for high in (2**28 - 1, 2**28, 2**40, 2**63 - 1)]


def normal_by_tensors(t: Any) -> Iterator[Any]:
    mean, std = t.arange(20.0).reshape(4, 5), t.rand(4, 5)
    yield t.normal(mean, std), t.normal(mean, 2.0), t.normal(1.0, std), t.normal(mean.t(), 2.0)
    yield t.normal(0.0, 1.0, (3,)), t.normal(2.0, 3.0, size=(20,)), t.normal(0, 1, (4,), dtype=t.float64)
    yield t.normal(mean=t.arange(1.0, 11.0), std=t.arange(1.0, 0.0, -0.1))


def categories(t: Any) -> Iterator[Any]:
    weights = t.rand(5, 30)
    for count in (1, 3, 30):
        yield t.multinomial(weights, count), t.multinomial(weights, count, True)
        yield t.multinomial(weights.double(), count), weights[0].double().multinomial(count, replacement=True)
        yield t.multinomial(weights.bfloat16(), count, True)
    yield t.multinomial(t.tensor([0.0, 1.0, 0.0, 2.0]), 2), t.multinomial(t.tensor([1.0, 0.0, 0.0]), 2)
    yield t.multinomial(weights.t(), 2), t.multinomial(t.rand(1000), 500, True)


def rejection(t: Any) -> Iterator[Any]:
    a = t.rand(60) * 5
    for dtype in (t.float32, t.float64):
        b = a.to(dtype)
        yield t.poisson(b * 6), t.binomial(t.full((60,), 30.0, dtype=dtype), t.rand(60, dtype=dtype))
        yield t.binomial(t.full((60,), 9.0, dtype=dtype), t.rand(60, dtype=dtype)), t._standard_gamma(b)
        yield t._sample_dirichlet(b.reshape(20, 3))


def generators(t: Any) -> Iterator[Any]:
    g = t.Generator()
    yield t.rand(3, generator=g), g.initial_seed()
    g.manual_seed(5)
    yield t.randn(3, generator=g), t.randn(30, generator=g), t.randperm(10, generator=g)
    yield t.randint(0, 10, (3,), generator=g), t.empty(3).normal_(generator=g)
    yield t.bernoulli(t.full((9,), 0.5), generator=g), t.multinomial(t.ones(9), 3, generator=g)
    yield t.normal(0.0, 1.0, (3,), generator=g), t.poisson(t.ones(9), generator=g)
    state, other = g.get_state(), g.clone_state()
    yield state, t.rand(3, generator=g), t.rand(3, generator=other)
    g.set_state(state)
    yield t.rand(3, generator=g), g.initial_seed(), g.device.type
    with t.random.fork_rng():
        t.manual_seed(7)
        yield t.rand(3)
    yield t.rand(3)
    before = t.get_rng_state()
    yield t.randn(5)
    t.set_rng_state(before)
    yield t.randn(5), t.initial_seed()


def seeds(t: Any) -> Iterator[Any]:
    for seed in (0, -1, 2**63, 2**64 - 1, True, np.int64(5), -(2**63)):
        t.manual_seed(seed)
        yield str(t.initial_seed()), t.rand(2)


BITS = (mixed_calls, memory_that_is_not_contiguous, tensors_like_others, whole_numbers, normal_by_tensors, categories)


@pytest.mark.parametrize("program", [*BITS, rejection, generators, seeds], ids=lambda program: program.__name__)
def test_bits_are_torchs(program: Any) -> None:
    assert_same_draws(program, seeds=(0, 1, 123))


def test_states_go_from_torch_to_here_and_back() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    torch.randn(5)  # an odd number: one of a pair is kept
    dc.set_rng_state(dc.tensor(torch.get_rng_state().numpy()))
    np.testing.assert_array_equal(dc.randn(4).numpy(), torch.randn(4).numpy())
    dc.rand(700)
    torch.set_rng_state(torch.from_numpy(dc.get_rng_state().numpy().copy()))
    np.testing.assert_array_equal(dc.randn(40).numpy(), torch.randn(40).numpy())
    assert dc.initial_seed() == torch.initial_seed()


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda t: t.manual_seed(2**64), ValueError),
        (lambda t: t.Generator().manual_seed(-(2**63) - 1), ValueError),
        (lambda t: t.Generator().get_offset(), RuntimeError),
        (lambda t: t.Generator().set_state(t.zeros(16, dtype=t.uint8)), RuntimeError),
        (lambda t: t.Generator().set_state(t.zeros(5056, dtype=t.uint8)), RuntimeError),
        (lambda t: t.Generator().set_state(t.zeros(5056)), TypeError),
        (lambda t: t.randint(5, 5, (2,)), RuntimeError),
        (lambda t: t.zeros(2).random_(5, 5), RuntimeError),
        (lambda t: t.normal(0.0, -1.0, (2,)), RuntimeError),
        (lambda t: t.zeros(2).exponential_(0.0), RuntimeError),
        (lambda t: t.zeros(2).cauchy_(0.0, 0.0), RuntimeError),
        (lambda t: t.zeros(2).log_normal_(0.0, 0.0), RuntimeError),
        (lambda t: t.zeros(2).geometric_(1.0), RuntimeError),
        (lambda t: t.zeros(2).bernoulli_(1.5), RuntimeError),
        (lambda t: t.multinomial(t.ones(3), 4), RuntimeError),
        (lambda t: t.multinomial(t.ones(3), 0), RuntimeError),
        (lambda t: t.multinomial(t.zeros(3), 1), RuntimeError),
        (lambda t: t.multinomial(t.tensor([1.0, -1.0]), 1), RuntimeError),
        (lambda t: t.multinomial(t.ones(2, 2, 2), 1), RuntimeError),
        *(
            (lambda t, name=name: getattr(t.zeros(2, dtype=t.int64), name)(), NotImplementedError)
            for name in ("normal_", "uniform_", "log_normal_")
        ),
        (lambda t: t.randn(2, dtype=t.int64), NotImplementedError),
        (lambda t: t.poisson(t.ones(2, dtype=t.int64)), NotImplementedError),
        (lambda t: t.randperm(3, dtype=t.bool), NotImplementedError),
    ],
)
def test_misuse_is_an_error_where_torch_has_one(misuse: Any, error: type[Exception]) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(error):
        misuse(torch)
    with pytest.raises(error) as ours:
        misuse(dc)
    assert isinstance(ours.value, (DomainError, DTypeError, NoKernelError, RandomStateError))


# ---- compiled


def drawing(x: Any, t: Any = dc) -> Any:
    y = t.nn.functional.dropout(x, 0.3) + t.rand(5) + t.randn(5) * t.randint(0, 3, (5,))
    y = y + t.rand_like(x) + t.empty(5).exponential_() + t.multinomial(t.ones(5), 5)[0] + t.bernoulli(x * 0 + 0.5)
    return y + t.randperm(5) + t.normal(x, 1.0) + t.multinomial(t.ones(5), 3, True).sum()


@pytest.mark.parametrize("how", ["eager", "aot_eager", "option", "knob"])
def test_where_eager_draws_are_wanted_compiled_code_makes_them(how: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(4)
    expected = [drawing(torch.ones(5), torch), drawing(torch.ones(5), torch), torch.rand(2)]
    options = {"option": {"options": {"fallback_random": True}}, "knob": {}}.get(how, {"backend": how})
    compiled = dc.compile(drawing, fullgraph=True, **options)
    dc.manual_seed(4)
    with config.patch(fallback_random=how == "knob"):
        found = [compiled(dc.ones(5)), compiled(dc.ones(5)), dc.rand(2)]
    for mine, theirs in zip(found, expected):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def drawing_in_order(x: Any, t: Any = dc) -> Any:
    y = t.nn.functional.dropout(x.transpose(1, 2), 0.5) + t.rand_like(x.transpose(1, 2))
    return y + t.zeros(5, 4).t().uniform_().sum(), (x * t.rand_like(x)).sum()


@pytest.mark.parametrize("last", [[False, True], [True, False]])
def test_compiled_code_that_makes_eager_draws_fills_memory_in_its_order(last: list[bool]) -> None:
    torch = pytest.importorskip("torch")
    compiled = dc.compile(drawing_in_order, fullgraph=True, options={"fallback_random": True})
    for is_last in last:
        results = []
        for t, function in ((torch, drawing_in_order), (dc, compiled)):
            x = t.arange(120.0).view(2, 3, 4, 5)
            x = (x.to(memory_format=t.channels_last) if is_last else x).requires_grad_()
            t.manual_seed(6)
            first, second = function(x, t) if t is torch else function(x)
            (first.pow(2).sum() + second).backward()
            results.append([v.detach().numpy() for v in (first, second, x.grad)])
        for theirs, mine in zip(*results):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_compiled_draws_are_others_and_begin_at_the_seed() -> None:
    compiled = dc.compile(lambda x: x + dc.rand(4), fullgraph=True)
    runs = []
    for _ in range(2):
        dc.manual_seed(1)
        runs.append([compiled(dc.zeros(4)).tolist() for _ in range(2)])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]
    dc.manual_seed(1)
    assert dc.rand(4).tolist() != runs[0][0]


def test_the_knob_is_guarded() -> None:
    compiled = dc.compile(lambda x: x + dc.rand(4), fullgraph=True)
    for fallback in (False, True, False):
        with config.patch(fallback_random=fallback):
            dc.manual_seed(1)
            found = compiled(dc.zeros(4)).tolist()
        dc.manual_seed(1)
        assert (found == dc.rand(4).tolist()) is fallback


def test_a_graph_that_fails_gives_its_draws_back() -> None:
    def read(x: Any, index: Any) -> Any:
        return x[index] + dc.rand(1)

    compiled = dc.compile(read, options={"fallback_random": True})
    compiled(dc.ones(3), dc.tensor([1]))
    dc.manual_seed(2)
    with pytest.raises(IndexError):
        compiled(dc.ones(3), dc.tensor([7]))
    after = dc.rand(3).tolist()
    dc.manual_seed(2)
    assert after == dc.rand(3).tolist()


@pytest.mark.parametrize("options", [{"options": {"fallback_random": True}}, {"backend": "aot_eager"}])
def test_what_draws_as_the_data_says_breaks_a_graph_of_eager_draws(options: dict[str, Any]) -> None:
    def leaky(x: Any) -> Any:
        return dc.nn.functional.rrelu(x * 2, training=True) + 1

    with pytest.raises(GraphBreak, match="rrelu"):
        dc.compile(leaky, fullgraph=True, **options)(dc.ones(3))
    compiled, found = dc.compile(leaky, **options), []
    for run in (leaky, compiled, compiled):
        dc.manual_seed(3)
        found.append(run(dc.tensor([1.0, -2.0, -3.0])).tolist())
    assert found[0] == found[1] == found[2]
    assert len(compiled.explain().entries) == 2


# ---- counter-based


def test_inside_counter_draws_eager_and_compiled_code_draw_the_same_bits() -> None:
    compiled = dc.compile(drawing, fullgraph=True)
    with counter_draws():
        for function in (drawing, compiled):
            dc.manual_seed(5)
            function(dc.ones(5))
        dc.manual_seed(5)
        eager = [drawing(dc.ones(5)), dc.rand(2)]
        dc.manual_seed(5)
        for mine, theirs in zip([compiled(dc.ones(5)), dc.rand(2)], eager):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def test_counter_draws_leave_the_generator_as_it_was() -> None:
    dc.manual_seed(6)
    dc.rand(3)
    before = dc.get_rng_state()
    with counter_draws():
        assert dc.get_rng_state().shape == (16,)
        dc.manual_seed(9)
        dc.rand(3)
    assert bool((dc.get_rng_state() == before).all())
    assert dc.initial_seed() == 6


def in_a_thread(t: Any) -> Iterator[Any]:
    """Threads draw from the one default generator; a seed that one sets is set for all."""
    found: list[Any] = []
    for work in (lambda: found.append(t.rand(3)), lambda: t.manual_seed(5), lambda: found.append(t.randn(3))):
        yield t.rand(1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
    yield found, t.rand(2)


def test_threads_share_the_default_generator() -> None:
    assert_same_draws(in_a_thread)


def test_large_draws_of_many_threads_are_one_sequence() -> None:
    """A large draw lets other threads run: each of its numbers is drawn once all the same."""
    n, found = 50_000, []
    dc.manual_seed(1)
    threads = [threading.Thread(target=lambda: found.append(dc.rand(n).numpy())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    dc.manual_seed(1)
    expected = {dc.rand(n).numpy().tobytes() for _ in threads}
    assert {part.tobytes() for part in found} == expected


def test_an_unseeded_process_begins_anywhere() -> None:
    text = "import distcompile as dc; print(dc.initial_seed(), dc.rand(1).item(), dc.Generator().initial_seed())"
    runs = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
        for _ in "ab"
    ]
    (seed, number, own), other = runs[0].stdout.split(), runs[1].stdout.split()
    assert seed != other[0]
    assert number != other[1]
    assert own == other[2] == "67280421310721"
