"""convert_conv2d_weight_memory_format and its kin: layouts of weights, which convolutions choose themselves here.

In: a module, a memory format. Out: the module as it is.
"""

from __future__ import annotations

from typing import TypeVar

from compiler_core.memory_format import memory_format as MemoryFormat
from distcompile.nn.module import Module

M = TypeVar("M", bound=Module)

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def convert_conv2d_weight_memory_format(module: M, memory_format: MemoryFormat) -> M:
    """`module`: its values do not depend on the format."""
    return module


def convert_conv3d_weight_memory_format(module: M, memory_format: MemoryFormat) -> M:
    """`module`: its values do not depend on the format."""
    return module
