"""torch.nn.modules.utils' names that model files and training scripts use.

In: a size to be said once a dim; or a state dict, changed in place. Out: a tuple; nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take `prefix` ("module." of DDP) off every key that begins with it; the order of the keys stays."""
    for key in list(state_dict):
        state_dict[key.removeprefix(prefix)] = state_dict.pop(key)


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes `n` of one thing, and a tuple of an iterable as it is."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Each element n times, last first: as functional.pad takes paddings."""
    return tuple(x for x in reversed(t) for _ in range(n))
