"""torch.nn.attention's names: which implementation of scaled_dot_product_attention to use. There is one here.

In: backends, or lists of them. Out: a context in which attention is what it always is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from distcompile.errors import ArgumentError

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """torch's implementations. `MATH` is the formula, which is what is computed here, fused when compiled."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """Allow these backends alone. They compute the same; so the choice changes nothing."""
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not all(isinstance(backend, SDPBackend) for backend in chosen):
        raise ArgumentError("Backend must be an instance of SDPBackend or a list of SDPBackend instances",
                            got=repr(backends))  # fmt: skip
    yield
