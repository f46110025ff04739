"""Small functions of torch's: frombuffer, _check, names of types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.types

REFUSED = [{"count": 0}, {"count": 4}, {"offset": 12}, {"offset": -1}, {"offset": 3}]


@pytest.mark.torch
@pytest.mark.parametrize(
    "options", [{}, {"count": 2}, {"offset": 4}, {"offset": 4, "count": 1}, {"requires_grad": True}], ids=str
)
@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
def test_frombuffer_reads_what_torchs_reads(options: dict[str, Any], dtype: str) -> None:
    torch = pytest.importorskip("torch")
    if "requires_grad" in options and dtype != "float32":
        pytest.skip("only floating dtypes")
    held = bytearray(np.arange(12, dtype=np.float32).tobytes())
    ours = dc.frombuffer(held, dtype=getattr(dc, dtype), **options)
    theirs = torch.frombuffer(held, dtype=getattr(torch, dtype), **options)
    assert ours.requires_grad == theirs.requires_grad
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


@pytest.mark.torch
@pytest.mark.parametrize(
    "options", [{"count": 0}, {"count": 4}, {"offset": 12}, {"offset": -1}, {"offset": 3}], ids=str
)
def test_frombuffer_refuses_what_torchs_refuses(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    for lib in (dc, torch):
        with pytest.raises(ValueError, match=r"buffer|count|offset"):
            lib.frombuffer(bytearray(12), dtype=lib.float32, **options)


def test_check_raises_what_it_is_told() -> None:
    dc._check(True, lambda: "not seen")
    with pytest.raises(RuntimeError, match=r"^three rows$"):
        dc._check(False, lambda: "three rows")
    with pytest.raises(RuntimeError, match="Expected cond"):
        dc._check(False)


def test_types_are_ours() -> None:
    types: Any = distcompile.types
    assert types._dtype is type(dc.float32)
    assert types._device is dc.device
    assert isinstance(dc.Size([1]), types._size)
    assert isinstance(1.5, types.Number)
