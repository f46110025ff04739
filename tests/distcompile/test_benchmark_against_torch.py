"""utils.benchmark: what torch prints of the same measurements; and that a Timer measures."""

from __future__ import annotations

import pickle
import random
import time
from typing import Any

import pytest

import distcompile as dc
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.utils import benchmark

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def theirs() -> Any:
    import torch.utils.benchmark as found

    return found


def measurements(library: Any, seed: int = 3) -> list[Any]:
    """The same of either library: labels, environments, threads, sub-labels, descriptions, holes, spread."""
    rng, made = random.Random(seed), []
    names = [(label, env, sub) for label in ("mm", None) for env in ("a", "bb") for sub in ("x", "long name", None)]
    for label, env, sub in names:
        for threads in (1, 4):
            for description in ("d1", "second"):
                if sub is None and description == "d1":
                    continue
                base = 10 ** rng.uniform(-6, -3)
                for _ in range(2):
                    spread = 0.3 if sub == "x" else 0.02
                    times = [base * (1 + rng.uniform(0, spread)) for _ in range(rng.choice([1, 5, 20]))]
                    task = library.TaskSpec(
                        stmt="a @ b", setup="pass", label=label, sub_label=sub, description=description,
                        env=env if label else None, num_threads=threads,
                    )  # fmt: skip
                    made.append(library.Measurement(rng.choice([1, 10]), times, task))
    return made


OPTIONS = [
    (),
    ("trim_significant_figures",),
    ("colorize",),
    ("highlight_warnings",),
    ("trim_significant_figures", "colorize", "highlight_warnings"),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rowwise", [False, True])
def test_tables_are_torchs(options: tuple[str, ...], rowwise: bool, theirs: Any) -> None:
    mine, want = benchmark.Compare(measurements(benchmark)), theirs.Compare(measurements(theirs))
    for option in options:
        arguments = {"rowwise": rowwise} if option == "colorize" else {}
        getattr(mine, option)(**arguments), getattr(want, option)(**arguments)
    assert str(mine) == str(want)


@pytest.mark.parametrize("seed", range(5))
def test_a_measurement_says_what_torchs_does(seed: int, theirs: Any) -> None:
    for mine, want in zip(measurements(benchmark, seed), measurements(theirs, seed), strict=True):
        assert repr(mine).splitlines()[1:] == repr(want).splitlines()[1:]
        for name in ("median", "mean", "iqr"):
            assert getattr(mine, name) == pytest.approx(getattr(want, name), rel=1e-12)
        assert (mine.significant_figures, mine.has_warnings) == (want.significant_figures, want.has_warnings)
        assert (mine.title, mine.as_row_name, mine.label) == (want.title, want.as_row_name, want.label)
        assert pickle.loads(pickle.dumps(mine)).times == mine.times


@pytest.mark.parametrize("value", [3.14159, 0.000123456, 98765.0, 1.0])
def test_figures_and_units(value: float, theirs: Any) -> None:
    for n in range(1, 5):
        assert benchmark.trim_sigfig(value, n) == pytest.approx(theirs.trim_sigfig(value, n), rel=1e-6)
    assert benchmark.select_unit(value) == theirs.select_unit(value)
    assert benchmark.unit_to_english("us") == "microsecond"


def test_a_timer_measures() -> None:
    timer = benchmark.Timer("pause(0.002)", globals={"pause": time.sleep}, label="sleeping", num_threads=2)
    threads = dc.get_num_threads()
    found = timer.blocked_autorange(min_run_time=0.02)
    assert dc.get_num_threads() == threads
    assert 0.002 <= found.median < 0.2
    assert sum(found.raw_times) >= 0.02
    assert timer.timeit(3).number_per_run == 3
    told: list[int] = []
    adaptive = timer.adaptive_autorange(min_run_time=0.01, max_run_time=0.5, callback=lambda n, s: told.append(n))
    assert len(told) == len(adaptive.raw_times)
    block = benchmark.Timer(
        """
        y = x.sum()
        y = y + n
        """,
        setup="x = torch.ones(3)",
        globals={"n": 2},
    )
    assert "  y = x.sum()\n  y = y + n" in repr(block.timeit(5))


def test_what_is_not_offered_is_named() -> None:
    with pytest.raises(NotSupportedError, match="C\\+\\+"):
        benchmark.Timer("f();", language="cpp")
    with pytest.raises(NotSupportedError, match="callgrind"):
        benchmark.Timer().collect_callgrind()
    with pytest.raises(ArgumentError, match="global_setup"):
        benchmark.Timer(global_setup="x")
    with pytest.raises(NotImplementedError, match="blocked_autorange"):
        benchmark.Timer().repeat()
    with pytest.raises(ArgumentError, match="Measurement"):
        benchmark.Compare([1])  # type: ignore[list-item]
