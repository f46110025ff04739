"""Measured tiles (mode "max-autotune"), with a driver that is not there: what is tried, chosen, kept and left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core import cuda
from compiler_core.codegen.cuda import tune
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.codegen.triton.module import Launch
from compiler_core.codegen.triton.tiles import Shape, Tile, candidates, choose
from compiler_core.config import config
from compiler_core.dtype import float32, int64
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.runtime.cuda import measure
from compiler_core.runtime.cuda.executable import CudaExecutable
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import graph_of, on_device, on_host

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


class Clock:
    """Says how long each trial took: `wanted` is the fastest. tried: what was measured, in order."""

    def __init__(self, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake, self.wanted, self.tried = fake, -1, list[str]()
        monkeypatch.setattr(measure, "shortest_us", self._time)

    def _time(self, run: Any) -> float:
        run()
        self.tried.append(self.fake.names[-1])
        function = self.tried[-1].split(" as ")[0]
        number = sum(name.startswith(function) for name in self.tried) - 1
        return 10.0 if number == self.wanted else 20.0


@pytest.fixture
def clock(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Clock]:
    monkeypatch.setattr(tune, "LEAST", 1 << 10)
    with config.patch(cache_dir=tmp_path):
        yield Clock(fake_cuda, monkeypatch)


def compiled(function: Any, *metas: TensorMeta) -> CudaExecutable:
    (run,) = CudaBackend(90, tuned=True).compile([graph_of(function, *metas)], "test")
    return run


def normalised(x: Any) -> Any:
    return F.sub(x, F.mean(x, (1,), True))


def launched(fake: FakeCuda) -> list[Launch]:
    """What was launched last of all that has the name of each kernel."""
    names = [launch["kernel"] for launch in fake.named("cuLaunchKernel")]
    return [[made for made, _ in fake.functions.values() if made.function == name][-1] for name in names]


ROWS = TensorMeta((40, 300), float32)


def test_the_fastest_tile_is_the_one_that_runs(fake_cuda: FakeCuda, clock: Clock, rng: Any) -> None:
    clock.wanted = 2
    run = compiled(normalised, ROWS)
    assert len(clock.tried) > 3
    x = rng.standard_normal(ROWS.shape).astype(np.float32)
    fake_cuda.calls.clear()
    (out,) = run([on_device(x)])
    np.testing.assert_allclose(on_host(out), x - x.mean(1, keepdims=True), rtol=1e-5, atol=1e-5)
    (chosen,) = launched(fake_cuda)
    assert f"{chosen.function} as {chosen.tile}" == clock.tried[2]
    assert chosen.shape is not None
    assert chosen.tile == [*dict.fromkeys(candidates(chosen.shape))][2]


@pytest.mark.long
def test_every_candidate_gives_the_same_elements(fake_cuda: FakeCuda, clock: Clock, rng: Any, tmp_path: Path) -> None:
    x = rng.standard_normal(ROWS.shape).astype(np.float32)
    for wanted in range(4):
        clock.wanted, clock.tried = wanted, []
        with config.patch(cache_dir=tmp_path / str(wanted)):
            (out,) = compiled(normalised, ROWS)([on_device(x)])
        np.testing.assert_allclose(on_host(out), x - x.mean(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_longer_vectors_are_tried_where_lanes_are_independent(
    fake_cuda: FakeCuda, clock: Clock, rng: Any, tmp_path: Path
) -> None:
    """Fewer programs: starting one takes a device time, too."""
    x, lanes = rng.standard_normal(5000).astype(np.float32), []
    for wanted in range(5):
        clock.wanted, clock.tried = wanted, []
        with config.patch(cache_dir=tmp_path / str(wanted)):
            run = compiled(lambda x: F.mul(x, 3.0), TensorMeta((5000,), float32))
        fake_cuda.calls.clear()
        np.testing.assert_array_equal(on_host(run([on_device(x)])[0]), x * np.float32(3.0))
        (chosen,) = launched(fake_cuda)
        lanes.append(chosen.tile.lanes if chosen.tile else 0)
    assert lanes[3:] == [2 * lanes[0], 4 * lanes[0]]


@pytest.mark.parametrize(
    ("rows", "columns", "width", "loaded", "costly", "tile"),
    [
        (0, 1 << 20, 4, 4, False, Tile(1, 512, 4)),
        (0, 1 << 25, 4, 4, False, Tile(1, 1024, 2)),  # a weight's cast: 78 us where shorter programs take 127
        (0, 1 << 24, 4, 4, True, Tile(1, 1024, 4)),
        (0, 1 << 25, 4, 4, True, Tile(1, 2048, 8)),
        (0, 1 << 25, 4, 16, False, Tile(1, 512, 4)),  # an optimizer's: has enough to load
        (64, 50304, 2, 2, False, Tile(1, 1024, 2)),
        (16384, 3072, 2, 2, True, Tile(2, 1024, 8)),  # gelu: 56.5 us, of one row 62.7
        (256 * 56 * 56, 64, 2, 2, False, Tile(32, 64, 4)),
        (256 * 14 * 14, 64, 2, 2, False, Tile(16, 64, 2)),
        (16384, 50304, 2, 2, False, Tile(4, 1024, 8)),  # the logits' gradient: 786 us, of one row 993
    ],
)
def test_many_programs_have_more_to_do(
    rows: int, columns: int, width: int, loaded: int, costly: bool, tile: Tile
) -> None:
    """As measured on an H200."""
    shape = Shape(rows, columns, True, False, 1, False, False, False, costly, width=width, loaded=loaded)
    assert choose(shape) == tile


def test_a_choice_is_kept_for_other_programs_with_that_kernel(
    fake_cuda: FakeCuda, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    clock.wanted = 1
    with config.patch(logs=frozenset({"tuning"})):
        first = compiled(normalised, ROWS)
        tried = len(clock.tried)
        compiled(normalised, ROWS)  # found in the cache, and told again
    told = [line for line in capsys.readouterr().err.splitlines() if "_0: Tile(" in line and "by rule Tile(" in line]
    assert len(told) == 2
    assert told[0] == told[1]
    assert tried
    compiled(lambda x: prims.matmul(normalised(x), F.transpose(x, 0, 1)), ROWS)
    assert len(clock.tried) == tried
    assert len(fake_cuda.named("cuModuleUnload")) == tried
    assert first.entry.functions


def test_a_rule_is_left_only_for_something_clearly_faster(
    fake_cuda: FakeCuda, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([10.0, *[9.9] * 50])
    monkeypatch.setattr(measure, "shortest_us", lambda run: next(times))
    run = compiled(normalised, ROWS)
    fake_cuda.calls.clear()
    run([on_device(np.zeros(ROWS.shape, np.float32))])
    (chosen,) = launched(fake_cuda)
    assert chosen.shape is not None
    assert chosen.tile == choose(chosen.shape)


def test_what_cannot_run_is_passed_over(fake_cuda: FakeCuda, clock: Clock, rng: Any) -> None:
    fake_cuda.fails["cuModuleLoadData"] = 209
    run = compiled(normalised, ROWS)
    assert not clock.tried
    del fake_cuda.fails["cuModuleLoadData"]
    x = rng.standard_normal(ROWS.shape).astype(np.float32)
    (out,) = run([on_device(x)])
    np.testing.assert_allclose(on_host(out), x - x.mean(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_small_kernels_and_those_of_data_are_left_alone(
    fake_cuda: FakeCuda, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, places = TensorMeta((50, 64), float32), TensorMeta((64,), int64)
    compiled(lambda w, i, g: prims.index_add(w, i, g), table, places, TensorMeta((64, 64), float32))
    assert not clock.tried
    monkeypatch.setattr(tune, "LEAST", 1 << 20)
    compiled(lambda x: F.mul(x, 3.0), ROWS)
    assert not clock.tried


def test_modes_name_the_backends(fake_cuda: FakeCuda, clock: Clock, rng: Any) -> None:
    x = distcompile.tensor(rng.standard_normal((64, 64)).astype(np.float32), device="cuda")
    for mode in ("max-autotune-no-cudagraphs", "max-autotune"):
        out = distcompile.compile(lambda x: distcompile.softmax(x, 1), mode=mode)(x)
        np.testing.assert_allclose(out.cpu().numpy().sum(1), 1, rtol=1e-5)
    assert clock.tried
    host = distcompile.compile(lambda x: x * 2, mode="max-autotune")(x.cpu())
    np.testing.assert_array_equal(host.numpy(), 2 * x.cpu().numpy())


def test_without_a_device_tiles_are_the_rules(
    fake_cuda: FakeCuda, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "why_not", lambda: "there is none")
    with pytest.warns(UserWarning, match="tiles are the rule's, none was measured: there is none"):
        assert tune.choose_tiles([], {}, 90, Path(), None, None, "3.6", print) == {}  # type: ignore[arg-type]


def test_tiles_are_numbers_in_the_cache() -> None:
    assert Tile(*[1, 2, 4, 0]) == Tile(rows=1, lanes=2, warps=4, stages=0)
