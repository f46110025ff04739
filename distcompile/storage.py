"""torch.storage's names.

In: nothing. Out: `UntypedStorage`, `TypedStorage`.
"""

from __future__ import annotations

from compiler_core.tensor.memory.storage import UntypedStorage
from compiler_core.tensor.memory.typed_storage import TypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
