"""`Timer`: runs a statement as often as it takes to know its time.

In: Python text, and the names that it uses. Out: `Measurement`s. As torch: on one thread unless told, after a warm-up,
with the device awaited at both ends of a run.
"""

from __future__ import annotations

import enum
import textwrap
import timeit
from collections.abc import Callable
from statistics import median
from typing import Any, NoReturn

from distcompile import cuda
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.utils.benchmark.measurement import Measurement, TaskSpec, set_torch_threads

LEAST_S = 1e-9  # of a run: nothing is quicker
_OVERHEAD = 1e-4  # the share of a run that calling the timer may take
_MOST_RUNS = 2**31 - 1


class Language(enum.Enum):
    """What a statement is written in."""

    PYTHON = 0
    CPP = 1


def timer() -> float:
    """Seconds, once the GPU has done what it was given."""
    if cuda.is_available() and cuda.is_initialized():
        cuda.synchronize()
    return timeit.default_timer()


def _dedented(text: str) -> str:
    return textwrap.dedent(text).removeprefix("\n").rstrip()


class Timer:
    """Measures `stmt`, text of Python, after `setup`, with the names in `globals`; `torch` is this package if unset.

    label, sub_label, description, env: for tables. Raises NotSupportedError for C++.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise ArgumentError("Currently only a `str` stmt is supported.")
        if language in (Language.CPP, "cpp", "c++"):
            raise NotSupportedError("a Timer of C++ is not offered", remedy="write the statement in Python")
        if language not in (Language.PYTHON, "py", "python"):
            raise ArgumentError(f"Invalid language `{language}`.")
        if global_setup:
            raise ArgumentError(f"global_setup is C++ only, got `{global_setup}`", remedy="move it to setup")
        stmt, setup = _dedented(stmt), _dedented(setup)
        names = dict(globals or {})
        if "torch" not in names:
            import distcompile

            names["torch"] = distcompile
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _run(self, number: int) -> float:
        return max(self._timer.timeit(number), LEAST_S)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """`number` executions as one run, after a hundredth as many to warm up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._run(max(number // 100, 2))
            return Measurement(number, [self._run(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """Raises NotImplementedError, as torch."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> NoReturn:
        """Raises NotImplementedError, as torch."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time: float) -> int:
        """Executions a run, so many that calling the timer is nothing beside them. A warm-up, too."""
        overhead = median(self._run(0) for _ in range(5))
        number = 1
        while True:
            took = self._run(number)
            is_enough = overhead / took <= _OVERHEAD and took >= min_run_time / 1000
            if is_enough or took > min_run_time or number * 10 > _MOST_RUNS:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Runs for `min_run_time` seconds at least, of as many executions as need be. callback(number, seconds)."""
        return self._measured(min_run_time, None, lambda found: True, callback, min_run_time)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """The same, until the spread is below `threshold` of the median, or `max_run_time` seconds are over."""

        def is_sure(found: Measurement) -> bool:
            return len(found.raw_times) > 3 and found.meets_confidence(threshold)

        return self._measured(min_run_time, max_run_time, is_sure, callback, 0.05)

    def _measured(
        self,
        least_s: float,
        most_s: float | None,
        is_sure: Callable[[Measurement], bool],
        callback: Callable[[int, float], Any] | None,
        for_block_s: float,
    ) -> Measurement:
        with set_torch_threads(self._task_spec.num_threads):
            found = Measurement(self._block_size(for_block_s), [], self._task_spec)
            total_s, stops = 0.0, False
            while total_s < least_s or not stops:
                took = self._run(found.number_per_run)
                found = Measurement(found.number_per_run, [*found.raw_times, took], self._task_spec)
                total_s += took
                if callback is not None:
                    callback(found.number_per_run, took)
                stops = is_sure(found)
                if most_s and total_s > most_s:
                    break
        return found

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """torch's counts of instructions. Raises NotSupportedError."""
        raise NotSupportedError("Timer.collect_callgrind is not offered", remedy="blocked_autorange measures times")
