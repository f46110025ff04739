"""A cuDNN that is not there: the few functions of its graph API that runtime/cuda/cudnn.py calls, over NumPy.

In: a `FakeCuda`. Out: `add_cudnn(fake)`: the fake answers for cuDNN too. Descriptors are dicts of attributes, as set; a
plan, executed, computes its convolution by the definition in compiler_core/ops/convolution/op.py. The heuristics
propose two engines: of the first the notes say that its results differ from run to run. `Dnn.ran`: (kind, workspace) of
each execution.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from compiler_core.ops.convolution.op import CONVOLUTION, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT
from compiler_core.ops.registry import run_eager
from tests.fake_cuda import FakeCuda

_P, _I, _L = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_FORMS: dict[str, tuple[Any, ...]] = {
    "cudnnGetVersion": (),
    "cudnnCreate": (_P,),
    "cudnnSetStream": (_P, _P),
    "cudnnBackendCreateDescriptor": (_I, _P),
    "cudnnBackendDestroyDescriptor": (_P,),
    "cudnnBackendFinalize": (_P,),
    "cudnnBackendSetAttribute": (_P, _I, _I, _L, _P),
    "cudnnBackendGetAttribute": (_P, _I, _I, _L, _P, _P),
    "cudnnBackendExecute": (_P, _P, _P),
}
_WIDTHS = {0: 8, 1: 4, 3: 8, 4: 4, 6: 8, 7: 4, 8: 4, 11: 4, 15: 8}  # of an element of cudnnBackendAttributeType_t
_UNSUPPORTED = 3000
NONDETERMINISTIC = 4
WORKSPACE = 4096
# the operation's descriptor -> its op, the attributes that its arrays are, that of the convolution
_OPERATIONS = {
    10: (CONVOLUTION, (704, 703, 705), 702),
    12: (CONVOLUTION_INPUT, (711, 709, 710), 708),
    11: (CONVOLUTION_WEIGHT, (716, 717, 715), 714),
}


@dataclass
class Dnn:
    """The library. refuses: it has no engine for anything."""

    fake: FakeCuda
    descriptors: list[dict[int, Any]] = field(default_factory=list)
    ran: list[tuple[str, int]] = field(default_factory=list)
    refuses: bool = False

    def _at(self, handle: int) -> dict[int, Any]:
        return self.descriptors[handle - 1]

    def cudnnGetVersion(self) -> int:
        return 90000

    def cudnnCreate(self, handle: int) -> int:
        ctypes.c_uint64.from_address(handle).value = 55
        return 0

    def cudnnSetStream(self, handle: int, stream: int) -> int:
        return 0

    def cudnnBackendCreateDescriptor(self, kind: int, handle: int) -> int:
        self.descriptors.append({-1: kind})
        ctypes.c_uint64.from_address(handle).value = len(self.descriptors)
        return 0

    def cudnnBackendDestroyDescriptor(self, handle: int) -> int:
        return 0

    def cudnnBackendFinalize(self, handle: int) -> int:
        kind = self._at(handle)[-1]
        return _UNSUPPORTED if self.refuses and kind == 4 else 0

    def cudnnBackendSetAttribute(self, handle: int, name: int, kind: int, count: int, values: int) -> int:
        width = _WIDTHS[kind]
        data = ctypes.string_at(values, width * count)
        form = {4: "f4"}.get(kind, f"i{width}")
        self._at(handle)[name] = np.frombuffer(data, form).tolist()
        return 0

    def cudnnBackendGetAttribute(self, handle: int, name: int, kind: int, most: int, count: int, values: int) -> int:
        found = self._at(handle)
        made: list[int]
        if name == 202:  # the heuristics' engines
            configurations = np.ctypeslib.as_array((ctypes.c_uint64 * most).from_address(values))
            for place, configuration in enumerate(configurations[:2]):
                self._at(int(configuration)).update({"graph": found[201][0], "place": place})
            ctypes.c_int64.from_address(count).value = min(2, most)
            return 0
        if name == 300:  # a configuration's engine
            engine = ctypes.c_uint64.from_address(values).value
            self._at(engine)["place"] = found["place"]
            made = [engine]
        elif name == 1303:
            made = [NONDETERMINISTIC] if found["place"] == 0 else [0]
        else:
            assert name == 402
            made = [WORKSPACE]
        data = np.array(made, f"i{_WIDTHS[kind]}").tobytes()
        ctypes.memmove(values, data, len(data))
        ctypes.c_int64.from_address(count).value = len(made)
        return 0

    def cudnnBackendExecute(self, handle: int, plan: int, pack: int) -> int:
        given = dict(zip(self._at(pack)[1000], self._at(pack)[1001], strict=True))
        graph = self._at(self._at(self._at(plan)[401][0])["graph"])
        operation = self._at(graph[801][0])
        op, attributes, convolution = _OPERATIONS[operation[-1]]
        *operands, out = (self._array(operation[name][0], given) for name in attributes)
        self.ran.append((op.name, self._at(pack)[1003][0]))
        how = self._at(operation[convolution][0])
        attrs: dict[str, Any] = {"low": how[105], "high": how[104], "stride": how[103], "dilation": how[102]}
        attrs = {name: tuple(value) for name, value in attrs.items()}
        x, weight = (out, operands[1]) if op is CONVOLUTION_INPUT else (operands[0], operands[1])
        weight = out if op is CONVOLUTION_WEIGHT else weight
        attrs["groups"] = x.shape[1] // weight.shape[1]
        attrs |= {"size": out.shape[2:]} if op is CONVOLUTION_INPUT else {}
        attrs |= {"kernel": out.shape[2:]} if op is CONVOLUTION_WEIGHT else {}
        wide = [np.ascontiguousarray(array).astype(np.float32) for array in operands]
        self.fake._do(lambda: out.__setitem__(..., run_eager(op, wide, attrs).astype(out.dtype)))
        return 0

    def _array(self, handle: int, given: dict[int, int]) -> Any:
        tensor = self._at(handle)
        dtype = np.dtype({0: np.float32, 2: np.float16, 9: ml_dtypes.bfloat16}[tensor[901][0]])
        shape, strides = tensor[902], [stride * dtype.itemsize for stride in tensor[903]]
        span = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + dtype.itemsize
        memory = (ctypes.c_char * span).from_address(given[tensor[906][0]])
        return np.ndarray(shape, dtype, memory, strides=strides)


def add_cudnn(fake: FakeCuda) -> Dnn:
    """From now on `fake` has a cuDNN."""
    dnn = Dnn(fake)
    for name, form in _FORMS.items():
        fake._made[name] = ctypes.CFUNCTYPE(_I, *form)(getattr(dnn, name))
    words = ctypes.CFUNCTYPE(_P, _I)(lambda code: ctypes.addressof(fake._words))
    fake._made["cudnnGetErrorString"] = words
    return dnn
