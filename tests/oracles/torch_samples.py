"""PyTorch's op database run against this package: one sample of one entry, its results and gradients compared.

In: an OpInfo and a SampleInput of torch.testing. Out: None where values, shapes, dtypes and gradients are torch's, else
what differs; exceptions are the caller's. Gradients are those of a weighted sum of all floating results, weights drawn
from a fixed seed. Tolerances are those of float32 computed in another order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

import distcompile as dc

RANDOM = {
    "bernoulli", "empty", "empty_like", "new_empty", "empty_strided", "empty_permuted", "new_empty_strided",
    "multinomial", "normal", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "exponential",
    "cauchy", "geometric", "log_normal", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.rrelu",
}  # fmt: skip
PRIVATE = ("_", "torch.", "jiterator", "native_", "linalg.ldl", "to_sparse", "sparse", "geqrf", "ormqr")
PROPERTIES = {"H", "T", "mH", "mT", "real", "imag"}
CONVERSIONS = {"bfloat16", "bool", "double", "float", "half", "int", "long", "short", "byte", "char"}
CONVERSIONS |= {"cfloat", "cdouble", "chalf"}
# Entries that do not call the function of their name as it is: what they do with it.
SHUFFLED: dict[str, Callable[..., Any]] = {
    "where": lambda x, condition, other: dc.where(condition, x, other),
    "einsum": lambda xs, equation: dc.einsum(equation, *xs),
    "nn.functional.embedding": lambda weight, index, **options: dc.nn.functional.embedding(index, weight, **options),
    "nn.functional.embedding_bag": (
        lambda weight, index, **options: dc.nn.functional.embedding_bag(index, weight, **options)
    ),
    "linalg.lstsq/grad_oriented": lambda a, b, driver: dc.linalg.lstsq(a, b, driver=driver)[:2],
    "linalg.pinv/singular": lambda a, b: dc.linalg.pinv(a @ b.mT),
    "svd_lowrank": lambda a, b, **options: dc.svd_lowrank(a @ b.mT, **options),
    "pca_lowrank": lambda a, b, **options: dc.pca_lowrank(a @ b.mT, **options),
    "zero_": lambda x: x.clone().zero_(),
    "normal/in_place": lambda x, *args, **options: x.clone().normal_(*args, **options),
    "resize_": lambda x, shape: x.clone().resize_(shape),
    "resize_as_": lambda x, other: x.clone().resize_as_(other),
}


def seed(number: int | None = None) -> None:
    """Seeds what samples are drawn from."""
    number = common_utils.SEED if number is None else number
    torch.default_generator.manual_seed(number), random.seed(number), np.random.seed(number)


# Most of these tests' time otherwise: torch's own, called for each sample, keeps the stack's text for each kind of
# device that is not there; each sampling looks for a unittest.TestCase among its callers, and for their sources.
common_utils.set_rng_seed = seed
common_utils.extract_test_fn = core.extract_test_fn = lambda: None


class Unsuitable(Exception):
    """A sample with what this package has not: sparse layouts, complex32, generators of torch."""


def entries() -> dict[str, Any]:
    """name, or name/variant -> OpInfo, of all whose results are determined and public."""

    def public(name: str) -> bool:
        return not (name.startswith(PRIVATE) or name.endswith("_copy") or "backward" in name or name in RANDOM)

    named = {op.name + (f"/{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}
    return {key: op for key, op in named.items() if public(op.name) and dtype_of(op) is not None}


def dtype_of(op: Any) -> torch.dtype | None:
    """The dtype to take samples of."""
    dtypes = (torch.float32, torch.int64, torch.bool, torch.complex64)
    return next((d for d in dtypes if d in op.dtypes), None)


def samples(op: Any, count: int | None, dtype: torch.dtype | None = None) -> Iterator[Any]:
    """The first `count` samples (None: all) of `dtype`, or of the dtype that `dtype_of` names."""
    dtype = dtype or dtype_of(op)
    with_gradient = op.supports_autograd and (
        dtype is torch.float32 or (dtype.is_complex and dtype in op.backward_dtypes)
    )
    yield from islice(op.sample_inputs("cpu", dtype, requires_grad=with_gradient), count)


def find(entry: str) -> Callable[..., Any] | None:
    """Our function of this entry's name, or the method; None where there is none."""
    name = entry.split("/")[0]
    if entry in SHUFFLED or name in SHUFFLED:
        return SHUFFLED.get(entry) or SHUFFLED[name]
    if name in PROPERTIES:
        return (lambda x: getattr(x, name)) if hasattr(dc.Tensor, name) else None
    spot: Any = None if name in CONVERSIONS else dc
    for part in name.split("."):
        spot = getattr(spot, part, None)
    if spot is not None:
        return spot  # type: ignore[no-any-return]
    if "." not in name and hasattr(dc.Tensor, name):
        return lambda x, *rest, **options: getattr(x, name)(*rest, **options)
    return None


