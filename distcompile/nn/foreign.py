"""Tensors of other libraries, read through NumPy: what `load_state_dict` takes besides our own.

In: a distcompile Tensor, a NumPy array, or anything that NumPy can read (torch's CPU tensors). Out: our Tensor.
bfloat16 has no NumPy type of its own that torch would convert to: its bits go through int16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.dtype import bfloat16
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.tensor import Tensor


def is_tensor_like(thing: object) -> bool:
    """Whether `as_tensor_like` takes `thing`."""
    return isinstance(thing, Tensor) or (hasattr(thing, "shape") and hasattr(thing, "__array__"))


def as_tensor_like(thing: Any) -> Tensor:
    """`thing` as our Tensor: itself, or a copy of a foreign tensor's values."""
    if isinstance(thing, Tensor):
        return thing
    if str(getattr(thing, "dtype", "")) == "torch.bfloat16":
        bits = thing.detach().view(_torch_int16(thing)).numpy()
        return leaf(bits.view(bfloat16.numpy).copy())
    if hasattr(thing, "detach"):
        thing = thing.detach().cpu().numpy()
    return leaf(np.array(thing))


def _torch_int16(thing: Any) -> Any:
    import sys

    return sys.modules[type(thing).__module__.partition(".")[0]].int16
