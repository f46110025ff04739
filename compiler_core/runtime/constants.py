"""The constants of compiled programs in one file: their bytes, one after the other; where each lies is told apart.

In: programs, a path. Out: the file, and a table: per program, of each constant [dtype, elements, first byte].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.dtype import by_name
from compiler_core.ops.registry import Array

if TYPE_CHECKING:
    from compiler_core.loop_ir.ir import Program


def write_constants(path: Path, programs: Sequence[Program]) -> list[list[Any]]:
    """Write the file. Returns the table."""
    chunks: list[bytes] = []
    table: list[list[Any]] = []
    position = 0
    for program in programs:
        rows: list[Any] = []
        for buffer in program.buffers:
            if buffer.kind == "constant" and buffer.array is not None:
                rows.append([buffer.dtype.short, int(buffer.numel), position])
                chunks.append(np.ascontiguousarray(buffer.array).tobytes())
                position += len(chunks[-1])
        table.append(rows)
    path.write_bytes(b"".join(chunks))
    return table


def read_constants(data: bytes, rows: Sequence[Sequence[Any]]) -> list[Array]:
    """The constants of a program, by its part of the table."""
    return [np.frombuffer(data, by_name(d).numpy, count, offset).copy() for d, count, offset in rows]
