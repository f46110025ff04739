"""PyTorch's module and optimizer databases run against this package: one sample of one entry at a time.

In: a ModuleInfo or OptimizerInfo of torch.testing and a sample. Out: None where state dict keys, outputs and gradients
(of parameters and inputs) are torch's from the same weights, or parameters after eight steps; else what differs.
Exceptions are the caller's. Tolerances are those of float32 computed in another order.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

import distcompile as dc

OTHER_WORLDS = ("quant", "Nested")  # quantized modules and nested tensors are no part of this
EXECUTION = ("foreach", "fused", "capturable", "differentiable")  # how torch runs an optimizer, not what it computes


def find(path: str) -> Any:
    """Our thing of this name (torch's, without "torch."), or None."""
    spot: Any = dc
    for part in path.split("."):
        spot = getattr(spot, part, None)
    return spot


def modules() -> dict[str, Any]:
    """Name without "nn." -> ModuleInfo."""
    return {info.name.removeprefix("nn."): info for info in module_db if not any(w in info.name for w in OTHER_WORLDS)}


def optimizers() -> dict[str, Any]:
    """Class name -> OptimizerInfo."""
    return {info.optim_cls.__name__: info for info in optim_db}


def samples(info: Any, count: int | None) -> Iterator[tuple[Any, bool]]:
    """(ModuleInput, training) of the first `count` samples of each mode (None: all) whose results are determined."""
    for training in (False, True):
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        for sample in islice(inputs, count):
            is_random = "Dropout" in info.name or "dropout" in sample.constructor_input.kwargs
            if not (training and is_random):
                yield sample, training


def options(info: Any) -> list[dict[str, Any]]:
    """The options of an optimizer's samples, without those that say how torch runs it."""
    given = [
        {k: v for k, v in sample.kwargs.items() if k not in EXECUTION}
        for sample in info.optim_inputs_func(device="cpu")
    ]
    given = [one for one in given if not any(isinstance(v, torch.Tensor) for v in one.values())]
    return [one for i, one in enumerate(given) if one not in given[:i]]


def convert(value: Any) -> Any:
    """torch's arguments as ours."""
    if isinstance(value, torch.Tensor):
        ours = dc.tensor(np.array(value.detach().numpy()))
        return ours.requires_grad_() if value.requires_grad else ours
    if isinstance(value, torch.dtype):
        return getattr(dc, str(value).split(".")[1])
    if isinstance(value, torch.device):
        return "cpu"
    if callable(value) and getattr(value, "__name__", "") in dc.nn.functional.__all__:
        return getattr(dc.nn.functional, value.__name__)
    if isinstance(value, (list, tuple)):
        return type(value)(convert(v) for v in value)
    if isinstance(value, dict):
        return {key: convert(v) for key, v in value.items()}
    return value


def flat(result: Any) -> list[Any]:
    """Tensors in nested sequences, in order; nothing for None."""
    if isinstance(result, (list, tuple)):
        return [y for x in result for y in flat(x)]
    return [] if result is None else [result]


def difference(got: Any, want: torch.Tensor) -> str | None:
    """What differs, if anything."""
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)} for {tuple(want.shape)}"
    g, w = np.asarray(got.detach().numpy(), np.float64), want.detach().double().numpy()
    largest = float(np.max(np.abs(np.where(np.isfinite(w), w, 0)), initial=1.0))
    return None if np.allclose(g, w, rtol=3e-4, atol=3e-5 * largest, equal_nan=True) else "values"


def run_module(info: Any, sample: Any, training: bool, wrap: Callable[[Any], Any]) -> str | None:
    """What differs from torch in one sample of a module; None: nothing. wrap: makes our module a callable."""
    made, given = sample.constructor_input, sample.forward_input
    theirs = _theirs(info, sample, training)
    keywords = {k: v for k, v in made.kwargs.items() if k != "device"}
    ours = find(info.name if info.name.startswith("nn.") else f"nn.{info.name}")(
        *convert(made.args), **convert(keywords)
    ).train(training)
    state = theirs.state_dict()
    if list(ours.state_dict()) != list(state):
        return f"state dict keys {list(ours.state_dict())} for {list(state)}"
    ours.load_state_dict({name: value.numpy().copy() for name, value in state.items()})
    return None if given is None else _compare(theirs, wrap(ours), ours, given)


