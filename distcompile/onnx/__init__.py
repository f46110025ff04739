"""torch.onnx: programs as ONNX models (`pip install "distcompile[onnxrt]"`).

- `to_onnx.py`: `export`: a module, or an exported program, as an ONNX model
- `program.py`: `ONNXProgram`: the model, saved and run
- `state.py`: whether a module is being exported
"""

from __future__ import annotations

from distcompile.onnx.program import ONNXProgram
from distcompile.onnx.state import is_in_onnx_export
from distcompile.onnx.to_onnx import export

__all__ = ["ONNXProgram", "export", "is_in_onnx_export"]
