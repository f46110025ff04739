"""Stand-ins for what libraries bring with them: compiled operators, ONNX export, quantization, downloads.

In: nothing. Out: `NAMES`. There is no dispatcher here: operators of a library's shared objects cannot be loaded, so
what is registered for them is kept and never read.
"""

from __future__ import annotations

import importlib
from typing import Any

from distcompile.as_torch.stand_ins.kinds import Kind, StandIn, error, listed, nothing_is_one, record, true

_OPERATORS = "operators of shared objects need torch's dispatcher"
_ONNX = "there is no ONNX export"
_QUANTIZATION = "there is no quantization"


class Registrations:
    """torch.library.Library: registrations for a namespace of operators, kept."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self.recorded: list[tuple[Any, ...]] = []

    def define(self, schema: str, *args: Any, **kwargs: Any) -> str:
        """Keep a schema; gives its name."""
        self.recorded.append(("define", schema))
        return schema.partition("(")[0]

    def impl(self, op_name: Any, fn: Any, *args: Any, **kwargs: Any) -> None:
        """Keep an implementation."""
        self.recorded.append(("impl", op_name, fn))


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


NAMES: dict[str, StandIn] = {
    "torch.ops.load_library": error(_OPERATORS),
    "torch.library.Library": record("torch.ops.load_library", lambda _: Registrations),
    "torch.library.register_kernel": record("torch.ops.load_library"),
    "torch._custom_ops.custom_op": error(_OPERATORS),
    "torch._C.DispatchKeySet": true("names of dispatch keys, to be joined", Keys),
    "torch._C.DispatchKey": true("names of dispatch keys", KeyNames()),
    "torch._C._ExcludeDispatchKeyGuard": error(_OPERATORS),
    "torch.onnx.register_custom_op_symbolic": record("torch.onnx.export"),
    **listed("torch.onnx", "export", error(_ONNX)),
    "torch.onnx.symbolic_opset11": nothing_is_one(_ONNX),
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