def convert(value: Any, made: dict[int, tuple[Any, Any]]) -> Any:
    """torch's arguments as ours; made: the tensors so far, by id. Raises Unsuitable."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.dtype is torch.complex32:
            raise Unsuitable("layout or complex32")
        if id(value) not in made:
            ours = dc.tensor(np.array(value.detach().resolve_conj().resolve_neg().numpy()))
            made[id(value)] = (value, ours.requires_grad_() if value.requires_grad else ours)
        return made[id(value)][1]
    if isinstance(value, torch.dtype):
        if not hasattr(dc, str(value).split(".")[1]):
            raise Unsuitable(str(value))
        return getattr(dc, str(value).split(".")[1])
    if isinstance(value, torch.device):
        return "cpu"
    if isinstance(value, (torch.memory_format, torch.layout, torch.Generator)):
        raise Unsuitable(str(type(value)))
    if isinstance(value, (list, tuple)):
        parts = [convert(v, made) for v in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {key: convert(v, made) for key, v in value.items()}
    if isinstance(value, torch.nn.PairwiseDistance):
        return dc.nn.PairwiseDistance(value.norm, value.eps, value.keepdim)
    return value


def flat(result: Any) -> list[Any]:
    """Results in nested sequences, in order."""
    return [y for x in result for y in flat(x)] if isinstance(result, (list, tuple)) else [result]


def difference(got: Any, want: Any) -> str | None:
    """What differs, if anything."""
    if not isinstance(want, torch.Tensor):
        near = isinstance(want, (float, complex)) and np.isclose(got, want)
        return None if near or np.all(np.asarray(got) == np.asarray(want)) else f"value {got!r} for {want!r}"
    if not isinstance(got, dc.Tensor):
        return f"{type(got).__name__} for a tensor"
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)} for {tuple(want.shape)}"
    if str(got.dtype).split(".")[-1] != str(want.dtype).split(".")[-1]:
        return f"dtype {got.dtype} for {want.dtype}"
    wide = np.complex128 if want.is_complex() else np.float64
    g = np.asarray(got.detach().resolve_conj().numpy(), wide)
    w = want.detach().resolve_conj().resolve_neg().to(torch.cdouble if want.is_complex() else torch.double).numpy()
    largest = float(np.max(np.abs(np.where(np.isfinite(w), w, 0)), initial=1.0))
    return None if np.allclose(g, w, rtol=2e-4, atol=2e-5 * largest, equal_nan=True) else "values"


def run_sample(op: Any, ours: Callable[..., Any], sample: Any) -> str | None:
    """What differs from torch in one sample's results or gradients; None: nothing. Raises Unsuitable."""
    made: dict[int, tuple[Any, Any]] = {}
    args, kwargs = convert([sample.input, *sample.args], made), convert(sample.kwargs, made)
    determined = sample.output_process_fn_grad  # of factors whose signs are free: the sample's own choice
    want = flat(determined(op(sample.input, *sample.args, **sample.kwargs)))
    got = flat(determined(ours(*args, **kwargs)))
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for g, w in zip(got, want):
        if bad := difference(g, w):
            return bad
    leaves = [(v, t) for v, t in made.values() if v.requires_grad and v.is_leaf]
    return _gradient_difference(got, want, leaves) if leaves else None


def _weights(rng: np.random.Generator, root: torch.Tensor) -> np.ndarray[Any, Any]:
    """Random weights of root's shape; both parts are weighed of a complex one."""
    drawn = rng.standard_normal(root.shape)
    return np.asarray(drawn + 1j * rng.standard_normal(root.shape) if root.is_complex() else drawn)


def _gradient_difference(got: list[Any], want: list[Any], leaves: list[tuple[Any, Any]]) -> str | None:
    roots = [(g, w) for g, w in zip(got, want) if isinstance(w, torch.Tensor) and w.requires_grad and w.numel()]
    if not roots:
        return None
    rng, theirs, mine = np.random.default_rng(0), torch.zeros(()), dc.zeros(())
    for g, w in roots:
        weights = _weights(rng, w)
        theirs = theirs + (torch.from_numpy(weights).to(w.dtype) * w).sum().real
        mine = mine + (dc.tensor(weights).to(g.dtype) * g).sum().real
    wanted = torch.autograd.grad(theirs, [v for v, _ in leaves], allow_unused=True)
    mine.backward()
    for (_, ours), grad in zip(leaves, wanted):
        if grad is None or (ours.grad is None and not grad.any()):
            continue
        if ours.grad is None:
            return "gradient missing"
        if bad := difference(ours.grad, grad):
            return f"gradient: {bad}"
    return None
