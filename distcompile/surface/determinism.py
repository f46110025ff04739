"""torch's switches for deterministic algorithms, set and read back. What they change: see
compiler_core/ops/indexing/adding.py.

In: a bool. Out: the same bool.
"""

from __future__ import annotations

from compiler_core.ops.indexing.adding import mode as _mode
from distcompile.errors import ArgumentError


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for deterministic algorithms. There is one other: eager sums into repeated places of a CUDA tensor."""
    _mode.update(on=mode, warn_only=warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was last told."""
    return _mode["on"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What its `warn_only` was."""
    return _mode["warn_only"]


_DEBUG_MODES = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by one word: 0 or "default" (off), 1 or "warn", 2 or "error".

    Raises: ArgumentError for another number or word.
    """
    modes: tuple[int | str, ...] = _DEBUG_MODES if isinstance(debug_mode, str) else (0, 1, 2)
    if debug_mode not in modes:
        raise ArgumentError("invalid value of debug_mode", expected=", ".join(map(repr, modes)), got=repr(debug_mode))
    level = modes.index(debug_mode)
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: see `set_deterministic_debug_mode`."""
    return 0 if not _mode["on"] else 1 if _mode["warn_only"] else 2
