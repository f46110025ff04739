"""torch.export: a call of a Module as one graph that stands alone, saved, loaded, run, and compiled ahead of time.

- `exporting.py`: `export`; the capture itself is compiler_core/capture/whole_call.py
- `dynamic_shapes.py`: `Dim`: which sizes may change, and whether the graph lets them
- `exported_program.py`: `ExportedProgram`
- `graph_signature.py`: what its inputs and outputs are
- `module.py`: the program as a Module
- `running.py`: one run of it
- `files.py`: `save`, `load`: `.dcpt` files (docs/reference/file_formats.md)
"""

from __future__ import annotations

from distcompile.export.dynamic_shapes import Dim, dims
from distcompile.export.exported_program import ExportedProgram
from distcompile.export.exporting import export
from distcompile.export.files import load, save
from distcompile.export.graph_signature import ExportGraphSignature
from distcompile.utils._pytree import register_dataclass

__all__ = ["Dim", "ExportGraphSignature", "ExportedProgram", "dims", "export", "load", "register_dataclass", "save"]
