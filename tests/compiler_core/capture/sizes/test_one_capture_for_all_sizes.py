"""One capture serves all sizes: values, gradients and counts of captures of what users write."""

from __future__ import annotations

from typing import Any

import pytest
from sized_runs import SIZES, arguments, captures, check, same

import distcompile as dc
from distcompile import Tensor, nn
from distcompile.nn import functional as F

BACKENDS = ["eager", "aot_eager", "codegen"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_perceptron(backend: str) -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    assert check(lambda x: net(x), lambda n: arguments([(n, 8)]), backend=backend) == 1


def test_a_module_that_is_compiled_and_its_gradients() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    compiled: Any = dc.compile(net, backend="aot_eager", dynamic=True)
    for n in SIZES:
        x, t = dc.randn(n, 4), dc.arange(n) % 3
        grads = []
        for model in (net, compiled):
            net.zero_grad()
            F.cross_entropy(model(x), t).backward()
            grads.append([p.grad for p in net.parameters()])
        same(*grads, f"at size {n}")
    assert captures(compiled) == 1


def test_attention_with_views(backend: str) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.view(2, -1, 2, 4).transpose(1, 2) for x in (q, k, v))
        weights = (q @ k.transpose(-2, -1) * 0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(2, -1, 8)

    assert check(attend, lambda n: arguments([(2, n, 8)] * 3), backend=backend) == 1


def test_layer_norm() -> None:
    norm = nn.LayerNorm(8)
    assert check(lambda x: norm(x) * 2, lambda n: arguments([(n, 3, 8)])) == 1


def test_cross_entropy() -> None:
    def make(n: int) -> list[Tensor]:
        return [*arguments([(n, 5)]), dc.arange(n) % 5]

    assert check(F.cross_entropy, make) == 1


def test_two_tensors_of_equal_sizes() -> None:
    assert check(lambda x, y: x + y, lambda n: arguments([(n, 3)] * 2)) == 1


def test_two_tensors_of_unequal_sizes() -> None:
    assert check(lambda x, y: dc.cat([x, y]), lambda n: arguments([(n, 3), (n + 4, 3)])) == 1


def test_a_size_that_repeats_another() -> None:
    """Broadcasting asks whether sizes are equal; that they are not is as good for all sizes."""
    assert check(lambda x, y: x + y, lambda n: arguments([(n, 3), (3,)])) == 1


def test_an_argument_whose_dims_lie_in_another_order() -> None:
    def make(n: int) -> list[Tensor]:
        return [dc.empty_strided((n, 4), (1, n)).copy_(dc.randn(n, 4)).requires_grad_()]

    assert check(lambda x: x.view(-1) if x.is_contiguous() else x.t().view(-1), make) == 1


def test_an_argument_with_gaps_between_its_rows() -> None:
    def make(n: int) -> list[Tensor]:
        return [dc.randn(n, 10)[:, :4]]

    assert check(lambda x: x.contiguous().view(-1) * 2, make) == 1


def test_results_that_are_views_of_an_argument() -> None:
    def halves(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.view(-1, 2, 2), x.t()

    compiled: Any = dc.compile(halves, backend="aot_eager", dynamic=True)
    for n in SIZES:
        x = dc.randn(n, 4)
        for mine, others in zip(compiled(x), halves(x)):
            same(mine, others, f"at size {n}")
            mine.add_(1)
            same(mine, others, f"at size {n}")
    assert captures(compiled) == 1


def test_an_argument_that_is_written() -> None:
    def make(n: int) -> list[Tensor]:
        return [dc.randn(n, 4), dc.randn(n, 4)]

    def write(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y).mul_(2)
        return x * y

    assert check(write, make) == 1


def test_a_view_that_is_written_beside_its_base() -> None:
    """Views are taken by numbers: the sizes of their memory are constants then."""

    def write(base: Tensor, view: Tensor) -> Tensor:
        view.mul_(2)
        return base.sum() + view.sum()

    compiled: Any = dc.compile(write, backend="aot_eager", dynamic=True)
    for n in (2, 3, 4, 3, 5, 2):
        mine, others = dc.randn(6, 3), dc.zeros(6, 3)
        others.copy_(mine)
        same(compiled(mine, mine[:n]), write(others, others[:n]), f"{n} rows")
        same(mine, others, f"{n} rows")


def test_0_and_1_are_captures_of_their_own() -> None:
    def softmax(x: Tensor) -> Tensor:
        return (x * 2).softmax(1)

    compiled: Any = dc.compile(softmax, backend="aot_eager", dynamic=True)
    assert check(softmax, lambda n: arguments([(n, 3)]), (0, 4, 1, 6, 9, 0, 1), compiled=compiled) == 3


def test_a_large_size() -> None:
    assert check(lambda x: x.relu() + 1, lambda n: arguments([(n,)]), (2, 65537, 3)) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_draws_of_the_size_of_an_argument(backend: str) -> None:
    def noisy(x: Tensor) -> Tensor:
        return x + dc.rand_like(x)

    compiled: Any = dc.compile(noisy, backend=backend, dynamic=True)
    for n in SIZES:
        x = dc.zeros(n, 3)
        dc.manual_seed(n)
        expected = noisy(x)
        dc.manual_seed(n)
        same(compiled(x), expected, f"at size {n}")
    assert captures(compiled) == 1


def test_what_data_gave_beside_the_tensor() -> None:
    compiled: Any = dc.compile(lambda x, y: x * y.stride(0) + y, backend="aot_eager", dynamic=True)
    for n in SIZES:
        for m in (n, 3):
            x, y = dc.ones(n, 3), dc.ones(n, m).data if m == n else dc.ones(n, m)
            expected = dc.ones(n, m) * (m + 1)
            same(compiled(x[:, :1].expand(n, m), y), expected, f"{n}, {m}")
        x = dc.ones(n, 3)
        same(compiled(x, x.data), dc.ones(n, 3) * 4, f"at size {n}")


def test_strides_of_a_view_are_its_own() -> None:
    """That of its base is another argument's, at other calls."""
    compiled: Any = dc.compile(lambda x, v: x.sum() * v.stride(0), backend="aot_eager", dynamic=True)
    base = dc.ones(6, 4)
    same(compiled(base, base[:1, :2]), dc.tensor(96.0), "a view of the other")
    for n in (5, 7):
        same(compiled(dc.ones(6, n), dc.ones(6, 4)[:1, :2]), dc.tensor(24.0 * n), "a view of its own")
