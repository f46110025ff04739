"""Small programs with effects on Python state: each makes a function of one tensor, and the state that it changes.

In: `log`, a list that the program may write to; what it prints counts too. Out: `PROGRAMS`: name -> maker, which gives
(function, state). Two makings share nothing, so that one can run compiled and the other plainly.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import distcompile as torch

Maker = Callable[[list[Any]], tuple[Callable[[Any], Any], Any]]
PROGRAMS: dict[str, Maker] = {}
KEPT: dict[str, Any] = {}
NUMBERS = np.random


def program(make: Maker) -> Maker:
    PROGRAMS[make.__name__] = make
    return make


def reset() -> None:
    """The module's own state, as before any program."""
    KEPT.clear()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


class Box:
    """An object of the user's."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    a: Any
    b: Any
