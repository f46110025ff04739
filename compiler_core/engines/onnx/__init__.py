"""ONNX: one exporter, and the engines that take its models.

- `emitter.py`: Writes ONNX nodes: what the rules of the tables are handed.
- `model.py`: Graph -> ONNX ModelProto.
- `movement.py`: ONNX's operators for ops that make, move, join and index elements.
- `onnxrt.py`: The backend "onnxrt": ONNX Runtime runs the graphs.
- `pointwise.py`: ONNX's operators for ops that go element by element.
- `whole.py`: ONNX's operators for ops that compute an element of several: reductions, products, convolutions, windows.
"""
