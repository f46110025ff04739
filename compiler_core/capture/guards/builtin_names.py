"""Guards on names of Python's that captured code reads: a program may put something else under them, as for a test.

In: the table of builtins that a frame has, and what is read there. Out: one condition for all of them, that each is the
very object.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from compiler_core.capture.guards.guards import Guards


class BuiltinNames:
    """What is read of one table, in one `Guards`."""

    def __init__(self, guards: Guards, table: dict[str, Any]) -> None:
        self.table = table
        self.read: dict[str, Any] = {}
        self.place = guards.require_explained("True", "", self)

    def settle(self, guards: Guards) -> None:
        """All is read: the condition."""
        table = guards.bind(self.table, "builtins")
        if len(self.read) == 1:
            ((name, value),) = self.read.items()
            code = f"{table}[{name!r}] is {guards.bind(value, 'object')}"
        else:
            get, values = itemgetter(*self.read), tuple(self.read.values())
            code = f"{guards.bind(get, 'get')}({table}) == {guards.bind(values, 'read')}"
        guards.replace(self.place, code, f"{', '.join(self.read)}: the same builtins")

    @property
    def difference(self) -> str:
        """The condition that does not hold."""
        now = self.table.get
        changed = next((name for name, value in self.read.items() if now(name) is not value), "")
        return changed and f"the builtin {changed} is the same"

    def culprits(self) -> list[Any]:
        """None: they do not change at every call."""
        return []
