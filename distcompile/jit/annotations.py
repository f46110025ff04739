"""torch.jit.annotations' names: types for annotations, which nothing reads here.

In: nothing. Out: typing's names; BroadcastingList2[int] is what takes one int or a list of two.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035  # the names that files import from here

__all__ = [
    "Any",
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "Dict",
    "List",
    "Optional",
    "Tuple",
    "Union",
]

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = List  # noqa: UP006
