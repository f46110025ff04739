"""torch.onnx: programs as ONNX models (`pip install "distcompile[onnxrt]"`).

- `exporting.py`: `export`: a module, or an exported program, as an ONNX model
- `program.py`: `ONNXProgram`: the model, saved and run
- `state.py`: whether a module is being exported
"""

from __future__ import annotations

from distcompile.onnx.exporting import export
from distcompile.onnx.program import ONNXProgram
from distcompile.onnx.state import is_in_onnx_export

__all__ = ["ONNXProgram", "export", "is_in_onnx_export"]
