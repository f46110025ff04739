"""backend="triton" on the host, where one number meets a block: comparisons of the number count as truth values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:backend 'triton'", "ignore:TRITON_DEFAULT")]

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "fmod": dc.fmod,
    "remainder": dc.remainder,
    "xlogy": dc.xlogy,
    "hypot": dc.hypot,
    "copysign": dc.copysign,
    "logical_xor": lambda x, y: dc.logical_xor(x > 0, y > 0) * (x + y),
    "not": lambda x, y: (~((x > 0) | (y > 0))) * (x + y),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_number_beside_a_block_is_eagers(name: str, dtype: str) -> None:
    rows, number = [0.5, -1.25, 3.0, 0.0, -0.5], [0.75]
    for columns in ((rows, number), (number, rows), (number, number)):
        found = []
        for compiled in (False, True):
            operands = [dc.tensor(c, dtype=getattr(dc, dtype), requires_grad=True) for c in columns]

            def spread(x: Any, y: Any) -> Any:
                return FUNCTIONS[name](x.expand(5), y.expand(5))

            with np.errstate(all="ignore"):
                made = (dc.compile(spread, backend="triton", fullgraph=True) if compiled else spread)(*operands)
                grads = dc.autograd.grad(made, operands, dc.ones_like(made))
            found.append([part.detach().numpy() for part in (made, *grads)])
        for eager, mine in zip(*found, strict=True):
            np.testing.assert_allclose(mine, eager, rtol=1e-6 if dtype == "float32" else 1e-12)
