"""Compiled modules: parameters, buffers, hooks, modes, tied weights, randomness; eager is the oracle."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.capture import CompiledFunction, compile
from compiler_core.errors import AutogradError, ConfigError
from compiler_core.log import DistCompileWarning
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import arange, ones
from compiler_core.tensor.making.random import default_generator, manual_seed
from compiler_core.tensor.making.random_creation import randn
from compiler_core.tensor.tensor import Tensor
from distcompile import nn
from distcompile.nn import functional as F

pytestmark = pytest.mark.usefixtures("counter_draws")

BACKENDS = ["eager", "aot_eager"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def seeded() -> None:
    manual_seed(0)


def entries(compiled: CompiledFunction) -> int:
    return len(compiled.explain().entries)


def grads(module: nn.Module) -> dict[str, list[Any] | None]:
    return {name: None if p.grad is None else p.grad.tolist() for name, p in module.named_parameters()}


def assert_step_as_eager(module: nn.Module, backend: str, *args: Any, steps: int = 2) -> CompiledFunction:
    """A few training steps of a compiled copy and an eager copy: outputs, gradients, buffers, the random stream."""
    eager, compiled = copy.deepcopy(module), compile(copy.deepcopy(module), backend=backend, fullgraph=True)
    for step in range(steps):
        sides = []
        for model in (eager, compiled):
            manual_seed(step)
            model.zero_grad()
            output = model(*args)
            (output * output).sum().backward()
            buffers = [b.tolist() for _, b in model.named_buffers()]
            sides.append((output.tolist(), grads(model), buffers, default_generator.offset))
            with no_grad():
                for parameter in model.parameters():
                    parameter.add_(parameter.grad * -0.01)
        for a, b in zip(*sides):
            assert_close(a, b)
    assert entries(compiled) == 1
    return compiled


def assert_close(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_close(a[key], b[key])
    elif a is None:
        assert b is None
    elif isinstance(a, list) and a and isinstance(a[0], list) and len({np.shape(x) for x in a}) > 1:
        for x, y in zip(a, b, strict=True):
            assert_close(x, y)
    else:
        largest = float(np.max(np.abs(b), initial=0.0))  # entries are sums that may cancel: judged by the largest
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=2e-5, atol=3e-5 * largest + 1e-7)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.inner = nn.Linear(8, 16)
        self.outer = nn.Linear(16, 8)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.outer(F.gelu(self.inner(self.norm(x)))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 8)
        self.head = nn.Linear(8, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, index: Tensor) -> Tensor:
        return self.head(self.embed(index)).softmax(-1)


class Running(nn.Module):
    """A buffer that is written at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(ones(3))
        self.register_buffer("mean", ones(3) * 0)

    def forward(self, x: Tensor) -> Tensor:
        with no_grad():
            self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
        return (x - self.mean) * self.weight


@pytest.mark.parametrize(
    ("module", "argument"),
    [
        (Block, lambda: randn(4, 8)),
        (lambda: nn.Sequential(Block(), Block()), lambda: randn(2, 3, 8)),
        (Tied, lambda: arange(5)),
        (Running, lambda: randn(4, 3)),
        (lambda: nn.Sequential(nn.Linear(3, 3), nn.Identity()), lambda: randn(4, 3)),
    ],
    ids=["block", "sequence", "tied", "running buffer", "identity"],
)
def test_training_steps(module: Callable[[], nn.Module], argument: Callable[[], Tensor], backend: str) -> None:
    assert_step_as_eager(module(), backend, argument())


def test_a_tied_weight_is_one_input_with_the_whole_gradient() -> None:
    compiled = assert_step_as_eager(Tied(), "aot_eager", arange(5))
    graph = dict(compiled.explain().entries[0].graphs)["forward"]
    assert [node.source for node in graph.inputs if node.role == "parameter"] == ["self.embed.weight"]


