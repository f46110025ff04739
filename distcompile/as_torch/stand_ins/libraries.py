"""Stand-ins for what libraries bring with them: compiled operators, ONNX export, quantization, downloads.

In: nothing. Out: `NAMES`. Operators of shared objects are written against torch's C++ library and cannot be loaded;
those written in Python are `distcompile.library`'s.
"""

from __future__ import annotations

import importlib
from typing import Any

from distcompile.as_torch.stand_ins.kinds import (
    Kind,
    StandIn,
    error,
    listed,
    names_only,
    nothing_is_one,
    record,
    true,
)

_OPERATORS = "operators of shared objects need torch's dispatcher"
_ONNX = "rules of the TorchScript exporter; torch.onnx.export has rules of its own"
_QUANTIZATION = "there is no quantization"
_PIPES = "data pipes are not here; write an IterableDataset"


class Keys:
    """torch._C.DispatchKeySet: names of dispatch keys."""

    def __init__(self, *keys: str) -> None:
        self.keys = frozenset(keys)

    def __or__(self, other: Keys) -> Keys:
        return Keys(*self.keys, *other.keys)


class KeyNames:
    """torch._C.DispatchKey: any attribute is a key's name."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def parse_args(*descriptors: str) -> Any:
    """torch.onnx.symbolic_helper.parse_args: a decorator; the function that it decorates is called by no exporter."""
    return lambda fn: fn


def _progress() -> Any:
    """tqdm's bar where it is installed; as in torch, a plain iterator where not."""
    try:
        return importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return lambda iterable=(), *args, **kwargs: iterable


class Classes:
    """torch.classes, or one of its namespaces. A class is a RuntimeError, as in torch where none is registered."""

    def __init__(self, name: str = "") -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._name:
            raise RuntimeError(f"Tried to instantiate class '{self._name}.{name}', but it does not exist! Ensure that "
                               "it is registered via torch::class_")  # fmt: skip
        return Classes(name)


NAMES: dict[str, StandIn] = {
    "torch.PyTorchFileReader": nothing_is_one("torch.load reads torch's files"),
    **listed("torch._utils", "_rebuild_parameter _rebuild_tensor_v2", error("torch.load reads torch's files")),
    "torch._tensor._rebuild_from_type_v2": error("torch.load reads torch's files"),
    "torch._custom_ops.custom_op": error(_OPERATORS),
    "torch._C.DispatchKeySet": true("names of dispatch keys, to be joined", Keys),
    "torch._C.DispatchKey": true("names of dispatch keys", KeyNames()),
    "torch._C._ExcludeDispatchKeyGuard": error(_OPERATORS),
    "torch.onnx.register_custom_op_symbolic": true(
        "a rule for an exporter of TorchScript; an operator of one's own is refused by onnx.export", lambda *args: None
    ),
    "torch.onnx.TrainingMode": names_only("EVAL PRESERVE TRAINING"),
    "torch.onnx.OperatorExportTypes": names_only("ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH"),
    "torch.onnx.symbolic_helper.cast_pytorch_to_onnx": error(_ONNX),
    "torch.onnx.symbolic_opset11": nothing_is_one(_ONNX),
    **listed("torch.onnx.symbolic_opset9", "masked_fill softmax", error(_ONNX)),
    "torch.onnx.symbolic_opset12.dropout": error(_ONNX),
    "torch.utils.cpp_extension.load": error(_OPERATORS),
    "torch.classes": true("classes of shared objects, of which there are none", Classes()),
    "torch._C._get_privateuse1_backend_name": true(
        "torch's name for a device of somebody else", lambda: "privateuseone"
    ),
    "torch._C._are_functorch_transforms_active": true("vmap and func hand out plain tensors", lambda: False),
    "torch._C._functorch.is_legacy_batchedtensor": true("vmap hands out plain tensors", lambda tensor: False),
    "torch._C._set_math_sdp_allow_fp16_bf16_reduction": true("permission for GPUs of torch's", lambda allowed: None),
    **listed("torch.nested", "nested_tensor as_nested_tensor", error("there are no nested tensors; pad, and mask")),
    "torch.nn.functional.scaled_mm": error("there are no tensors of float8"),
    "torch._scaled_mm": error("there are no tensors of float8"),
    "torch.nn.functional.ScalingType": names_only(
        "TensorWise RowWise BlockWise1x16 BlockWise1x32 BlockWise1x128 BlockWise128x128"
    ),
    **listed("torch.utils.data", "IterDataPipe MapDataPipe", nothing_is_one(_PIPES)),
    "torch.utils.data.functional_datapipe": record("torch.utils.data.graph_settings.apply_shuffle_settings"),
    "torch.utils.data.graph_settings.apply_shuffle_settings": error(_PIPES),
    "torch.utils.data.datapipes.iter.Batcher": nothing_is_one(_PIPES),
    "torch.utils.data.datapipes.iter.combinatorics.ShufflerIterDataPipe": nothing_is_one(_PIPES),
    "torch.onnx.operators.shape_as_tensor": error(_ONNX),
    "torch.onnx.symbolic_helper.parse_args": true("a decorator; no exporter calls what it decorates", parse_args),
    **listed("torch.ao.quantization", "QuantStub DeQuantStub QConfig", nothing_is_one(_QUANTIZATION)),
    **listed(
        "torch.ao.quantization",
        "convert prepare prepare_qat quantize fuse_modules default_observer",
        error(_QUANTIZATION),
    ),
    "torch.utils.model_zoo.tqdm": StandIn(Kind.TRUE, "tqdm's progress bar, or a plain iterator", lambda _: _progress()),
}
