"""ONNX: one exporter, and the engines that take its models.

- `emitter.py`: Writes ONNX nodes: what the rules of the tables are handed.
- `exported.py`: ONNX's operators for ops that a model must have, though beside an engine our own code is the better
  one for them.
- `model.py`: Graph -> ONNX ModelProto.
- `movement.py`: ONNX's operators for ops that make, move, join and index elements.
- `onnx_engine.py`: What engines that take ONNX models have in common.
- `onnxrt.py`: The backend "onnxrt": ONNX Runtime runs the graphs.
- `openvino.py`: The backend "openvino": OpenVINO runs the graphs.
- `pointwise.py`: ONNX's operators for ops that go element by element.
- `tensorrt.py`: The backend "tensorrt": NVIDIA TensorRT runs graphs of a CUDA device.
- `tvm.py`: The backend "tvm": Apache TVM compiles the graphs.
- `whole.py`: ONNX's operators for ops that compute an element of several: reductions, products, convolutions, windows.
"""
