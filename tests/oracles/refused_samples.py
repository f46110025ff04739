"""What PyTorch's databases know to be refused: samples of functions, modules and optimizers, run on both sides.

In: an entry of op_db, module_db or optim_db. Out: for each of its error inputs what torch raised and what we did, where
the two differ: torch's class has to be among the bases of ours. Tensors of one storage stay of one storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import module_samples
import numpy as np
import torch
import torch_samples
from torch.testing._internal.common_methods_invocations import op_db

import distcompile as dc

DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64, torch.complex64]


def functions() -> dict[str, Any]:
    """name, or name/variant -> OpInfo, of all that have error inputs and a function or method of ours."""
    named = {op.name + (f"/{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}
    known = {key: op for key, op in named.items() if op.error_inputs_func is not None and torch_samples.find(key)}
    return {key: op for key, op in known.items() if not key.startswith("__r")}  # methods of a number


def error(function: Callable[[], Any]) -> Exception | None:
    """What a call raises, if anything."""
    try:
        function()
    except Exception as found:  # noqa: BLE001 - what it is is the question
        return found
    return None


def difference(ours: Exception | None, theirs: Exception) -> str | None:
    """What differs, if anything."""
    name = type(theirs).__name__.strip("_")
    if ours is None:
        return f"accepted; torch raises {name}: {str(theirs)[:200]}"
    named = any(base.__name__.strip("_") == name for base in type(ours).__mro__)
    return None if named else f"{type(ours).__name__}: {str(ours)[:200]}; torch raises {name}: {str(theirs)[:200]}"


def of_function(key: str, op: Any) -> Iterator[str]:
    """What differs in the error inputs of a function."""
    ours = torch_samples.find(key)
    assert ours is not None
    for number, given in enumerate(op.error_inputs("cpu")):
        sample = given.sample_input
        theirs = error(lambda: op(sample.input, *sample.args, **sample.kwargs))  # noqa: B023 - called at once
        made: dict[Any, Any] = {}
        try:
            args, kwargs = _shared([sample.input, *sample.args], made), _shared(sample.kwargs, made)
        except (torch_samples.Unsuitable, TypeError, ValueError, RuntimeError):  # what NumPy has not
            continue
        if theirs and (bad := difference(error(lambda: ours(*args, **kwargs)), theirs)):  # noqa: B023
            yield f"input {number}: {bad}"


def _shared(value: Any, made: dict[Any, Any]) -> Any:
    """torch's arguments as ours, those of one storage in one storage."""
    if isinstance(value, (list, tuple)):
        return type(value)(_shared(v, made) for v in value)
    if isinstance(value, dict):
        return {key: _shared(v, made) for key, v in value.items()}
    is_plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel()
    if not is_plain or value.requires_grad or value.dtype in (torch.complex32, torch.bfloat16) or value.is_conj():
        return torch_samples.convert(value, made)
    storage = value.untyped_storage()
    key = storage.data_ptr(), value.dtype
    if key not in made:
        whole = torch.as_strided(value, (storage.nbytes() // value.itemsize,), (1,), 0)
        made[key] = (storage, dc.tensor(np.array(whole.numpy())))
    return dc.as_strided(made[key][1], tuple(value.shape), value.stride(), value.storage_offset())


def of_other_dtypes(key: str, op: Any) -> Iterator[str]:
    """What differs in the first samples of a function, in the dtypes that torch has no kernel for."""
    ours, base = torch_samples.find(key), torch_samples.dtype_of(op)
    assert ours is not None
    torch_samples.seed()
    few = list(torch_samples.islice(op.sample_inputs("cpu", base), 3))
    for dtype in [dtype for dtype in DTYPES if dtype not in op.dtypes]:
        for sample in few:
            args, kwargs = (_cast(x, base, dtype) for x in ([sample.input, *sample.args], sample.kwargs))
            theirs = error(lambda: op(*args, **kwargs))  # noqa: B023
            try:
                given, named = torch_samples.convert(args, {}), torch_samples.convert(kwargs, {})
            except torch_samples.Unsuitable:
                continue
            if theirs and (bad := difference(error(lambda: ours(*given, **named)), theirs)):  # noqa: B023
                yield f"{dtype}: {bad}"
                break


def _cast(value: Any, base: torch.dtype | None, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(dtype) if value.dtype is base else value.detach()
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, base, dtype) for v in value)
    return {key: _cast(v, base, dtype) for key, v in value.items()} if isinstance(value, dict) else value


def of_module(info: Any) -> Iterator[str]:
    """What differs in the error inputs of a module, made or called."""
    ours = module_samples.find(info.name if info.name.startswith("nn.") else f"nn.{info.name}")
    for training in (False, True):
        options = {"device": "cpu", "dtype": torch.float32, "requires_grad": False, "training": training}
        for number, given in enumerate(info.module_error_inputs_func(info, **options)):
            sample = given.module_error_input
            theirs = error(lambda: _run(info.module_cls, sample, training, lambda x: x))  # noqa: B023
            mine = error(lambda: _run(ours, sample, training, module_samples.convert))  # noqa: B023
            if theirs and (bad := difference(mine, theirs)):
                yield f"input {number}, training={training}: {bad}"


def _run(cls: Any, sample: Any, training: bool, convert: Callable[[Any], Any]) -> None:
    made, given = sample.constructor_input, sample.forward_input
    keywords = {k: v for k, v in made.kwargs.items() if k != "device"}
    module = cls(*convert(made.args), **convert(keywords)).train(training)
    if given is not None:
        module(*convert(given.args), **convert(given.kwargs))


def of_optimizer(info: Any) -> Iterator[str]:
    """What differs in the error inputs of an optimizer."""
    ours = getattr(dc.optim, info.optim_cls.__name__)
    for number, given in enumerate(info.optim_error_inputs_func(device="cpu", dtype=torch.float32)):
        sample = given.optimizer_error_input
        params = sample.params or [torch.nn.Parameter(torch.ones(2))]
        theirs = error(lambda: info.optim_cls(params, **sample.kwargs))  # noqa: B023 - called at once
        made: dict[Any, Any] = {}
        try:
            given_params, options = (torch_samples.convert(x, made) for x in (params, sample.kwargs))
        except torch_samples.Unsuitable:
            continue
        mine = error(lambda: ours(given_params, **options))  # noqa: B023
        if theirs and (bad := difference(mine, theirs)):
            yield f"input {number} ({given.error_regex}): {bad}"