def run_pickled(info: Any, sample: Any, training: bool) -> str | None:
    """What differs from torch's module in the one that is read from the file that torch.save made of it."""
    theirs = _theirs(info, sample, training)
    file = io.BytesIO()
    torch.save(theirs, file)
    ours = dc.load(io.BytesIO(file.getvalue()), weights_only=False)
    if list(ours.state_dict()) != list(theirs.state_dict()) or ours.training is not training:
        return f"state dict keys {list(ours.state_dict())} for {list(theirs.state_dict())}, or the mode"
    given = sample.forward_input
    return None if given is None else _compare(theirs, ours, ours, given)


def _theirs(info: Any, sample: Any, training: bool) -> Any:
    """torch's module; a lazy one has its sizes."""
    made, given = sample.constructor_input, sample.forward_input
    theirs = info.module_cls(*made.args, **made.kwargs).train(training)
    if "Lazy" in info.name:
        theirs(*given.args, **given.kwargs)
    return theirs


def _compare(theirs: Any, run: Callable[..., Any], ours: Any, given: Any) -> str | None:
    """What differs in outputs and gradients. run: `ours`, or made of it."""
    args, keywords = convert(given.args), convert(given.kwargs)
    want, got = flat(theirs(*given.args, **given.kwargs)), flat(run(*args, **keywords))
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for g, w in zip(got, want, strict=True):
        if isinstance(w, torch.Tensor) and (bad := difference(g, w)):
            return bad
    leaves = [(g, w) for g, w in zip(flat(args), flat(given.args), strict=True) if isinstance(w, torch.Tensor)]
    leaves = [(g, w) for g, w in leaves if w.requires_grad and w.is_leaf]
    leaves += zip(ours.parameters(), theirs.parameters(), strict=True)
    return _gradient_difference(got, want, leaves)


def _gradient_difference(got: list[Any], want: list[Any], leaves: list[tuple[Any, Any]]) -> str | None:
    roots = [(g, w) for g, w in zip(got, want, strict=True) if isinstance(w, torch.Tensor) and w.requires_grad]
    if not roots or not leaves:
        return None
    rng, mine, theirs = np.random.default_rng(0), dc.zeros(()), torch.zeros(())
    for g, w in roots:
        weights = np.asarray(rng.standard_normal(w.shape).astype(np.float32))
        mine, theirs = mine + (dc.tensor(weights) * g).sum(), theirs + (torch.from_numpy(weights) * w).sum()
    wanted = torch.autograd.grad(theirs, [w for _, w in leaves], allow_unused=True)
    mine.backward()
    for (ours, _), grad in zip(leaves, wanted, strict=True):
        if grad is None or (ours.grad is None and not grad.any()):
            continue
        if ours.grad is None:
            return "gradient missing"
        if bad := difference(ours.grad, grad):
            return f"gradient: {bad}"
    return None


def run_optimizer(info: Any, given: dict[str, Any]) -> str | None:
    """What differs from torch after eight steps from the same parameters, with the same gradients."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype("f4") for shape in ((5, 3), (2, 4))]
    theirs = [torch.nn.Parameter(torch.tensor(value)) for value in values]
    ours = [dc.nn.Parameter(dc.tensor(value)) for value in values]
    want, got = info.optim_cls(theirs, **given), find(f"optim.{info.optim_cls.__name__}")(ours, **convert(given))
    for _ in range(8):
        for w, g in zip(theirs, ours, strict=True):
            gradient = rng.standard_normal(tuple(w.shape)).astype("f4")
            w.grad, g.grad = torch.tensor(gradient), dc.tensor(gradient)
        want.step(lambda: torch.zeros(())) if info.step_requires_closure else want.step()
        got.step(lambda: dc.zeros(())) if info.step_requires_closure else got.step()
    return next((bad for g, w in zip(ours, theirs, strict=True) if (bad := difference(g, w))), None)
