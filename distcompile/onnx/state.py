"""Whether a module is being exported as an ONNX model: asked by code of modules, captured or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_exporting: ContextVar[bool] = ContextVar("in_onnx_export", default=False)


def is_in_onnx_export() -> bool:
    """Whether a module is being exported by `onnx.export`."""
    return _exporting.get()


@contextmanager
def exporting() -> Iterator[None]:
    """Within the block one is."""
    token = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(token)
