"""PyTorch's op database through ONNX: entries exported as models, checked, and run by ONNX Runtime.

A sample's call is a Module whose tensors are inputs. It is right where ONNX Runtime gives what eager code gives; what
has no model is a named error. All of it runs with --long; a few entries always.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")
pytest.importorskip("onnxruntime")

import torch
import torch_samples as db
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel
from test_opinfo import OURS

import distcompile as dc
from compiler_core.errors import BackendError, DistCompileError
from distcompile import nn
from tests.sharing import every

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


FEW = 2  # samples of an entry


class Call(nn.Module):
    """function(*args, **kwargs), whose tensors are the inputs."""

    def __init__(self, function: Any, args: Any) -> None:
        super().__init__()
        leaves, self.spec = dc.utils._pytree.tree_flatten(args)
        self.function, self.leaves = function, leaves

    @property
    def tensors(self) -> tuple[dc.Tensor, ...]:
        return tuple(x for x in self.leaves if isinstance(x, dc.Tensor))

    def forward(self, *tensors: dc.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(x, dc.Tensor) else x for x in self.leaves]
        args, kwargs = dc.utils._pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def tensors_of(result: Any) -> list[dc.Tensor]:
    return [x.detach() for x in dc.utils._pytree.tree_flatten(result)[0] if isinstance(x, dc.Tensor)]


def near(a: dc.Tensor, b: dc.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return bool(dc.equal(a, b))
    return bool(dc.allclose(a, b, rtol=2e-4, atol=2e-5, equal_nan=True))


def verdict(name: str) -> Counter[str]:
    """How many samples were right, had no model, or were wrong: how."""
    found: Counter[str] = Counter()
    function = db.find(name)
    for sample in db.samples(db.entries()[name], FEW, torch.float32):
        try:
            made: dict[int, tuple[Any, Any]] = {}
            args = db.convert([sample.input, *sample.args], made)
            call = Call(function, (args, db.convert(sample.kwargs, made)))
            expected = tensors_of(call(*call.tensors))
        except (db.Unsuitable, DistCompileError, TypeError, AttributeError):
            continue  # test_opinfo.py says what of these is right
        try:
            model = dc.onnx.export(call, call.tensors)
        except (BackendError, DistCompileError):
            found["no model"] += 1
            continue
        if not expected or any(x.dtype is dc.bfloat16 for x in expected):  # nothing that ONNX Runtime could give
            continue
        try:
            results = model(*call.tensors)
        except NoKernel:  # ONNX has the operator of this dtype, ONNX Runtime has not
            found["no kernel"] += 1
            continue
        right = len(results) == len(expected) and all(map(near, results, expected))
        found["right" if right else f"wrong: {expected} but {results}"] += 1
    return found


@pytest.mark.parametrize("name", every([n for n in OURS if torch.float32 in db.entries()[n].dtypes], 40))
def test_an_entry_is_its_model(name: str) -> None:
    assert [what for what in verdict(name) if what.startswith("wrong")] == []
