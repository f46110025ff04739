"""Philox against its published test vectors, and what is drawn from it: ranges, moments, independence of shards."""

from __future__ import annotations

import numpy as np
import pytest

import distcompile as torch
from compiler_core import dtype as dt
from compiler_core.config import config
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.random import draws
from compiler_core.ops.random.op import philox_words

# Random123 1.14, tests/kat_vectors, philox4x32 10: counter (4 words), key (2 words), result (4 words)
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def key(seed: int = 1, offset: int = 0, shard: int = 0) -> np.ndarray:
    return np.array([seed, offset, shard], np.uint64)


@pytest.mark.parametrize(("counter", "words", "expected"), KNOWN)
def test_known_answers(counter: str, words: str, expected: str) -> None:
    c = [int(w, 16) for w in counter.split()]
    k = [int(w, 16) for w in words.split()]
    element = np.array([c[0] | c[1] << 32], np.uint64)
    result = philox_words(np, k[0] | k[1] << 32, c[2] | c[3] << 32, element)
    assert [f"{int(w[0]):08x}" for w in result] == expected.split()


def test_bits_depend_on_offset_plus_stream_only() -> None:
    np.testing.assert_array_equal(prims.philox(key(offset=3), (4, 5), 2), prims.philox(key(offset=5), (4, 5), 0))
    assert np.any(prims.philox(key(offset=3), (20,), 2) != prims.philox(key(offset=3), (20,), 3))


def test_shards_are_consecutive_parts_of_one_sequence() -> None:
    whole = prims.philox(key(), (12,))
    parts = [prims.philox(key(shard=rank), (4,)) for rank in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_uniform_lies_in_its_range_and_has_its_moments() -> None:
    for dtype in (dt.float32, dt.float64, dt.bfloat16):
        x = F.rand(key(), (100_000,), low=-1.0, high=3.0, dtype=dtype).astype(np.float64)
        assert x.min() >= -1.0
        assert x.max() <= 3.0
        assert abs(x.mean() - 1.0) < 0.02
        assert abs(x.std() - 4 / np.sqrt(12)) < 0.02
    assert F.rand(key(), (10**6,)).max() < 1.0


def test_normal_has_its_moments_and_tails() -> None:
    for dtype in (dt.float32, dt.float64):
        x = F.randn(key(2), (200_000,), mean=1.0, std=2.0, dtype=dtype).astype(np.float64)
        z = (x - 1.0) / 2.0
        moments = z.mean(), (z**2).mean(), (z**3).mean(), (z**4).mean()
        np.testing.assert_allclose(moments, (0, 1, 0, 3), atol=0.06)
        assert abs((np.abs(z) < 1.96).mean() - 0.95) < 0.003
        assert np.isfinite(x).all()


def test_integers_cover_their_range_evenly() -> None:
    x = F.randint(key(3), -2, 5, (70_000,))
    assert x.dtype == np.int64
    counts = np.bincount(x + 2, minlength=7)
    assert counts.shape == (7,)
    assert np.abs(counts - 10_000).max() < 500
    with pytest.raises(ShapeError):
        F.randint(key(), 5, 5, (3,))


def test_bernoulli_and_dropout_keep_the_right_share() -> None:
    assert abs(F.bernoulli(key(4), 0.3, (100_000,)).mean() - 0.3) < 0.01
    x = np.ones(100_000, np.float32)
    dropped = F.dropout(x, 0.3, rng=(key(5), 0))
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((dropped == 0).mean() - 0.3) < 0.01
    assert abs(dropped.mean() - 1.0) < 0.01


def test_dropout_at_its_ends() -> None:
    x = np.ones(4, np.float32)
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 0.9, training=False) is x
    np.testing.assert_array_equal(F.dropout(x, 1.0), 0 * x)
    with pytest.raises(ShapeError):
        F.dropout(x, 1.5)
    with pytest.raises(ShapeError):
        F.dropout(x, 0.5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fill", ["native", "numpy"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64])
def test_large_draws_have_the_bits_of_the_composition(
    monkeypatch: pytest.MonkeyPatch, dtype: dt.DType, fill: str, threads: int
) -> None:
    """They are made block by block, by several threads; here over five blocks, the last of them short."""
    if fill == "numpy":
        monkeypatch.setattr(draws, "_steps", lambda: draws.NUMPY)
    shape = (3, (3 << 15) - 3)
    for draw in (
        lambda k: F.rand(k, shape, stream=2, dtype=dtype),
        lambda k: F.rand(k, shape, low=-0.1, high=0.3, dtype=dtype),
        lambda k: F.randn(k, shape, stream=2, dtype=dtype),
        lambda k: F.randn(k, shape, mean=1.0, std=0.02, dtype=dtype),
    ):
        for given in (key(1), key(2**64 - 5, 2**64 - 2, 7)):
            with config.patch(num_threads=threads):
                whole = draw(given)
            with monkeypatch.context() as patch:
                patch.setattr(draws, "LARGE", 1 << 60)
                composed = draw(given)
            assert whole.dtype == composed.dtype
            np.testing.assert_array_equal(whole.view(np.uint8), composed.view(np.uint8))


def test_weights_drawn_in_one_pass_have_the_bits_of_draw_and_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[bytes]:
        torch.manual_seed(3)
        parameter = torch.nn.Parameter(torch.empty(300, 300))
        found = []
        for fill in (torch.nn.init.normal_, torch.nn.init.xavier_uniform_):
            found.append(fill(parameter).detach().numpy().tobytes())
        torch.nn.init.normal_(parameter, 0.5, 0.02)
        return [*found, parameter.detach().numpy().tobytes()]

    whole = drawn()
    monkeypatch.setattr(draws, "LARGE", 1 << 60)
    assert whole == drawn()
