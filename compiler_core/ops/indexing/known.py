"""x[index] by one index array whose places are known to lie in [0, size): nothing to wrap, nothing to test.

In: a value with dims, an index array of int64. Out: the rows at these places. Whoever calls it has asked `KNOWN_THERE`.
"""

from __future__ import annotations

from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.whole import whole


@remembered
@whole
def _index(x: Value, index: Value) -> Value:
    return prims.take(x, index)


rows_at = _index
