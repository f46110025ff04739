"""16-bit arithmetic on a CUDA device by one kernel an op, which the stand-in runs: the numbers of the ops' own rules,
whatever the operands look like; what it does not take; and that kernels that are wrong are not used."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device import kernels as device_kernels
from compiler_core.eager.device import orders as device_orders
from compiler_core.eager.device import proof as device_proof
from compiler_core.log import DistCompileWarning
from compiler_core.ops.registry import OPS, run_eager
from tests.compiler_core.eager.test_whole_on_device import nvrtc_library
from tests.fake_cupy import on_fake_device

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, 65520.0, 3e38, -1e-7]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(device_proof, "_proved", {})
    with on_fake_device() as module:
        yield module


def numbers(shape: Any, dtype: Any, rng: np.random.Generator) -> Any:
    made = rng.normal(size=shape) * 4
    places = rng.integers(0, made.size, size=min(made.size, 9)) if made.size else []
    made.reshape(-1)[places] = SPECIAL[: len(places)]
    with np.errstate(all="ignore"):
        return made.astype(dtype)


def given(kind: str, dtype: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """A pair of operands on the device, of one shape."""
    xp = cuda.module()
    there = lambda shape: cuda.put(numbers(shape, dtype, rng), 0)  # noqa: E731
    last = lambda shape: there((*shape[:1], *shape[2:], shape[1])).transpose(0, 3, 1, 2)  # noqa: E731
    spread = xp.broadcast_to
    return {
        "dense": lambda: (there((9, 16)), there((9, 16))),
        "odd": lambda: (there((3, 5, 7)), there((3, 5, 7))),
        "one": lambda: (there(()), there(())),
        "row": lambda: (there((4, 3, 16)), xp.broadcast_to(there((16,)), (4, 3, 16))),
        "matrix": lambda: (there((4, 3, 8)), xp.broadcast_to(there((1, 3, 8)), (4, 3, 8))),
        "odd row": lambda: (there((4, 13)), xp.broadcast_to(there((13,)), (4, 13))),
        "number": lambda: (there((4, 16)), xp.broadcast_to(there(()), (4, 16))),
        "column": lambda: (there((4, 16)), xp.broadcast_to(there((4, 1)), (4, 16))),
        "inner": lambda: (there((4, 2, 16)), xp.broadcast_to(there((4, 1, 16)), (4, 2, 16))),
        "turned": lambda: (there((8, 16)), there((16, 8)).T),
        "last": lambda: (last((4, 8, 3, 5)), last((4, 8, 3, 5))),
        "last, odd": lambda: (last((4, 3, 3, 5)), last((4, 3, 3, 5))),
        "last and first": lambda: (last((4, 8, 3, 5)), there((4, 8, 3, 5))),
        "first and last": lambda: (there((4, 8, 3, 50)), last((4, 8, 3, 50))),
        "channel": lambda: (there((4, 3, 8, 5)), spread(there((3, 1, 1)), (4, 3, 8, 5))),
        "channel, odd": lambda: (there((4, 3, 7, 5)), spread(there((1, 3, 1, 1)), (4, 3, 7, 5))),
        "channel last": lambda: (last((4, 8, 7, 5)), spread(there((8, 1, 1)), (4, 8, 7, 5))),
        "gate": lambda: (there((4, 3, 8, 5)), spread(there((4, 3, 1, 1)), (4, 3, 8, 5))),
        "gate last": lambda: (last((4, 8, 7, 5)), spread(there((4, 8, 1, 1)), (4, 8, 7, 5))),
        "number last": lambda: (last((4, 8, 7, 5)), spread(there(()), (4, 8, 7, 5))),
        "in two ways": lambda: (there((2, 3, 4, 5, 6)), spread(there((2, 1, 4, 1, 6)), (2, 3, 4, 5, 6))),
        "first repeats": lambda: (xp.broadcast_to(there((16,)), (4, 16)), there((4, 16))),
        "both repeat": lambda: (xp.broadcast_to(there((16,)), (4, 16)), xp.broadcast_to(there((16,)), (4, 16))),
        "not on 16 bytes": lambda: (there((33,))[1:], there((34,))[2:]),
        "gaps": lambda: (there((4, 3, 32))[..., 8:], there((4, 5, 24))[:, 1:4]),
        "odd gaps": lambda: (there((4, 3, 32))[..., 1:14], there((8, 3, 13))[::2]),
        "gaps and a row": lambda: (there((4, 3, 32))[..., 16:], xp.broadcast_to(there((16,)), (4, 3, 16))),
        "gaps and a column": lambda: (there((4, 3, 32))[..., 16:], xp.broadcast_to(there((4, 3, 1)), (4, 3, 16))),
        "a row and gaps": lambda: (xp.broadcast_to(there((16,)), (4, 3, 16)), there((4, 3, 32))[..., 16:]),
        "backwards": lambda: (there((4, 16))[::-1], there((4, 16))[:, ::-1]),
        "turned gaps": lambda: (there((6, 4, 32))[..., 16:].transpose(1, 0, 2), there((16, 4, 6)).transpose(1, 2, 0)),
        "channels of last": lambda: (last((4, 16, 7, 5))[:, 8:], last((4, 16, 7, 5))[:, :8]),
        "gaps, host's": lambda: (there((3, 16))[:, 8:], np.broadcast_to(dtype.type(0.3), (3, 8))),
        "too many dims": lambda: (there((3,) * 7)[(slice(2),) * 7], there((3,) * 7)[(slice(1, 3),) * 7]),
        "host's": lambda: (there((3, 8)), np.broadcast_to(dtype.type(0.3), (3, 8))),
        "host's first": lambda: (np.broadcast_to(dtype.type(0.3), (3, 8)), there((3, 8))),
        "empty": lambda: (there((0, 8)), there((0, 8))),
    }[kind]()


TAKEN = [
    *(
        "dense",
        "odd",
        "one",
        "row",
        "matrix",
        "odd row",
        "number",
        "not on 16 bytes",
        "host's",
        "column",
        "inner",
        "turned",
    ),
]
TAKEN += ["last", "last, odd", "last and first", "first and last", "channel", "channel, odd", "channel last"]
TAKEN += ["gate", "gate last", "number last"]
TAKEN += ["both repeat", "in two ways", "first repeats", "gaps", "odd gaps", "gaps and a row", "gaps and a column"]
TAKEN += ["a row and gaps", "backwards", "turned gaps", "channels of last", "gaps, host's"]
LEFT = ["empty", "too many dims"]
LAST = [
    "channels of last",
    "last",
    "last, odd",
    "last and first",
    "first and last",
    "channel last",
    "gate last",
    "number last",
]


def same(result: Any, expected: Any) -> None:
    """The same bits, but of a NaN."""
    found, expected = cuda.fetch(result), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    wide, other = found.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(other))
    is_number = ~np.isnan(wide)
    assert found[is_number].tobytes() == expected[is_number].tobytes()


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("kind", [*TAKEN, *LEFT, "host's first"])
def test_the_rules_numbers(kind: str, dtype: Any, asked: list[str]) -> None:
    for name in ("add", "sub", "mul", "div"):
        operands = given(kind, dtype, np.random.default_rng(len(kind)))
        on_host = [np.asarray(cuda.fetch(x) if cuda.is_array(x) else x) for x in operands]
        run_eager(OPS[name], given("dense", dtype, np.random.default_rng(0)), {})  # which proves its kernels
        asked.clear()
        with np.errstate(all="ignore"):
            found = run_eager(OPS[name], operands, {})
            same(found, OPS[name].eager(np, *on_host))
        assert device_orders.lies_last(found) == (kind in LAST), name
        turns = kind == "host's first" and name in ("add", "mul")
        assert (asked[-1:] in (["join"], ["join_any"])) == (kind in TAKEN or turns), name


@pytest.mark.parametrize("channels", [16, 15])
def test_float32_with_channels_last_stays_so(channels: int, asked: list[str]) -> None:
    rng, shape = np.random.default_rng(3), (4, channels, 36, 32)
    turned = (shape[0], *shape[2:], channels)
    last = [cuda.put(rng.normal(size=turned).astype(F32), 0).transpose(0, 3, 1, 2) for _ in "12"]
    rows, channel = (cuda.put(rng.normal(size=s).astype(F32), 0) for s in (shape, (channels, 1, 1)))
    spread = cuda.module().broadcast_to(channel, shape)
    cases = [
        tuple(last),
        (last[0], rows),
        (rows, last[0]),
        (last[0], spread),
        (last[0], np.broadcast_to(F32.type(3), shape)),
    ]
    for name, (a, b) in itertools.product(("add", "sub", "mul", "div"), cases):
        asked.clear()
        found = run_eager(OPS[name], [a, b], {})
        expected = OPS[name].eager(np, *(cuda.fetch(x) if cuda.is_array(x) else x for x in (a, b)))
        assert cuda.fetch(found).tobytes() == np.ascontiguousarray(expected).tobytes(), name
        assert device_orders.lies_last(found)
        assert "join" in asked
    asked.clear()
    found = run_eager(OPS["add"], [rows, rows], {})
    assert asked == ["join"]
    assert cuda.fetch(found).tobytes() == (2 * cuda.fetch(rows)).tobytes()


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("shape", [(16, 8), (5, 7), (), (0, 3), (3, 8, 24)], ids=str)
def test_conversions(shape: Any, dtype: Any, asked: list[str]) -> None:
    rng = np.random.default_rng(1)
    for source, target in ((dtype, F32), (F32, dtype)):
        x = numbers(shape, source, rng)
        asked.clear()
        with np.errstate(all="ignore"):
            same(run_eager(OPS["cast"], [cuda.put(x, 0)], {"dtype": of(target)}), x.astype(target))
        assert ("widen" if target is F32 else "narrow") in asked or not x.size
    others = ((dtype, F16 if dtype is BF16 else BF16), (np.dtype(np.int64), dtype), (np.dtype(np.float64), dtype))
    for source, target in others:
        x = np.arange(6).astype(source)
        asked.clear()
        same(run_eager(OPS["cast"], [cuda.put(x, 0)], {"dtype": of(target)}), x.astype(target))
        assert not asked


@pytest.mark.parametrize("name", ["add", "cast"])
def test_a_kernel_that_is_wrong_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = device_kernels.source

    def wrong(dtype: Any, file: str = "kernels.cu") -> str:
        text = right(dtype, file)
        return text.replace("x + y", "x + y + 1").replace("= in(narrow", "= 2 * in(narrow")

    monkeypatch.setattr(device_kernels, "source", wrong)
    monkeypatch.setattr(device_kernels, "_modules", {})
    x = np.arange(160).reshape(20, 8).astype(BF16)
    operands, attrs = [cuda.put(x, 0)], {"dtype": of(F32)} if name == "cast" else {}
    with pytest.warns(DistCompileWarning, match="other numbers than the CPU"):
        found = run_eager(OPS[name], operands * (2 if name == "add" else 1), attrs)
    same(found, OPS[name].eager(np, *[x] * (2 if name == "add" else 1), **attrs))


def test_the_kernels_compile_for_devices() -> None:
    """By NVRTC, as CuPy compiles them; it needs no device."""
    nvrtc = nvrtc_library()
    for dtype in (BF16, F16):
        program, text = ctypes.c_void_p(), device_kernels.source(dtype, "narrow.cu").encode()
        assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
        options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++17")
        assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0


def test_training_uses_them(asked: list[str]) -> None:
    import distcompile as torch

    layer = torch.nn.Linear(16, 24).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        out = layer(torch.randn(5, 16, device="cuda")) * 0.5
    out.float().sum().backward()
    assert {"join", "narrow", "widen", "sum_down"} <= set(asked)
