"""The compiler: tensors, operations, and the stages from a captured function to native code.

What the stages are and in which order: `pipeline.py`. This page is where they are put together: a stage knows those
before it; what it asks of a later one is a slot (`late.py`), and here it says which module fills it, at first use.
"""

from compiler_core import late

late.LOADS.update({
    "composites: eager definitions": "compiler_core.eager.rules",
    "composites: definitions on a device": "compiler_core.eager.device.rules",
    "draws: native steps": "compiler_core.eager.draws",
    "mersenne: native steps": "compiler_core.eager.mersenne",
    "indices: add on the CPU": "compiler_core.eager.adding",
    "where: on the CPU": "compiler_core.eager.choosing",
    "erf: on the CPU": "compiler_core.eager.error_function",
    "products of bf16: on the CPU": "compiler_core.eager.products",
    "indices: test on a device": "compiler_core.eager.device.checks",
    "indices: known on a device": "compiler_core.eager.device.known_places",
    "on a device: calls made again": "compiler_core.runtime.cuda.replay",
    "on a device: convolution": "compiler_core.runtime.cuda.eager_convolution",
    "on a device: product": "compiler_core.runtime.cuda.eager_product",
    "on a device: attention": "compiler_core.codegen.cuda.eager_attention",
    "on a device: 16-bit floats": "compiler_core.eager.device.narrow",
    "on a device: moves": "compiler_core.eager.device.moves",
    "on a device: copies": "compiler_core.eager.device.moves",
    "on a device: chance": "compiler_core.eager.device.draws",
    "on a device: counters": "compiler_core.eager.device.integers",
    "on a device: joins": "compiler_core.eager.device.moves",
    "on a device: row-major": "compiler_core.eager.device.orders",
    "on a device: sum": "compiler_core.eager.device.sums",
    "on a device: functions of one number": "compiler_core.eager.device.unary",
    "on a device: derivatives": "compiler_core.eager.device.unary",
    "overrides: turn on": "compiler_core.overrides.switch",
    "memory: largest tensors": "compiler_core.tensor.memory.largest",
    "boundaries: on the tape": "compiler_core.tensor.autograd.boundaries",
    "sparse: methods": "compiler_core.sparse.methods",
    "sparse: creation": "compiler_core.sparse.construct",
    "sparse: refusal": "compiler_core.sparse.value",
    "sparse: gradients": "compiler_core.sparse.gradients",
    "backend: native": "compiler_core.codegen.native_backend",
    "backend: cudagraphs": "compiler_core.codegen.cuda_backend",
    "backend: tuned": "compiler_core.codegen.cuda_backend",
    "backend: tuned-cudagraphs": "compiler_core.codegen.cuda_backend",
    "backend: openvino": "compiler_core.engines.onnx.openvino",
    "backend: tensorrt": "compiler_core.engines.onnx.tensorrt",
    "backend: tvm": "compiler_core.engines.onnx.tvm",
    "backend: onnxrt": "compiler_core.engines.onnx.onnxrt",
    "backend: openxla": "compiler_core.engines.openxla.engine",
    "backend: triton": "compiler_core.codegen.triton_backend",
    "branch: an executable of a graph": "compiler_core.pipeline",
    "repro: watched": "compiler_core.repro.watch",
})  # fmt: skip
