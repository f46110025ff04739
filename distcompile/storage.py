"""torch.storage's name that libraries read checkpoints through.

In: nothing. Out: `UntypedStorage`.
"""

from __future__ import annotations

from compiler_core.tensor.storage import UntypedStorage

__all__ = ["UntypedStorage"]
