"""Code of the check function for what is at a source, and for the conditions of one segment.

In: sources, conditions over them. Out: names that hold what is at a source (`local`), the places at which the check
function hands it over (`place`), guards. Invariant: `values` are, in order, what is handed over in this very call.
"""

from __future__ import annotations

from typing import Any

from compiler_core.capture.guards.guards import Guards
from compiler_core.capture.guards.sources import Bound, Source, expression


class Code:
    """See the head of this file."""

    def __init__(self, guards: Guards) -> None:
        self.guards, self.require = guards, guards.require
        self.values: list[Any] = []  # at the places that the check function hands over
        self._required: set[str] = set()
        self._locals: dict[Source, str] = {}
        self._places: dict[str, int] = {}

    def local(self, source: Source) -> str:
        """The name that holds `source` in the check function."""
        name = self._locals.get(source)
        if name is None:
            code = expression(source, self.local, self.guards.refer)
            name = code if code.isidentifier() else self.guards.let("v", code, text=source.text)
            self._locals[source] = name
            if type(source) is Bound and name != code:
                self.require(f"{name} is not None", f"there is {source.text}")
        return name

    def place(self, source: Source, value: Any) -> int:
        """The index, among what the check function hands over, of `value`, which is at `source`."""
        name = self.local(source)
        if name not in self._places:
            self._places[name] = self.hand_over(name, value)
        return self._places[name]

    def hand_over(self, local: str, value: Any) -> int:
        """The index, among what the check function hands over, of what its variable `local` holds, now `value`."""
        self.guards.outside.append(local)
        self.values.append(value)
        return len(self.guards.outside) - 1

    def require_once(self, code: str, text: str) -> None:
        """A condition that may be asked for again."""
        if code not in self._required:
            self._required.add(code)
            self.require(code, text)
