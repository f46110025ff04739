"""torch._foreach_*: every name that torch has, its results, gradients, in-place forms and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile.surface import foreach

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NAMES = sorted(name for name in dir(torch) if name.startswith("_foreach"))
WITHOUT_GRADIENT = {f"_foreach_{name}" for name in ("addcdiv_", "addcmul_", "copy_", "maximum_", "minimum_", "powsum")}
SHAPES = ((3,), (2, 2), ())


def tensors(t: Any, seed: int, shapes: Any = SHAPES, grad: bool = False) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [t.tensor(rng.uniform(0.2, 0.9, s).astype(np.float32), requires_grad=grad) for s in shapes]


def operands(t: Any, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Ways of calling `name` beside its first list."""
    stem, other, third = name.removeprefix("_foreach_").rstrip("_"), tensors(t, 1), tensors(t, 2)
    numbers, number = [0.5, 2.0, 3.0], t.tensor(0.5)
    if stem in ("add", "sub"):
        one = [((number,), {"alpha": 2})] if stem == "add" else []
        return [((2.0,), {}), ((other,), {}), ((other,), {"alpha": 3}), ((numbers,), {}), ((), {"other": other}), *one]
    if stem in ("mul", "div"):
        return [((2.0,), {}), ((other,), {}), ((numbers,), {}), ((number,), {}), ((), {"scalar": 3.0})]
    if stem in ("clamp_min", "clamp_max", "maximum", "minimum"):
        return [((0.5,), {}), ((other,), {}), ((numbers,), {})]
    if stem == "pow":
        return [((2.0,), {}), ((other,), {}), ((numbers,), {}), ((), {"exponent": 3})]
    if stem == "lerp":
        return [((other, third), {}), ((other, 0.25), {}), ((other, numbers), {}), ((other,), {"weight": 0.5})]
    if stem in ("addcmul", "addcdiv"):
        last = ((other, third), {"value": 0.5})
        return [((other, third), {}), ((other, third, 2.0), {}), ((other, third, numbers), {}), last]
    if stem == "copy":
        return [((other,), {}), ((other, True), {})]
    if stem in ("norm", "powsum"):
        return [((), {}), ((1,), {}), ((3.0,), {"dtype": t.float64}), *([((float("inf"),), {})] * (stem == "norm"))]
    return [((), {})]


def test_no_name_is_missing() -> None:
    assert [name for name in NAMES if not hasattr(dc, name)] == []
    assert set(foreach.__all__) >= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_torchs(name: str) -> None:
    if name == "_foreach_mm":
        found, wanted = ([t._foreach_mm(tensors(t, 0, [(2, 3)]), tensors(t, 1, [(3, 2)]))[0]] for t in (dc, torch))
        np.testing.assert_allclose(found[0].numpy(), wanted[0].numpy(), rtol=1e-6)
        return
    for k in range(len(operands(dc, name))):
        found = []
        for t in (dc, torch):
            args, options = operands(t, name)[k]
            leaves = tensors(t, 0, grad=True)
            if name.endswith("_"):
                given = [leaf * 1 for leaf in leaves]
                assert getattr(t, name)(given, *args, **options)[0] is given[0]
            else:
                given = getattr(t, name)(leaves, *args, **options)
            if name not in WITHOUT_GRADIENT:
                sum(r.double().sum() for r in given).backward()
            found.append([x for x in (*given, *(leaf.grad for leaf in leaves)) if x is not None])
        for ours, theirs in zip(*found, strict=True):
            assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=3e-5, atol=1e-6)


def test_a_number_to_the_power_of_each_and_clones() -> None:
    for t in (dc, torch):
        np.testing.assert_allclose(
            t._foreach_pow(2.0, tensors(t, 0))[0].numpy(), 2 ** tensors(t, 0)[0].numpy(), rtol=1e-6
        )
        x = tensors(t, 0)
        scaled = t._foreach_addcmul(x, x, x, t.tensor([1.0, 2.0, 3.0]))
        np.testing.assert_allclose(scaled[2].numpy(), (x[2] + 3 * x[2] * x[2]).numpy(), rtol=1e-6)
        y = t._foreach_clone(x)
        t._foreach_zero_(x)
        assert (y[0] != 0).all()
        assert (x[0] == 0).all()


def test_errors_are_torchs() -> None:
    for t in (dc, torch):
        for attempt in (
            lambda t=t: t._foreach_add(tensors(t, 0), tensors(t, 1)[:2]),
            lambda t=t: t._foreach_mul(tensors(t, 0), [1.0]),
            lambda t=t: t._foreach_exp([]),
            lambda t=t: t._foreach_div_([t.ones(2, dtype=t.int64)], 2.5),
        ):
            with pytest.raises(RuntimeError):
                attempt()
