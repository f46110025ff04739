"""torch.utils.benchmark: how long a statement takes, measured so that the answer can be trusted, and compared.

In: a statement as text. Out: `Measurement`s of a `Timer`, and tables of them (`Compare`). Fuzzers, C++ statements and
Callgrind are not offered.
"""

from __future__ import annotations

from distcompile.utils.benchmark.compare import Colorize, Compare
from distcompile.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from distcompile.utils.benchmark.timer import Language, Timer, timer

__all__ = [
    "Colorize",
    "Compare",
    "Language",
    "Measurement",
    "TaskSpec",
    "Timer",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]
