"""Index index arithmetic against plain integers, and the simplifications that keep loops affine."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Mapping

import pytest

from compiler_core.symbolic.index import (
    ZERO,
    Axis,
    Data,
    Div,
    Index,
    constant,
    named_axis,
    of_axis,
    of_data,
)
from compiler_core.symbolic.index_text import read_index, show_index

Environment = Mapping[Axis, int]


def evaluate(index: Index, environment: Environment) -> int:
    """By the index itself, and by its text, read back and run by Python: the same."""
    names = {axis: named_axis(f"i{k}", axis.extent) for k, axis in enumerate(environment)}
    named = index.renamed(lambda variable: names[variable])
    text, values = show_index(named), {names[axis].name: value for axis, value in environment.items()}
    variables = {axis.name: axis for axis in names.values()}
    assert read_index(ast.parse(text, mode="eval").body, lambda tree: variables[ast.unparse(tree)]) == named
    result = index.evaluate(environment.__getitem__)
    assert result == eval(text, values)
    return int(result)


def _random_step(
    rng: random.Random, pool: list[Index], plain: list[Callable[[Environment], int]]
) -> tuple[Index, Callable[[Environment], int]]:
    i, j, k = rng.randrange(len(pool)), rng.randrange(len(pool)), rng.choice([1, 2, 3, 4, 6, 12])
    f, g = plain[i], plain[j]
    match rng.choice("+-*/%"):
        case "+":
            return pool[i] + pool[j], lambda env: f(env) + g(env)
        case "-":
            return pool[i] - pool[j] + k, lambda env: f(env) - g(env) + k
        case "*":
            return pool[i] * -k, lambda env: f(env) * -k
        case "/":
            return pool[i] // k, lambda env: f(env) // k
        case _:
            return pool[i] % k, lambda env: f(env) % k


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions_equal_integer_arithmetic_and_stay_in_bounds(seed: int) -> None:
    rng = random.Random(seed)
    axes = [Axis("", rng.choice([1, 2, 3, 4, 6, 8])) for _ in range(3)]
    pool = [of_axis(axis) for axis in axes]
    plain: list[Callable[[Environment], int]] = [lambda env, a=axis: env[a] for axis in axes]  # type: ignore[misc]
    for _ in range(7):
        index, function = _random_step(rng, pool, plain)
        pool.append(index)
        plain.append(function)
    for _ in range(5):
        environment = {axis: rng.randrange(axis.extent) for axis in axes}
        for index, function in zip(pool, plain):
            low, high = index.bounds
            assert evaluate(index, environment) == function(environment)
            assert low <= function(environment) <= high


def test_a_chain_of_reshapes_is_the_identity_again() -> None:
    row, col = Axis("r", 1024), Axis("c", 256)
    flat = of_axis(row) * 256 + of_axis(col)
    b, t, c = flat // 32768, flat // 256 % 128, flat % 256  # (1024, 256) -> (8, 128, 256)
    assert c == of_axis(col)
    assert b * 32768 + t * 256 + c == flat


def test_ranges_decide_quotients() -> None:
    b, t = Axis("b", 8), Axis("t", 128)
    index = of_axis(b) * 128 + of_axis(t)
    assert index // 128 == of_axis(b)
    assert index % 128 == of_axis(t)
    assert (of_axis(t) + 128) // 128 == 1
    assert (of_axis(t) - 128) // 128 == -1


def test_what_does_not_simplify_stays_a_quotient() -> None:
    axis = Axis("i", 10)
    assert (of_axis(axis) // 4).terms == {Div(of_axis(axis), 4): 1}
    assert not (of_axis(axis) // 4).is_linear
    assert (of_axis(axis) // 2 // 3) == of_axis(axis) // 6


def test_an_axis_of_one_iteration_is_zero() -> None:
    assert of_axis(Axis("i", 1)) == ZERO
    assert constant(7) % 4 == 3


def test_substitution_reaches_into_quotients_and_data() -> None:
    axis, row, col = Axis("i", 12), Axis("r", 3), Axis("c", 4)
    index = of_axis(axis) // 4 + of_data(Data("x"))
    result = index.substitute({axis: of_axis(row) * 4 + of_axis(col)}, lambda atom: constant(5))
    assert result == of_axis(row) + 5


def test_products_of_axes_are_refused() -> None:
    with pytest.raises(TypeError, match="not affine"):
        of_axis(Axis("i", 3)) * of_axis(Axis("j", 3))