def test_modes_hooks_and_replaced_parts_are_noticed(backend: str) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    compiled = compile(module, backend=backend, fullgraph=True)
    x = randn(2, 3)

    def check(recompiles: bool = True) -> None:
        before = entries(compiled)
        outputs = []
        for call in (compiled, module):
            manual_seed(3)
            outputs.append(call(x).detach().numpy())
        np.testing.assert_allclose(*outputs, rtol=1e-6)
        assert entries(compiled) - before == recompiles

    check()
    check(recompiles=False)
    module.eval()
    check()
    handle = module[0].register_forward_hook(lambda m, args, out: out * 2)
    check()
    handle.remove()
    check(recompiles=False)  # as it was before
    module[0].weight = nn.Parameter(ones(3, 3))
    check()
    module[0].weight.data = ones(3, 3) * 2
    check(recompiles=False)  # it has changed before: from then on it is asked for at every call
    with no_grad():
        module[0].weight.add_(1)
    check(recompiles=False)
    module[0].bias.requires_grad_(False)
    check()


def test_a_frozen_parameter_gets_no_gradient(backend: str) -> None:
    module = nn.Linear(3, 2)
    module.weight.requires_grad_(False)
    compile(module, backend=backend, fullgraph=True)(randn(2, 3)).sum().backward()
    assert module.weight.grad is None
    assert module.bias.grad.tolist() == [2.0, 2.0]


def test_full_backward_hooks(backend: str) -> None:
    def run(compiled: bool) -> dict[str, Any]:
        manual_seed(1)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        module[1].register_full_backward_hook(lambda m, grad_in, grad_out: (grad_in[0] * 2 + grad_out[0],))
        module[2].register_full_backward_pre_hook(lambda m, grad_out: (grad_out[0] * 3,))
        call = compile(module, backend=backend, fullgraph=True) if compiled else module
        x = randn(5, 3).requires_grad_()
        call(x).sum().backward()
        return {**grads(module), "x": x.grad.tolist()}

    assert_close(run(True), run(False))


def test_state_changed_by_forward_is_changed_by_every_call() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    module = Counting()
    compiled = compile(module, backend="aot_eager", fullgraph=True)
    for n in range(1, 6):
        assert compiled(ones(1)).tolist() == [float(n)]
        assert module.calls == n
    assert len(compiled.explain().entries) == 2


def test_a_function_that_uses_a_module(backend: str) -> None:
    module = nn.Linear(2, 2)

    @compile(backend=backend, fullgraph=True)
    def loss(x: Tensor) -> Tensor:
        return module(x).pow(2).mean()

    x = randn(3, 2)
    loss(x).backward()
    got = grads(module)
    module.zero_grad()
    module(x).pow(2).mean().backward()
    assert_close(got, grads(module))
    module.weight = nn.Parameter(ones(2, 2))
    np.testing.assert_allclose(loss(x).item(), module(x).pow(2).mean().item(), rtol=1e-6)


def test_a_module_as_an_argument(backend: str) -> None:
    compiled = compile(lambda m, x: m(x) * 2, backend=backend, fullgraph=True)
    a, b = nn.Linear(2, 2), compile(nn.Linear(2, 2), backend=backend)
    x = randn(3, 2)
    for module in (a, b, a, b):
        np.testing.assert_allclose(compiled(module, x).detach().numpy(), (module(x) * 2).detach().numpy(), rtol=1e-6)
    assert entries(compiled) == 2


def test_compiled_modules_are_used_as_modules(backend: str) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    compiled = compile(module, backend=backend)
    assert compiled.training
    assert compiled.eval() is compiled
    assert not module.training
    assert [name for name, _ in compiled.named_parameters()] == ["0.weight", "0.bias"]
    assert compiled[0] is module[0]
    assert len(compiled) == len(list(compiled)) == 2
    assert module[1] in compiled
    assert compile(nn.Linear(2, 2))
    assert compiled.state_dict().keys() == module.state_dict().keys()
    compiled.note = "set on the module"
    assert module.note == "set on the module"
    with pytest.raises(AttributeError):
        _ = compiled.nothing


