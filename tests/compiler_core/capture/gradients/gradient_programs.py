"""Small training programs about what backward does after a compiled call, each for any library with torch's names.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, to be equal wherever it
runs; or an exception, then everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Program = Callable[[Any, Wrap], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def numbers(T: Any, *values: float, grad: bool = True) -> Any:
    return T.tensor(values, dtype=T.float64, requires_grad=grad)


def leaves(T: Any) -> tuple[Any, Any]:
    return numbers(T, 0.5, 1.5), numbers(T, 0.7, 1.1)


def grads(*tensors: Any) -> list[Any]:
    return [None if t.grad is None else t.grad.tolist() for t in tensors]


# ---- several backwards through one call


@program
def outputs_one_after_the_other(T: Any, wrap: Wrap) -> Any:
    x, y = leaves(T)
    a, b = wrap(lambda x, y: (x.exp().sin(), y.exp().cos() * y))(x, y)
    a.sum().backward()
    seen = grads(x, y)
    b.sum().backward()
    return seen, grads(x, y)


@program
def outputs_that_share_what_needs_no_value(T: Any, wrap: Wrap) -> Any:
    x, y = leaves(T)
    a, b = wrap(lambda x, y: ((h := x + y).sin(), h.cos()))(x, y)
    a.sum().backward()
    b.sum().backward()
    return grads(x, y)


@program
def outputs_that_share_a_value(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    a, b = wrap(lambda x: ((h := x.exp()).sin(), h.cos()))(x)
    a.sum().backward()
    b.sum().backward()


@program
def an_output_twice(T: Any, wrap: Wrap) -> Any:
    x, y = leaves(T)
    a, b = wrap(lambda x, y: (x.exp(), y.sin()))(x, y)
    a.sum().backward()
    b.sum().backward()
    a.sum().backward()


@program
def three_outputs(T: Any, wrap: Wrap) -> Any:
    (x, y), z = leaves(T), numbers(T, 0.1, 0.2)
    a, b, c = wrap(lambda x, y, z: (x.exp() * y, z.sin() * 2, z * z + x))(x, y, z)
    b.sum().backward()
    a.sum().backward()
    c.sum().backward()
    return grads(x, y, z)


@program
def infinite_slopes_of_an_output_that_nobody_uses(T: Any, wrap: Wrap) -> Any:
    x = numbers(T, 0.0, 1.5)
    a, _ = wrap(lambda x: (x * 2, x.log()))(x)
    a.sum().backward()
    return grads(x)


@program
def a_step_between_two_losses(T: Any, wrap: Wrap) -> Any:
    x, y = leaves(T)
    a, b = wrap(lambda x, y: (x.exp().sin() * x, y.exp().cos() * y))(x, y)
    a.sum().backward()
    with T.no_grad():
        x.add_(x.grad)
    b.sum().backward()
    return grads(x, y)


@program
def a_step_on_what_the_other_loss_only_adds(T: Any, wrap: Wrap) -> Any:
    x, y = leaves(T)
    a, b = wrap(lambda x, y: (x.exp().sin() * x, (y + x).cos() * y))(x, y)
    a.sum().backward()
    with T.no_grad():
        x.add_(x.grad)
    b.sum().backward()
    return grads(x, y)


@program
def adversaries(T: Any, wrap: Wrap) -> Any:
    maker, judge = T.nn.Linear(2, 3).double(), T.nn.Linear(3, 1).double()
    parameters = [*maker.parameters(), *judge.parameters()]
    for k, p in enumerate(parameters):
        p.data = T.linspace(-1, 1, p.numel(), dtype=T.float64).reshape(p.shape) + k
    softplus = T.nn.functional.softplus

    def step(noise: Any, real: Any) -> Any:
        made = maker(noise)
        judged = softplus(judge(made.detach())).mean() + softplus(-judge(real)).mean()
        return judged, (T.tanh(made) ** 2).mean()

    compiled, seen = wrap(step), []
    noise, real = T.full((4, 2), 0.3, dtype=T.float64), T.full((4, 3), 0.2, dtype=T.float64)
    for _ in range(2):
        judged, fooled = compiled(noise, real)
        judged.backward()
        seen.append(grads(*parameters))
        fooled.backward()
        seen.append(grads(*parameters))
    return seen


# ---- values that are changed before the backward that needs them


@program
def a_needed_result_changed(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    y = wrap(lambda x: x.exp())(x)
    y.add_(1)
    y.sum().backward()


@program
def a_view_of_a_needed_result_changed(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    y = wrap(lambda x: x.exp().view(2, 1))(x)
    y.mul_(3)
    y.sum().backward()


@program
def a_result_that_another_needs_changed(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    squared, h = wrap(lambda x: ((h := x.exp()) ** 2, h))(x)
    with T.no_grad():
        h.mul_(2)
    squared.sum().backward()


@program
def a_result_that_nobody_needs_changed(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    shifted, h = wrap(lambda x: ((h := x.sin()) + 2, h))(x)
    with T.no_grad():
        h.mul_(2)
    shifted.sum().backward()
    return grads(x)


@program
def an_argument_changed_that_is_needed(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    z = x * 1
    y = wrap(lambda z: z.sin())(z)
    z.add_(1)
    y.sum().backward()


@program
def an_argument_changed_of_which_the_result_is_needed(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    z = x * 1
    y = wrap(lambda z: T.relu(z.exp()).sigmoid())(z)
    z.add_(1)
    y.sum().backward()
    return grads(x)


# ---- gradients of outputs that the call uses itself


@program
def a_hook_on_an_output_that_is_used_inside(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    seen: list[Any] = []
    squared, h = wrap(lambda x: ((h := x.exp()) ** 2, h))(x)
    h.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    h.retain_grad()
    (squared.sum() + h.sum()).backward()
    return grads(x, h), seen


@program
def a_hook_where_all_of_the_gradient_comes_from_inside(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    seen: list[Any] = []
    squared, h = wrap(lambda x: ((h := x.exp()) ** 2, h))(x)
    h.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    squared.sum().backward()
    return grads(x), seen


@program
def a_gradient_of_an_output_that_is_used_inside(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    squared, h = wrap(lambda x: ((h := x.exp()) ** 2, h))(x)
    first = T.autograd.grad(squared.sum(), h, retain_graph=True)
    both = T.autograd.grad(squared.sum() + h.sum(), [h, x])
    return [g.tolist() for g in (*first, *both)], grads(x)


@program
def hooks_on_either_side_of_a_return(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    seen: list[Any] = []

    def hooked(x: Any) -> Any:
        y = x.exp()
        y.register_hook(lambda g: seen.append("inside") or g + 1)
        return y, y.sin()

    compiled = wrap(hooked)
    for _ in range(2):
        y, z = compiled(x)
        y.register_hook(lambda g: seen.append("outside") or g * 2)
        y.retain_grad()
        (z.sum() + y.sum()).backward()
        seen.append(grads(y))
    return grads(x), seen


@program
def hooks_on_either_side_of_a_break(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    seen: list[Any] = []

    def hooked(x: Any) -> Any:
        y = x.exp()
        y.register_hook(lambda g: seen.append("before") or g + 1)
        if float(y.sum()) > 0:
            y.register_hook(lambda g: seen.append("after") or g * 2)
        return y.sin()

    compiled = wrap(hooked)
    for _ in range(2):
        compiled(x).sum().backward()
    return grads(x), seen


@program
def an_argument_changed_that_is_needed_by_another_name(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    z = x * 2
    y = wrap(lambda z: (z * 1).sin())(z)
    z.mul_(3)
    y.sum().backward()
    return grads(x)


@program
def a_hook_on_a_view_that_is_returned_beside_its_base(T: Any, wrap: Wrap) -> Any:
    x, y = leaves(T)

    def hooked(x: Any, y: Any) -> Any:
        h = x.exp()
        part, row = h[:1], y.view(1, 2)
        part.register_hook(lambda g: g * 2)
        row.register_hook(lambda g: g * 3)
        return h, part, row, (part * row).sum()

    compiled = wrap(hooked)
    for _ in range(2):
        h, part, row, total = compiled(x, y)
        (h.sum() + part.sin().sum() + row.sum() + total).backward()
    with T.no_grad():
        part.mul_(2)
    return h.tolist(), grads(x, y)
