"""Names that must stay: of attributes of classes, of ours and of the program's, and of builtins.

In: what was looked up. Out: guards, once all is known (`settle`).
"""

from __future__ import annotations

from typing import Any

from compiler_core.capture.guards.builtin_names import BuiltinNames
from compiler_core.capture.guards.classes import ClassNames
from compiler_core.capture.guards.guards import Guards


class Names:
    """classes: whose attributes' names are guarded. ours: of those among them that are ours. builtins: by the id of the
    table that they are from."""

    def __init__(self, guards: Guards) -> None:
        self.guards = guards
        self.classes: set[type] = set()
        self.ours: ClassNames | None = None
        self.builtins: dict[int, BuiltinNames] = {}

    def of_ours(self) -> ClassNames:
        """What must still hold of the attributes of classes of ours."""
        if self.ours is None:
            self.ours = ClassNames(self.guards)
        return self.ours

    def keep_builtin(self, table: dict[str, Any], name: str) -> None:
        """What Python has under a name must stay there."""
        if id(table) not in self.builtins:
            self.builtins[id(table)] = BuiltinNames(self.guards, table)
        self.builtins[id(table)].read[name] = table[name]

    def settle(self) -> None:
        """Nothing more will be read."""
        if self.ours is not None:
            self.ours.settle(self.guards)
        for names in self.builtins.values():
            names.settle(self.guards)
