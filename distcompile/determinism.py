"""torch's switches for deterministic algorithms, set and read back. What they change: see compiler_core/ops/adding.py.

In: a bool. Out: the same bool.
"""

from __future__ import annotations

from compiler_core.ops.adding import mode as _mode


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for deterministic algorithms. There is one other: eager sums into repeated places of a CUDA tensor."""
    _mode.update(on=mode, warn_only=warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was last told."""
    return _mode["on"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What its `warn_only` was."""
    return _mode["warn_only"]
