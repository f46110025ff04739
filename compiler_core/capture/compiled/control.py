"""What may be done when a call fits nothing that was compiled, for the whole process; and forgetting what was compiled.

In: a stance (torch.compiler.set_stance's names, and "frozen"). Out: what `Point` asks before it captures.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from compiler_core.errors import ConfigError
from compiler_core.forward import level
from compiler_core.ops.batching.value import levels

STANCES = {
    "default": "what fits nothing is compiled",
    "force_eager": "nothing runs compiled",
    "eager_on_recompile": "what fits nothing runs eager, where something was compiled before",
    "fail_on_recompile": "what fits nothing is an error, where something was compiled before",
    "frozen": "what fits nothing runs eager: nothing is compiled any more",
}


class _Stance(threading.local):
    name = "default"


stance = _Stance()
states: WeakSet[Any] = WeakSet()  # of all compiled functions


def is_transformed() -> bool:
    """Whether this thread is in a function that vmap maps, or that forward mode differentiates: it runs as it is."""
    return bool(levels()) or (level.on and bool(level.levels()))


def check_stance(name: str) -> str:
    """Raises ConfigError for one that there is not."""
    if name not in STANCES:
        raise ConfigError(f"there is no stance {name!r}", expected="; ".join(f"{k}: {v}" for k, v in STANCES.items()))
    return name


@contextmanager
def stand(name: str) -> Iterator[None]:
    """Within the block this thread's stance is `name`."""
    before, stance.name = stance.name, check_stance(name)
    try:
        yield
    finally:
        stance.name = before


def reset() -> None:
    """Forget everything that was compiled, and learnt: the next call of each function is its first."""
    for state in list(states):
        state.forget()
