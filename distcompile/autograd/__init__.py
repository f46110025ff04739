"""torch.autograd's names: grad, backward, Function, the modes.

In: Tensors. Out: gradients.
"""

from __future__ import annotations

import importlib
from typing import Any

from compiler_core.overrides.functions import make_functions_overridable
from compiler_core.tensor.autograd.anomaly import detect_anomaly, set_detect_anomaly
from compiler_core.tensor.autograd.backward import backward, grad
from compiler_core.tensor.autograd.function import Function
from compiler_core.tensor.autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from distcompile.autograd import function, functional
from distcompile.autograd.gradcheck import gradcheck, gradgradcheck
from distcompile.autograd.variable import Variable

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]

make_functions_overridable(globals(), ["backward", "grad"], "autograd")


def __getattr__(name: str) -> Any:
    if name in ("forward_ad", "graph", "profiler"):
        return importlib.import_module(f"distcompile.autograd.{name}")
    raise AttributeError(f"module 'distcompile.autograd' has no attribute {name!r}")
