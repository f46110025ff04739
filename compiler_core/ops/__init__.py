"""Ops: the registry, the primitives (each file here registers some), and the functions composed of them."""

from compiler_core.ops import (
    arithmetic,
    compare,
    convert,
    convolution,
    creation,
    indexing,
    integer_routines,
    inverse,
    joining,
    matmul,
    movement,
    pointwise,
    random,
    reduction,
    sorting,
    windows,
)

__all__ = [
    "arithmetic",
    "compare",
    "convert",
    "convolution",
    "creation",
    "indexing",
    "integer_routines",
    "inverse",
    "joining",
    "matmul",
    "movement",
    "pointwise",
    "random",
    "reduction",
    "sorting",
    "windows",
]
