"""Random small programs written with NumPy: compiled, each must give, print and write what it does without.

A program is a list of expressions and statements (views, writes through them, branches on data, prints) over 3 x 3
arrays; it is called three times with other data. Checked: values, dtypes, types, what shares memory with an argument,
and the argument afterwards. `--long` runs more of them.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import random
from typing import Any

import numpy as np
import pytest

import distcompile as torch

EXPRESSIONS = """
{a} + {b} | {a} * {c} | {a} - {b}.mean() | np.where({a} > {b}, {a}, {c}) | {a}[::-1] | {a}.T.copy().T
np.maximum({a}, {c}) | {a}[:, [2, 0, 1]] | np.concatenate([{a}[:1], {b}[1:]]) | {a} @ {b}.T @ {a}[:, :1] * {b}
np.cumsum({a}, axis=1) | {a} / (np.abs({b}) + 1) | np.sort({a}, axis=0) | ({a} > {c}).astype({a}.dtype)
{a} - {a}.max(axis=1, keepdims=True) | np.roll({a}, 1, axis=1) | {a}[np.argsort({b}[:, 0])] | np.clip({a}, -1, 2)
{a}.astype(np.float32) | {a}.astype(int) | np.flip({a}, 1) | np.sign({a}) * {b} | {a} % 3 | {a} // 2
np.stack([{a}, {b}]).sum(0) | np.repeat({a}, 2, axis=0)[1:4] | {a}.copy().reshape(-1).reshape(3, 3)
np.tile({a}, 2)[:, 1:4] | np.round({a} * 1.5)
np.square({a}) | {a}.dot({b}) | np.tril({a}) | np.outer({a}[0], {b}[1]) | -({a} ** 2)
np.full_like({a}, {b}[0, 0]) | np.array([{a}[0], {b}[1], {c} * np.ones(3)]) | np.zeros((3, 3)) + {a}
np.eye(3)[{i}] * {a} | np.take_along_axis({a}, np.argsort({b}, axis=1), axis=1) | np.diff({a}, axis=0, append=0)
{a}.var(axis=0) * {b} | np.linalg.norm({a}, axis=1)[:, None] + {b} | np.broadcast_to({a}[1], (3, 3))
np.pad({a}, 1)[1:-1, 1:-1] | np.minimum.reduce([{a}, {b}]) | np.moveaxis({a}, 0, 1) | np.mean([{a}, {b}], axis=0)
{a}[{i}, :] + {b}[:, {i}][:, None] | np.einsum('ij,kj->ik', {a}, {b})
"""
STATEMENTS = """
{a}[{i}] = {c} | {a}[:, {i}] += 1 | {a}[{a} > 1] = {c} | {a} *= 2 | {v} = {a}[{i}:]; {v} -= 1 | {a}[1:] = {a}[:-1]
{v} = {a}.T; {v}[0] = {b}[1] | {a}[::-1, 0] = {b}[:, 1] | np.multiply({a}, 2, out={a}) | {a}[[0, 2], [1, 1]] = {c}
{v} = {a}.copy().ravel(); {v}[4] = 9; kept.append({v}) | {a}[...] = np.where({b} > 0, {a}, {c})
np.add.at({a}, [0, 0], 1) | {a}[{i}, {i}] = {a}.sum() | {a}.sort(axis=1) | {a}.fill({c}) | print({a}.sum() > 0)
np.copyto({a}, {b}, casting='unsafe') | {v} = {a}[:, ::2]; {v}[:] = {v} * 2 | kept.append({a}.max())
"""
BLOCKS = ["if {a}.sum() > {c}:\n        {a} = {a} + 1", "for row in {a}:\n        row += 1"]


def parts(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


def program(seed: int) -> str:
    """The text of a function of two arrays."""
    rng = random.Random(seed)
    lines = ["def function(x, y):", "    a, b = x, y * 1", "    kept = []"]
    names = ["a", "b"]
    for step in range(rng.randint(3, 7)):
        is_statement = rng.random() < 0.45
        choice = rng.choice([*parts(STATEMENTS), *BLOCKS] if is_statement else parts(EXPRESSIONS))
        number = rng.choice(["1.5", "2", "0", "-1"])
        text = choice.format(a=rng.choice(names), b=rng.choice(names), c=number, i=rng.randint(0, 2), v=f"v{step}")
        lines.append(f"    {text}" if is_statement else f"    t{step} = {text}")
        names += [] if is_statement else [f"t{step}"]
    return "\n".join([*lines, f"    return {', '.join(names)}, kept, x"])


def outcome(function: Any, arrays: list[Any]) -> tuple[Any, str]:
    """What a call gives or raises, and what it prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), np.errstate(all="ignore"):
        try:
            return function(*arrays), said.getvalue()
        except Exception as error:  # noqa: BLE001
            return error, said.getvalue()


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def check(seed: int) -> None:
    text = program(seed)
    namespace: dict[str, Any] = {"np": np}
    linecache.cache[f"<program {seed}>"] = (len(text), None, text.splitlines(keepends=True), f"<program {seed}>")
    exec(compile(text, f"<program {seed}>", "exec"), namespace)
    function = namespace["function"]
    compiled = torch.compile(function, backend="eager")
    dtype = ("float64", "float32", "int64", "int32")[seed % 4]
    tolerance = 1e-4 if dtype == "float32" else 1e-8
    for call in range(3):
        rng = np.random.default_rng(10 * seed + call)
        mine = [np.round(rng.standard_normal((3, 3)) * 3, 2).astype(dtype) for _ in range(2)]
        theirs = [array.copy() for array in mine]
        (expected, told), (got, said) = outcome(function, theirs), outcome(compiled, mine)
        assert said == told, f"{text}\nseed {seed}"
        if isinstance(expected, Exception):
            assert isinstance(got, type(expected)), f"{text}\nseed {seed}: {got!r}"
            return
        assert not isinstance(got, Exception), f"{text}\nseed {seed}: {got!r}"
        for one, other in zip(leaves(got), leaves(expected), strict=True):
            facts = [(type(a), a.dtype, a.shape, np.shares_memory(a, x[0])) for a, x in ((one, mine), (other, theirs))]
            assert facts[0] == facts[1], f"{text}\nseed {seed}"
            loose = max(tolerance, 1e-4 if other.dtype == np.float32 else 0)
            np.testing.assert_allclose(one, other, rtol=loose, atol=loose, err_msg=f"{text}\nseed {seed}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tens", range(12))
def test_programs(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        check(seed)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_many_programs() -> None:
    for seed in range(1000, 1600):
        check(seed)
