"""Who looks on while the tape is written.

In: functions that want to be told. Out: `watch`, whom tape.py tells of each node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler_core.tensor.autograd.tape import GradNode


class TapeWatch:
    """Who is told of every node that is recorded, in any thread: functions, each as often as it was entered."""

    def __init__(self) -> None:
        self.active = False
        self.told: list[Callable[[GradNode], None]] = []

    def enter(self, tell: Callable[[GradNode], None]) -> None:
        """From now on `tell` is called with each node."""
        self.told.append(tell)
        self.active = True

    def leave(self, tell: Callable[[GradNode], None]) -> None:
        """It is no more, once it was left as often."""
        self.told.remove(tell)
        self.active = bool(self.told)

    def tell(self, node: GradNode) -> None:
        """Tell each of a node that has just been made."""
        for tell in dict.fromkeys(self.told):
            tell(node)


watch = TapeWatch()
