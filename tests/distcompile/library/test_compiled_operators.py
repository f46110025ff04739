"""Operators in compiled functions: captured with their kernels, their gradients and what they write; no break."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak
from distcompile import Tensor


def operator(name: str, schema: str, kernel: Callable[..., Any], changed: Any = ()) -> Any:
    return dc.library.custom_op(f"compiled_programs::{name}", kernel, mutates_args=changed, schema=schema)


def test_a_kernel_is_captured_with_the_gradient_of_the_operator() -> None:
    op = operator("scaled", "(Tensor x, float by=2.0) -> Tensor", lambda x, by: x * by)
    op.register_fake(lambda x, by=2.0: dc.empty_like(x))

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.by = inputs[1]

    op.register_autograd(lambda ctx, g: (g * ctx.by * 10, None), setup_context=keep)
    compiled = dc.compile(lambda x: dc.sin(op(x * 2, by=3.0)) + dc.ops.compiled_programs.scaled(x), fullgraph=True)
    x, y = (dc.arange(3.0).requires_grad_() for _ in range(2))
    found = compiled(x)
    dc.testing.assert_close(found, dc.sin(y.detach() * 6) + y.detach() * 2)
    found.sum().backward()
    (dc.sin(op(y * 2, by=3.0)) + op(y)).sum().backward()
    assert x.grad is not None
    dc.testing.assert_close(x.grad, y.grad)
    assert x.grad[0].item() == 80.0  # 2 * 30 + 20: not what the kernels compute, 8


def test_an_operator_without_a_rule_has_no_gradient_when_compiled() -> None:
    op = operator("tripled", "(Tensor x) -> Tensor", lambda x: x * 3)
    compiled = dc.compile(lambda x: op(x) + 1, fullgraph=True)
    assert compiled(dc.ones(2)).tolist() == [4.0, 4.0]
    found = compiled(dc.ones(2, requires_grad=True))
    assert found.requires_grad
    with pytest.raises(RuntimeError, match=r"compiled_programs\.tripled\.default has no gradient"):
        found.sum().backward()


def test_what_an_operator_writes_is_seen_after_it_and_outside() -> None:
    def kernel(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    op = operator("added", "(Tensor(a!) x, Tensor y) -> ()", kernel, ("x",))

    def program(x: Tensor, y: Tensor) -> Tensor:
        before = x * 1
        op(x, y)
        op(x[1:], y[1:])
        return before + 100 * x

    results = []
    for run in (program, dc.compile(program, fullgraph=True)):
        for _ in range(2):
            x, y = dc.arange(3.0), dc.ones(3)
            version = x._version
            results.append([run(x, y).tolist(), x.tolist(), x._version > version])
    assert results == [[[100.0, 301.0, 402.0], [1.0, 3.0, 4.0], True]] * 4


def test_what_is_written_breaks_a_backward_that_saved_it_as_in_eager_code() -> None:
    def kernel(x: Tensor) -> None:
        x.mul_(2)

    op = operator("doubled", "(Tensor(a!) x) -> ()", kernel, ("x",))
    w, x = dc.ones(2, requires_grad=True), dc.ones(2)
    found = w * x
    dc.compile(lambda x: op(x))(x)
    assert x.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="changed in place"):
        found.sum().backward()


def test_lists_and_several_results_compile() -> None:
    op = operator(
        "weighted", "(Tensor[] xs, Tensor w) -> (Tensor, Tensor[])", lambda xs, w: (w * 2, [x * w for x in xs])
    )
    op.register_autograd(lambda ctx, g, gs: ([one * 5 for one in gs], g * 7))

    def program(x: Tensor, w: Tensor) -> Tensor:
        first, rest = op([x, x * 2], w)
        return first + rest[0] - rest[1]

    found = []
    for run in (program, dc.compile(program, fullgraph=True)):
        x, w = (dc.full((2,), value, requires_grad=True) for value in (3.0, 4.0))
        y = run(x, w)
        y.sum().backward()
        assert x.grad is not None
        assert w.grad is not None
        found.append([y.tolist(), x.grad.tolist(), w.grad.tolist()])
    assert found[0] == found[1] == [[-4.0, -4.0], [-5.0, -5.0], [7.0, 7.0]]


def test_a_kernel_written_with_numpy_is_captured_too() -> None:
    op = operator("sine", "(Tensor x) -> Tensor", lambda x: dc.from_numpy(np.sin(x.numpy())))
    op.register_autograd(
        lambda ctx, g: g * dc.cos(ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    x, y = (dc.arange(3.0).requires_grad_() for _ in range(2))
    compiled = dc.compile(lambda x: op(x) * 2, fullgraph=True)
    compiled(x).sum().backward()
    (dc.sin(y) * 2).sum().backward()
    assert x.grad is not None
    dc.testing.assert_close(x.grad, y.grad)


def test_what_is_registered_later_is_what_compiled_code_runs() -> None:
    op = operator("later", "(Tensor x) -> Tensor", lambda x: x + 1)
    compiled = dc.compile(lambda x: op(x) * 2)
    assert compiled(dc.zeros(1)).item() == 2.0
    op.register_kernel("cpu", lambda x: x + 5)
    assert compiled(dc.zeros(1)).item() == 10.0
    with op.set_kernel_enabled("cpu", False):
        assert compiled(dc.zeros(1)).item() == 2.0


def test_a_kernel_that_cannot_be_captured_breaks_the_graph_and_is_right() -> None:
    seen: list[float] = []

    def kernel(x: Tensor) -> Tensor:
        seen.append(float(x.sum()))
        return x * seen[-1]

    op = operator("looks", "(Tensor x) -> Tensor", kernel)
    compiled = dc.compile(lambda x: op(x * 2) + 1)
    assert [compiled(dc.full((2,), value)).tolist() for value in (1.0, 2.0)] == [[9.0, 9.0], [33.0, 33.0]]
    assert seen == [4.0, 8.0]
    with pytest.raises(GraphBreak):
        dc.compile(lambda x: op(x * 2) + 1, fullgraph=True)(dc.ones(2))


def test_packets_compile_and_choose_the_overload() -> None:
    library = dc.library.Library("compiled_packets", "FRAGMENT")
    library.define("many.Tensor(Tensor x, Tensor y) -> Tensor")
    library.define("many.Scalar(Tensor x, float y) -> Tensor")
    library.impl("many.Tensor", lambda x, y: x + y, "CPU")
    library.impl("many.Scalar", lambda x, y: x * y, "CompositeImplicitAutograd")

    def program(x: Tensor) -> Tensor:
        many = dc.ops.compiled_packets.many
        return many(many(x, 5), x)

    x = dc.ones(2, requires_grad=True)
    found = dc.compile(program, fullgraph=True)(x)
    found.sum().backward()
    assert x.grad is not None
    assert [found.tolist(), x.grad.tolist()] == [[6.0, 6.0], [6.0, 6.0]]
    library._destroy()


def test_aten_compiles() -> None:
    def program(x: Tensor) -> Tensor:
        aten = dc.ops.aten
        return aten.slice.Tensor(aten.add.Tensor(x, aten.mul(x, x), alpha=3), 0, 1)

    assert dc.compile(program, fullgraph=True)(dc.arange(3.0)).tolist() == [4.0, 14.0]
