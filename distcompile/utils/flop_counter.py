"""torch.utils.flop_counter's name: a counter that counts nothing yet, so that what is never entered can be asked.

In: torch's arguments. Out: no counts, until it is entered: that is refused.
"""

from __future__ import annotations

from typing import Any, NoReturn

from distcompile.errors import NotSupportedError

__all__ = ["FlopCounterMode"]


class FlopCounterMode:
    """Counts of what ran inside of it: of nothing. Raises NotSupportedError when it is entered."""

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None
    ) -> None:
        self.depth, self.display = depth, display

    def get_total_flops(self) -> int:
        """Nothing ran inside."""
        return 0

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """By module, by operation."""
        return {}

    def __enter__(self) -> NoReturn:
        raise NotSupportedError("FlopCounterMode: operations are not counted", remedy="distcompile.profiler times them")

    def __exit__(self, *error: object) -> None:
        return None
