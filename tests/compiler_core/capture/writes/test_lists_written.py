"""Lists from outside whose items are written and then moved, removed or named from the end: reads see what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as torch

CHANGES: dict[str, Callable[[list[Any], Any], Any]] = {
    "insert": lambda kept, x: (kept.insert(0, x + 5), kept.pop()),
    "reverse": lambda kept, x: kept.reverse(),
    "pop": lambda kept, x: (kept.pop(0), kept.append(x + 7)),
    "clear": lambda kept, x: (kept.clear(), kept.extend([x + 5, x + 6])),
    "slice": lambda kept, x: kept.__setitem__(slice(0, 2), [x + 5, x + 6]),
    "delete": lambda kept, x: (kept.__delitem__(0), kept.append(x * 3)),
    "from the end": lambda kept, x: kept.__setitem__(-1, x + 9),
    "from the end, first": lambda kept, x: (kept.__setitem__(-2, x + 9), kept.__setitem__(0, x + 4)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_reads_after_writes(name: str) -> None:
    def run(x: Any) -> Any:
        kept[0], kept[1] = x + 1, x + 2
        CHANGES[name](kept, x)
        return kept[0] + 10 * kept[1], kept[-1] + 10 * kept[-2]

    found = []
    for function in (run, torch.compile(run, backend="eager")):
        kept = [torch.ones(1), torch.ones(1)]
        found.append([[y.item() for y in function(torch.ones(1) * k)] + [len(kept)] for k in range(1, 4)])
    assert found[0] == found[1]
