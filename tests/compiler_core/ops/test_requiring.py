"""Values that are tested while a program runs: one error, eager and compiled, by each backend, and none too many."""

from collections.abc import Callable

import pytest

import distcompile as torch
import distcompile.nn.functional as F
from compiler_core.errors import DivisionByZeroError, DomainError

DIVISIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}
BACKENDS = ("eager", "aot_eager", "codegen", "triton")


def compiled(function: Callable[..., torch.Tensor], backend: str) -> Callable[..., torch.Tensor]:
    return function if backend == "eager" else torch.compile(function, backend=backend, fullgraph=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DIVISIONS)
def test_a_whole_number_over_zero_is_an_error(name: str, backend: str) -> None:
    divide = compiled(DIVISIONS[name], backend)
    a = torch.tensor([7, -7, 0])
    assert divide(a, torch.tensor([2, -3, 1])).tolist() == DIVISIONS[name](a, torch.tensor([2, -3, 1])).tolist()
    with pytest.raises(DivisionByZeroError, match="ZeroDivisionError"):
        divide(a, torch.tensor([2, 0, 1]))
    assert divide(a, torch.tensor([1, 1, 1])).tolist() == DIVISIONS[name](a, torch.tensor([1, 1, 1])).tolist()


def test_floats_over_zero_are_no_error() -> None:
    assert (torch.tensor([1.0, -1.0]) // torch.tensor([0.0, 0.0])).tolist() == [float("inf"), float("-inf")]


@pytest.mark.parametrize("backend", ["eager", "codegen"])
def test_negative_variances_and_classes_outside_are_errors(backend: str) -> None:
    x = torch.ones(3, requires_grad=True)
    loss = compiled(F.gaussian_nll_loss, backend)
    loss(x, torch.zeros(3), torch.ones(3)).backward()
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([1 / 3] * 3)
    with pytest.raises(DomainError, match="negative"):
        loss(x, torch.zeros(3), torch.tensor([1.0, -1.0, 1.0]))
    encode = compiled(lambda idx: F.one_hot(idx, 3), backend)
    assert encode(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    for outside in ([3, 0], [0, -1]):
        with pytest.raises(DomainError, match=r"class values must be in \[0, 3\)"):
            encode(torch.tensor(outside))
