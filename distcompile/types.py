"""torch.types' names: what annotations call a dtype, a device, a size, a number.

In: nothing. Out: types.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence

from compiler_core import memory_format
from compiler_core.device import Device as _Device
from compiler_core.dtype import DType
from compiler_core.tensor.tensor import Size, Tensor

__all__ = ["Device", "FileLike", "IntLikeType", "Number"]

_bool, _int, _float, _complex = builtins.bool, builtins.int, builtins.float, builtins.complex
_device, _dtype, _layout, _dispatchkey = _Device, DType, memory_format.layout, str
_size = Size | list[int] | tuple[int, ...]
_TensorOrTensors = Tensor | Sequence[Tensor]
Number = int | float | bool
Device = _Device | str | int | None
FileLike = str | os.PathLike[str]
IntLikeType = int
