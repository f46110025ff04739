"""What torch refuses is refused here: the error inputs of PyTorch's databases, and dtypes that it has no kernel for.

DECLARED names what is not, or not with torch's class, under its reason, and is held to be exactly the list. What torch
lacks on the CPU for 16-bit floats alone is not asked: its GPUs have most of it, and so have we.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's databases need it

import module_samples
import refused_samples as db
import torch_samples

from tests.sharing import some

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

FUNCTIONS = db.functions()
MODULES = {name: info for name, info in module_samples.modules().items() if info.module_error_inputs_func is not None}
OPTIMIZERS = {name: info for name, info in module_samples.optimizers().items() if info.optim_error_inputs_func}
ENTRIES = {key: op for key, op in torch_samples.entries().items() if torch_samples.find(key) is not None}
DECLARED = {
    "whole numbers of every size are convolved, as int64 is": "nn.functional.conv1d nn.functional.conv2d",
    "decimals=0 cannot be told from no decimals": "round/decimals_0",
    "a mask makes another dtype of it in torch": "masked.amax masked.amin",
    "differences of truths and bytes, which wrap": "gradient",
    "torch's class is that of a step on the way": """
        masked.logaddexp nn.functional.linear_cross_entropy/chunked nn.functional.linear_cross_entropy/chunked_none
    """,
}
DIFFERENT = sorted(name for names in DECLARED.values() for name in names.split())


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_error_inputs_of_a_function(name: str) -> None:
    assert list(db.of_function(name, FUNCTIONS[name])) == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_error_inputs_of_a_module(name: str) -> None:
    assert list(db.of_module(MODULES[name])) == []


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - {"SparseAdam"}))  # which has no sparse parameters to refuse
def test_error_inputs_of_an_optimizer(name: str) -> None:
    assert list(db.of_optimizer(OPTIMIZERS[name])) == []


@pytest.mark.parametrize("name", some(sorted(set(ENTRIES) - set(DIFFERENT)), 200))
def test_a_dtype_without_a_kernel_is_refused(name: str) -> None:
    assert list(db.of_other_dtypes(name, ENTRIES[name])) == []


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_declared_differs(name: str) -> None:
    assert list(db.of_other_dtypes(name, ENTRIES[name])) != [], "this entry is refused: take it out of the list"
