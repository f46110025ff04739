"""torch.functional: those of torch's functions that are written in Python in torch. The same objects as torch's.

In: Tensors. Out: Tensors.
"""

from __future__ import annotations

from typing import Any

_NAMES = """
atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul einsum
lu meshgrid norm split stft tensordot unique unique_consecutive unravel_index
"""
__all__ = _NAMES.split()


def __getattr__(name: str) -> Any:
    import distcompile

    if name in __all__:
        return getattr(distcompile, name)
    raise AttributeError(f"module 'distcompile.functional' has no attribute {name!r}")
