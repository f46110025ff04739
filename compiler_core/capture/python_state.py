"""State of Python objects that are no containers: generators of random numbers, small NumPy arrays, classes.

In: any object. Out: `state_of`, a copy of what it holds (None if it is none of these), `has_changed` since, `restore`.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from compiler_core.capture.environment import is_users

LARGEST_ARRAY_NBYTES = 65536
_ABSENT = object()


def state_of(thing: Any) -> Any:
    """A copy of what `thing` holds; None if it is not of these kinds."""
    if isinstance(thing, np.random.Generator):
        return thing.bit_generator.state
    if type(thing) is random.Random and thing is not getattr(random.random, "__self__", None):  # see RandomWatch
        return thing.getstate()
    if type(thing) is np.ndarray and thing.nbytes <= LARGEST_ARRAY_NBYTES and thing.dtype != object:
        return thing.copy()
    if isinstance(thing, type) and is_users_class(thing):
        return {name: value for name, value in vars(thing).items() if not name.startswith("__")}
    return None


def has_changed(thing: Any, state: Any) -> bool:
    """Whether `thing` holds something else than `state`, a copy made before."""
    now = state_of(thing)
    if isinstance(thing, np.random.Generator):
        return repr(now) != repr(state)
    if isinstance(thing, random.Random):
        return bool(now != state)
    if isinstance(thing, np.ndarray):
        return bool(now.tobytes() != state.tobytes())
    return any(now.get(name, _ABSENT) is not state.get(name, _ABSENT) for name in now.keys() | state.keys())


def restore(thing: Any, state: Any) -> None:
    """Have `thing` hold `state` again."""
    if isinstance(thing, np.random.Generator):
        thing.bit_generator.state = state
    elif isinstance(thing, random.Random):
        thing.setstate(state)
    elif isinstance(thing, np.ndarray):
        thing[...] = state
    else:
        now = state_of(thing)
        for name in now.keys() - state.keys():
            delattr(thing, name)
        for name in state:
            if now.get(name, _ABSENT) is not state[name]:
                setattr(thing, name, state[name])


def is_users_class(cls: type) -> bool:
    """Whether a class is written in Python by the user; one from no file (an interpreter's) is."""
    filename = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return cls.__module__ != "builtins" and is_users(filename or "<the user's>")
