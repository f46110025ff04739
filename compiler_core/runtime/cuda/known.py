"""Arrays that a program is given call after call, as parameters are: what was asked of them once is not asked again.

In: the inputs of calls. Out: `Known`: the addresses of the inputs that were compared with the program's entry before,
and which inputs are new. For hundreds of parameters that takes microseconds: their ids are compared, all at once. An
id is struck out when its array is freed, before another array can get it.
Invariant: nothing in a `Known` changes but that ids are struck out, so that threads may share it.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from functools import partial

from compiler_core.ops.registry import Array


class Known:
    """device: the number of that on which they are. addresses: of each input; 0 of those that are not known."""

    def __init__(
        self, device: int, inputs: Sequence[Array], addresses: Sequence[int], strangers: Collection[int]
    ) -> None:
        self.device = device
        self.addresses = [0 if k in strangers else at for k, at in zip(range(len(inputs)), addresses)]
        self._ids = [0 if k in strangers else id(array) for k, array in enumerate(inputs)]
        known = ((k, array) for k, array in enumerate(inputs) if k not in strangers)
        self._held = [weakref.ref(array, partial(_strike, self._ids, k)) for k, array in known]

    def strangers(self, inputs: Sequence[Array]) -> list[int]:
        """Which of the inputs are not known."""
        ids = list(map(id, inputs))
        if ids == self._ids:
            return []
        return [k for k, (given, known) in enumerate(zip(ids, self._ids)) if given != known]


def _strike(ids: list[int], k: int, ended: object) -> None:
    ids[k] = 0
