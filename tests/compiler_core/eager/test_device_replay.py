"""Device calls that are made again: the bits of calls made in full, forward and backward, of every definition; what is
not made again; threads, streams, settings, failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device import proof
from compiler_core.errors import DeviceError
from compiler_core.ops.registry import OPS, run_eager
from compiler_core.ops.whole import COMPOSITES
from compiler_core.runtime.cuda import replay
from compiler_core.runtime.cuda.again import library as native
from tests.fake_cupy import on_fake_device, raw

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
DEFINED = sorted({*proof.SAMPLES, *(name for name, one in COMPOSITES.items() if one.pointwise or one.rows)})
# what reads elements, draws, is CuPy's product, or a library's that the stand-in lacks
IN_FULL = ("attention", "convolution", "cross_entropy", "dropout", "embedding", "linear", "affine", "lowered")
UNARY = ("tanh", "sigmoid", "sqrt", "rsqrt", "erf", "sin", "cos")


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device(devices=1) as module:
        yield module


class Again:
    """How many calls were made again since it was made, or cleared."""

    def __init__(self) -> None:
        library = native()
        assert library is not None
        self.library = library
        self.clear()

    def clear(self) -> None:
        self.before = self.library.repeats()

    def __len__(self) -> int:
        return self.library.repeats() - self.before


@pytest.fixture
def again() -> Again:
    return Again()


def fetched(value: Any) -> Any:
    """Bytes, dtypes, shapes and strides of all arrays of a result."""
    if value is None:
        return None
    if cuda.is_array(value):
        return cuda.fetch(value).tobytes(), value.dtype, value.shape, value.strides
    return [fetched(one) for one in value]


def other(x: Any) -> Any:
    """Other numbers, lying alike."""
    return x * x.dtype.type(0.75) if cuda.is_array(x) and x.dtype.kind in "fV" and x.flags.c_contiguous else x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", DEFINED)
def test_the_bits_are_those_of_calls_made_in_full(
    name: str, dtype: Any, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    composite = COMPOSITES[name].on_device()
    assert composite is not None
    for sample in (None, *proof.MORE.get(name, ())):
        operands, attrs = proof.operands_of(name, dtype, sample)
        there = [proof._there(x, 0) for x in operands]

        def both(numbers: list[Any], attrs: dict[str, Any] = attrs) -> Any:
            made = composite.forward(*numbers, **attrs)
            if made is None:
                return None
            out, kept = made
            needs = [x is not None and x.dtype.kind in "fV" and place not in proof._WITHOUT_SLOPES.get(name, ())
                     for place, x in enumerate(numbers)]  # fmt: skip
            g = cuda.module().asarray(np.random.default_rng(9).normal(size=out.shape).astype(out.dtype))
            grads = composite.backward(needs, g, out, kept, *numbers, **attrs)
            return fetched((out, kept)), fetched(grads)

        again.clear()
        both(there), both(there)
        numbers = list(map(other, there))
        found = both(numbers)
        count = len(again)
        monkeypatch.setattr(replay.Noting, "is_on", False)
        assert found == both(numbers)
        monkeypatch.setattr(replay.Noting, "is_on", True)
        casts = dtype.itemsize == 2 and name in ("batch_norm", "group_norm")  # parameters of 16 bits, by CuPy
        assert found is None or count or name.startswith(IN_FULL) or casts


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
def test_ops_of_16_bit_floats(dtype: Any, again: Again) -> None:
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return cuda.put(rng.uniform(0.1, 2, size=shape).astype(dtype), 0)

    def check(op: str, operands: list[Any], attrs: dict[str, Any]) -> None:
        made = run_eager(OPS[op], operands, attrs)
        full = OPS[op].eager(np, *[cuda.fetch(x) if cuda.is_array(x) else x for x in operands], **attrs)
        np.testing.assert_array_equal(cuda.fetch(made), full)

    for _ in range(4):
        for op in ("add", "sub", "mul", "div"):
            check(op, [drawn(6, 16), drawn(6, 16)], {})
            check(op, [drawn(6, 16), cuda.module().broadcast_to(drawn(16), (6, 16))], {})
        check("cast", [drawn(6, 16)], {"dtype": of(np.dtype(np.float32))})
    assert len(again) == 9 * 2


def test_operands_that_are_one_are_not_taken_for_two(again: Again) -> None:
    x, y = (cuda.put(np.random.default_rng(k).normal(size=(4, 8)).astype(np.float16), 0) for k in range(2))
    for a, b in [(x, x)] * 4 + [(x, y)] * 4 + [(y, y)] * 2:
        made = run_eager(OPS["add"], [a, b], {})
        np.testing.assert_array_equal(cuda.fetch(made), cuda.fetch(a) + cuda.fetch(b))
    assert len(again) == 2 + 2 + 2


def test_operands_that_lie_in_each_other_are_told_by_how_far(again: Again) -> None:
    """Also by more than whether they start alike, and where they lie apart again, or are one."""
    x, apart = (cuda.put(np.arange(200).astype(np.float16), 0) for _ in range(2))
    for k in (8, 16, 8, 8, 16, 16, 24, 8, 0, 128, 0, 0, 8):
        a, b = x[:64], x[k : k + 64]
        made = run_eager(OPS["add"], [a, b], {})
        np.testing.assert_array_equal(cuda.fetch(made), cuda.fetch(a) + cuda.fetch(b))
        made = run_eager(OPS["sub"], [b, apart[:64]], {})
        np.testing.assert_array_equal(cuda.fetch(made), cuda.fetch(b) - np.arange(64).astype(np.float16))
    assert len(again) == 5 + 11


def test_parts_of_one_memory_that_are_interleaved(again: Again) -> None:
    """As queries, keys and values of one product are; and a third that lies in both."""
    for seed in range(5):
        here = np.random.default_rng(seed).normal(size=(6, 3, 16)).astype(np.float16)
        whole = cuda.put(here, 0)
        for a, b in ((0, 1), (2, 1), (1, 2), (0, 2)):
            made = run_eager(OPS["cat"], [whole[:, a], whole[:, b]], {"dim": 0})
            np.testing.assert_array_equal(cuda.fetch(made), np.concatenate([here[:, a], here[:, b]]))
    assert len(again) >= 4 * 3


def test_what_an_inner_pointer_belongs_to_moves_along(again: Again) -> None:
    """A launch reads the first operand from its second half on, where the second operand begins, for once."""

    def compute(a: Any, b: Any) -> Any:
        return run_eager(OPS["add"], [a[32:], a[:32]], {}), run_eager(OPS["add"], [b, b], {})

    known: replay.Known = {}
    x = cuda.put(np.arange(200).astype(np.float16), 0)
    for k in (32, 32, 32, 40, 40, 40, 64, 64, 64, 32):
        a, b = x[:64], x[k : k + 32]
        first, second = replay.replayed(known, (), [a, b], compute)
        here = cuda.fetch(a)
        np.testing.assert_array_equal(cuda.fetch(first), here[32:] + here[:32])
        np.testing.assert_array_equal(cuda.fetch(second), 2 * cuda.fetch(b))
    assert again


def test_a_number_is_told_by_its_bits(again: Again) -> None:
    x = cuda.put(np.zeros(16, np.float16), 0)
    for number in (0.0, 0.0, 0.0, -0.0, -0.0, -0.0, 0.0):
        ones, repeated = cuda.put(np.ones(16, np.float16), 0), np.broadcast_to(np.float16(number), (16,))
        made = cuda.fetch(run_eager(OPS["mul"], [ones, repeated], {}))
        np.testing.assert_array_equal(np.signbit(made), np.signbit(np.float16(number)))
        with_number = COMPOSITES["with_number"].on_device()
        made, _ = with_number.forward(x * np.float16(-1), op="add", number=number)
        np.testing.assert_array_equal(np.signbit(cuda.fetch(made)), bool(np.signbit(number)))
    assert again


def test_a_start_that_lies_otherwise_is_another_call(again: Again) -> None:
    x = cuda.put(np.arange(200).astype(np.float16), 0)
    for start in (0, 1, 0, 1, 8, 9, 3, 0):
        part = x[start : start + 64]
        made = run_eager(OPS["cast"], [part], {"dtype": of(np.dtype(np.float32))})
        np.testing.assert_array_equal(cuda.fetch(made), np.arange(start, start + 64, dtype=np.float32))
    assert len(again) == 3  # 8, 9, and the last 0


def test_threads_have_calls_of_their_own(again: Again) -> None:
    rng = np.random.default_rng(0)
    numbers = [rng.normal(size=(40, 64)).astype(np.float16) for _ in range(4)]
    wrong: list[int] = []

    def work(place: int) -> None:
        with cuda.on(0):
            x = cuda.put(numbers[place], 0)
            for _ in range(30):
                made = run_eager(OPS["mul"], [x, x], {})
                if not np.array_equal(cuda.fetch(made), numbers[place] * numbers[place]):
                    wrong.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(again) == 4 * 28


def test_a_changed_setting_is_another_call(again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    x = cuda.put(np.ones(64, np.float16), 0)
    for settings in (1, 1, 1, 2, 2, 2):
        monkeypatch.setattr(replay.Noting, "settings", settings)
        run_eager(OPS["mul"], [x, x], {})
    assert len(again) == 2


def test_a_launch_that_fails_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cuda.put(np.ones(72, np.float16), 0)
    monkeypatch.setattr(raw, "launch", raw.LAUNCH(lambda *_: 719))
    monkeypatch.setattr(replay.driver, "failure", lambda name, code: DeviceError(f"{name}: {code}"))
    run_eager(OPS["mul"], [x, x], {}), run_eager(OPS["mul"], [x, x], {})
    with pytest.raises(DeviceError, match="cuLaunchKernel: 719"):
        run_eager(OPS["mul"], [x, x], {})


def test_memory_that_is_full_is_told_as_before(device: Any) -> None:
    x = cuda.put(np.ones(1 << 12, np.float16), 0)
    made = [run_eager(OPS["mul"], [x, x], {}) for _ in range(3)]
    pool = device.get_default_memory_pool()
    pool.set_limit(pool.used_bytes() + 64)
    with pytest.raises(MemoryError, match="CUDA out of memory"):
        run_eager(OPS["mul"], [x, x], {})
    assert len(made) == 3


def test_what_cupy_writes_in_place_must_be_told() -> None:
    x = cuda.put(np.ones(64, np.float16), 0)

    def compute(x: Any) -> Any:
        out = replay.empty(x.shape, x.dtype)
        out[...] = x
        return out

    known: replay.Known = {}
    replay.replayed(known, (), [x], compute)
    with pytest.raises(AssertionError, match="CuPy writes in place"):
        replay.replayed(known, (), [x], compute)


def test_what_is_told_or_cupys_own_is_made_in_full(again: Again) -> None:
    x = cuda.put(np.ones(64, np.float16), 0)

    def told(x: Any) -> Any:
        out = replay.empty(x.shape, x.dtype)
        replay.spoil()
        out[...] = x
        return out

    for compute in (told, lambda x: x * np.float16(2), lambda x: None, lambda x: (x, "a word")):
        known: replay.Known = {}
        for _ in range(4):
            replay.replayed(known, (), [x], compute)
    assert not again


def test_views_of_operands_and_of_what_was_made(again: Again) -> None:
    def compute(x: Any) -> Any:
        doubled = run_eager(OPS["add"], [x, x], {})
        return x, [x[1:].reshape(-1), doubled.T, None], doubled[2:, 1:]

    known: replay.Known = {}
    for k in range(4):
        x = cuda.put(np.random.default_rng(k).normal(size=(4, 8)).astype(np.float16), 0)
        found, (part, turned, none), window = replay.replayed(known, (), [x], compute)
        here = cuda.fetch(x)
        assert found is x
        assert none is None
        np.testing.assert_array_equal(cuda.fetch(part), here[1:].reshape(-1))
        np.testing.assert_array_equal(cuda.fetch(turned), (here + here).T)
        np.testing.assert_array_equal(cuda.fetch(window), (here + here)[2:, 1:])
    assert len(again) == 2
