"""Random programs on handles, compiled against eager: all that a user can see of results, arguments and aliasing."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from handle_programs import program

from compiler_core.capture import compile
from compiler_core.errors import AutogradError
from compiler_core.tensor.making.random import default_generator, manual_seed
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import flatten
from tests.sharing import some

pytestmark = pytest.mark.usefixtures("counter_draws")

SEEDS = range(60)


def arguments(seed: int, gradient: bool) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x, y, w = (Tensor._wrap(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((2, 3), (2, 3), (3, 2)))
    return x, y, w.requires_grad_(gradient)


def observe(function: Callable[..., Any], seed: int, gradient: bool) -> list[Any]:
    """Structure, random stream, requires_grad, identity, shared memory, values, and the gradient of one call."""
    manual_seed(seed)
    args = arguments(seed, gradient)
    leaves, spec = flatten(function(*args), fields=True)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    everything = [*tensors, *args]
    seen: list[Any] = [spec, default_generator.offset, [t.requires_grad for t in tensors]]
    seen.append([a is b for a, b in itertools.combinations(everything, 2)])
    seen.append([a._cell.root is b._cell.root for a, b in itertools.combinations(everything, 2)])
    seen.extend(t.detach().numpy().copy() for t in everything)
    roots = [t for t in tensors if t.requires_grad and t is not args[2]]
    if roots:
        sum((t * t).sum() for t in roots).backward()
        seen.append(None if args[2].grad is None else args[2].grad.numpy().copy())
    return seen


def compare(got: list[Any], want: list[Any], text: str) -> None:
    assert len(got) == len(want), text
    for a, b in zip(got, want):
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            atol = 1e-5 * float(np.abs(b).max(initial=1e-2))
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol, err_msg=text)
        else:
            assert type(a) is type(b), text
            assert a == b, text


@pytest.mark.parametrize("gradient", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("seed", some(SEEDS, 24))
def test_compiled_is_eager(seed: int, gradient: bool) -> None:
    function = program(seed)
    try:
        want = observe(function, seed, gradient)
    except AutogradError as error:
        pytest.skip(f"not a program: {error.what}")
    for backend in ("eager", "aot_eager"):
        compiled = compile(function, backend=backend)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                compare(observe(compiled, seed, gradient), want, f"seed {seed}, backend {backend}")


def test_most_programs_are_captured_whole() -> None:
    broken = []
    for seed in SEEDS:
        compiled = compile(program(seed), backend="aot_eager")
        with warnings.catch_warnings(), contextlib.suppress(AutogradError):
            warnings.simplefilter("ignore")
            observe(compiled, seed, True)
        broken.extend(f"{seed}: {text}" for text in compiled.explain().breaks)
    assert len(broken) < len(SEEDS) // 10, "\n".join(broken)


@pytest.mark.parametrize("seed", range(4))
def test_native_is_eager(seed: int) -> None:
    """Four programs in one artefact, on tensors of their own."""

    def works(k: int) -> bool:
        with contextlib.suppress(AutogradError):
            observe(program(k), k, True)
            return True
        return False

    functions = [program(k) for k in range(100 * seed + 1000, 100 * seed + 1020) if works(k)][:4]

    def together(x: Tensor, y: Tensor, w: Tensor) -> list[Any]:
        return [function(x.clone(), y.clone(), w * 1) for function in functions]

    want = observe(together, seed, True)
    compiled = compile(together, backend="codegen", fullgraph=True)
    for _ in range(2):
        compare(observe(compiled, seed, True), want, f"seed {seed}")
