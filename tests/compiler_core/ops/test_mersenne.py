"""mt19937 and what torch makes of it: published words; NumPy's steps against native ones; both against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.errors import CompilerNotFoundError
from compiler_core.ops.random import mersenne
from compiler_core.ops.random.mersenne import NUMPY, STATE, Mersenne
from compiler_core.runtime import toolchain

SIZES = (0, 1, 2, 15, 16, 17, 31, 100, 1001, 40_003)
FLOATS = (dt.float32, dt.float64, dt.float16, dt.bfloat16)
RANGES = ((0, 3), (-5, 2**28 - 6), (-5, 2**28 - 5), (-(2**31), 2**31), (0, 2**63 - 1), (-(2**63), 2**63))
SEEDS = (0, 3, 2**32 - 1, 2**63 + 11)


def draws(state: Mersenne) -> list[Any]:
    """Some of every kind, one after the other: what one leaves behind in the state, the next begins with."""
    found: list[Any] = []
    for n in SIZES:
        for dtype in FLOATS:
            found += [state.uniform((n,), dtype, -0.5, 2.0), state.normal((n,), dtype, 0.5, 2.0)]
            found += [state.normal((n,), dtype, 0.5, 2.0, False), state.exponential((n,), dtype, 2.0)]
            found += [state.log_normal((n,), dtype, 0.5, 0.2), state.bernoulli((n,), dtype, 0.2)]
        found += [state.cauchy((n,), dt.float32, 0.5, 2.0), state.geometric((n,), dt.int64, 0.2)]
        found += [state.integers((n,), dt.int64, low, high) for low, high in RANGES]
        found += [state.permutation((n,), dt.int64), state.normal((n,), dt.complex64, 0.0, 1.0)]
    return found


def torchs_draws(torch: Any) -> list[Any]:
    """The same, by torch."""
    found: list[Any] = []
    for n in SIZES:
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            empty = torch.empty(2 * n, dtype=dtype)[::2]
            found += [torch.empty(n, dtype=dtype).uniform_(-0.5, 2.0), torch.empty(n, dtype=dtype).normal_(0.5, 2.0)]
            found += [empty.normal_(0.5, 2.0), torch.empty(n, dtype=dtype).exponential_(2.0)]
            found += [torch.empty(n, dtype=dtype).log_normal_(0.5, 0.2), torch.empty(n, dtype=dtype).bernoulli_(0.2)]
        found += [torch.empty(n).cauchy_(0.5, 2.0), torch.empty(n, dtype=torch.int64).geometric_(0.2)]
        for low, high in RANGES:
            drawn = torch.empty(n, dtype=torch.int64)
            found.append(drawn.random_(low, high) if high < 2**63 else drawn.random_(low, None))
        found += [torch.randperm(n), torch.randn(n, dtype=torch.complex64)]
    return [f.float().numpy() if f.dtype is torch.bfloat16 else f.numpy() for f in found]


def plain(array: Any) -> Any:
    """Of a dtype that NumPy knows itself."""
    return array.astype(np.float32) if array.dtype == dt.bfloat16.numpy else array


def native() -> Any:
    """The native steps; skips where there is no compiler."""
    try:
        toolchain.find_toolchain()
    except CompilerNotFoundError:
        pytest.skip("no C++ compiler")
    steps = mersenne.steps()
    assert steps is not NUMPY
    return steps


def state_without_spare(state: Mersenne) -> Any:
    """A state's bytes, less a number that is rounded."""
    fields = state.state.copy().view(STATE)
    fields["spare"] = 0
    return fields.view(np.uint8)


@pytest.mark.parametrize("steps", ["native", "numpy"])
def test_published_words(steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 10,000th word with seed 5489, which the C++ standard names."""
    chosen = native() if steps == "native" else NUMPY
    monkeypatch.setattr(mersenne, "steps", lambda: chosen)
    state = Mersenne(5489)
    state.integers((9_999,), dt.int64, 0, 2, False)
    assert int(state.integers((1,), dt.int64, 0, 2**32, False)[0]) == 4123659995


@pytest.mark.parametrize("seed", SEEDS)
def test_numpys_steps_give_what_native_ones_give(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    native()
    fast, states = draws(first := Mersenne(seed)), [first]
    monkeypatch.setattr(mersenne, "steps", lambda: NUMPY)
    slow = draws(second := Mersenne(seed))
    states.append(second)
    for mine, other in zip(slow, fast, strict=True):
        a, b = plain(mine), plain(other)
        near = {"f": 1e-6, "c": 1e-6}.get(b.dtype.kind, 0.0) if mine.dtype.itemsize > 2 else 1e-2
        np.testing.assert_allclose(a, b, rtol=near, atol=near)
    np.testing.assert_array_equal(*map(state_without_spare, states))


@pytest.mark.torch
@pytest.mark.parametrize("seed", SEEDS)
def test_native_steps_give_torchs_bits(seed: int) -> None:
    torch = pytest.importorskip("torch")
    native()
    ours = draws(state := Mersenne(seed))
    torch.manual_seed(seed)
    for mine, theirs in zip(ours, torchs_draws(torch), strict=True):
        np.testing.assert_array_equal(plain(mine), theirs)
    np.testing.assert_array_equal(state.state, torch.get_rng_state().numpy())


def test_a_state_goes_on_from_its_bytes() -> None:
    state = Mersenne(11)
    state.normal((5,), dt.float32, 0.0, 1.0)
    other = state.copy()
    for part in range(3):
        np.testing.assert_array_equal(
            state.normal((7,), dt.float32, 0.0, 1.0), other.normal((7,), dt.float32, 0.0, 1.0), err_msg=str(part)
        )
    assert state.is_valid()
    state.state[8:12] = 0
    assert not state.is_valid()