def test_an_optimiser_step_between_forward_and_backward_is_refused() -> None:
    module = nn.Linear(2, 2)
    x = randn(3, 2).requires_grad_()
    y = compile(module, backend="aot_eager")(x)
    with no_grad():
        module.weight.add_(1)
    with pytest.raises(AutogradError, match="was changed in place"):
        y.sum().backward()


def test_random_draws_are_the_same_bits_as_eager(backend: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return F.dropout(x, 0.5), F.dropout(x, 0.2), x + randn(4, 4)

    x = ones(4, 4)
    compiled = compile(function, backend=backend, fullgraph=True)
    compiled(x)
    for seed in (1, 2):
        manual_seed(seed)
        wanted = [t.tolist() for t in (*function(x), *function(x))]
        after = default_generator.offset
        manual_seed(seed)
        assert [t.tolist() for t in (*compiled(x), *compiled(x))] == wanted
        assert default_generator.offset == after


def test_two_calls_before_one_backward(backend: str) -> None:
    module = nn.Linear(2, 2)
    compiled = compile(module, backend=backend, fullgraph=True)
    x = randn(3, 2)
    (compiled(x).sum() + compiled(x * 2).sum()).backward()
    got = grads(module)
    module.zero_grad()
    (module(x).sum() + module(x * 2).sum()).backward()
    assert_close(got, grads(module))


def test_a_compiled_module_is_a_module() -> None:
    compiled = compile(nn.Linear(2, 2), backend="aot_eager")
    assert isinstance(compiled, nn.Module)
    assert isinstance(compiled, nn.Linear)
    assert not isinstance(compile(lambda x: x), nn.Module)
    assert "explain" in dir(compiled)
    assert repr(compiled) == repr(nn.Linear(2, 2))
    assert type("Holder", (), {"layer": compiled})().layer is compiled
    compiled.extra = 1
    del compiled.extra
    assert not hasattr(compiled, "extra")


def test_a_compiled_child_belongs_to_its_parent(backend: str) -> None:
    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = compile(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5)), backend=backend, fullgraph=True)
            self.outer = nn.Sequential(nn.Linear(3, 2), compile(nn.Tanh(), backend=backend))

        def forward(self, x: Tensor) -> Tensor:
            return self.outer(self.inner(x))

    parent = Parent()
    assert list(parent.state_dict()) == ["inner.0.weight", "inner.0.bias", "outer.0.weight", "outer.0.bias"]
    parent.eval()
    assert not parent.inner[1].training
    x = randn(4, 2)
    parent(x).sum().backward()
    assert all(p.grad is not None for p in parent.parameters())
    assert len(parent.inner.explain().entries) == 1
    whole = compile(parent, backend=backend, fullgraph=True)
    np.testing.assert_allclose(whole(x).detach().numpy(), parent(x).detach().numpy(), rtol=1e-6)
    parent.inner[0].weight = nn.Parameter(ones(3, 2))
    np.testing.assert_allclose(whole(x).detach().numpy(), parent(x).detach().numpy(), rtol=1e-6)
    assert entries(whole) == 2


def test_compiled_modules_are_copied_and_pickled() -> None:
    compiled = compile(nn.Linear(2, 2), backend="aot_eager", fullgraph=True)
    x = randn(3, 2)
    wanted = compiled(x).tolist()
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(other, CompiledFunction)
        assert other(x).tolist() == wanted
        with no_grad():
            other.weight.zero_()
        assert compiled(x).tolist() == wanted
        assert other(x).tolist() != wanted


def test_compiling_twice_and_torchs_arguments() -> None:
    module = nn.Linear(2, 2)
    twice = compile(compile(module, backend="eager"), backend="aot_eager")
    assert twice.__wrapped__ is module
    assert compile(module, disable=True) is module
    with pytest.warns(DistCompileWarning, match="no effect"):
        compile(module, backend="eager", mode="max-autotune")
    with pytest.raises(ConfigError, match="no mode 'fast'"):
        compile(module, mode="fast")
    assert isinstance(compile(module, backend="inductor"), CompiledFunction)
