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
def what_needs_no_value_twice(T: Any, wrap: Wrap) -> Any:
    x, y = leaves(T)
    total = wrap(lambda x, y: x + y)(x, y)
    total.sum().backward()
    total.sum().backward()
    return grads(x, y)


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


# ---- gradients of gradients


@program
def a_gradient_differentiated(T: Any, wrap: Wrap) -> Any:
    x, p = leaves(T)
    y = wrap(lambda x, p: (x * p).sin() * x)(x, p)
    (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
    (g**2).sum().backward()
    return grads(x, p)


@program
def a_gradient_penalty(T: Any, wrap: Wrap) -> Any:
    judge = T.nn.Sequential(T.nn.Linear(2, 3), T.nn.Tanh(), T.nn.Linear(3, 1)).double()
    for k, p in enumerate(judge.parameters()):
        p.data = T.linspace(-1, 1, p.numel(), dtype=T.float64).reshape(p.shape) + 0.1 * k
    x = T.tensor([[0.5, 1.5], [0.1, 0.2]], dtype=T.float64, requires_grad=True)
    out = wrap(judge)(x)
    (g,) = T.autograd.grad(out.sum(), x, create_graph=True)
    (((g.norm(dim=1) - 1) ** 2).mean() + out.mean()).backward()
    return grads(x, *judge.parameters())


@program
def learning_to_learn(T: Any, wrap: Wrap) -> Any:
    p, x = leaves(T)

    def meta(p: Any, x: Any) -> Any:
        (g,) = T.autograd.grad(((p * x).sin() ** 2).sum(), p, create_graph=True)
        return (((p - 0.1 * g) * x).cos() ** 2).sum()

    compiled, seen = wrap(meta), []
    for k in range(2):
        compiled(p, x.detach() + k).backward()
        seen.append(grads(p))
    return seen


@program
def learning_steps_that_are_differentiated(T: Any, wrap: Wrap) -> Any:
    p, x = leaves(T)
    x = x.detach()
    inner = wrap(lambda p, x: ((p * x).sin() ** 2).sum())
    q = p
    for _ in range(3):
        (g,) = T.autograd.grad(inner(q, x), q, create_graph=True)
        q = q - 0.1 * g
    inner(q, x + 1).backward()
    return grads(p)


# ---- values copied onto others


@program
def copied_onto_what_had_a_history(T: Any, wrap: Wrap) -> Any:
    def copied(x: Any, z: Any) -> Any:
        y = x * 1
        y.copy_(z * 2)
        return y.sin()

    x, z = leaves(T)
    wrap(copied)(x, z).sum().backward()
    return grads(x, z)


@program
def a_leaf_copied_onto_what_had_a_history(T: Any, wrap: Wrap) -> Any:
    def copied(x: Any, z: Any) -> Any:
        y = x * 1
        y.copy_(z.float())
        y[0] = 3
        return y.sin()

    x, z = leaves(T)
    wrap(copied)(x, z).sum().backward()
    return grads(x, z)


@program
def filled_with_a_value_that_has_a_history(T: Any, wrap: Wrap) -> Any:
    def filled(x: Any, z: Any) -> Any:
        y = x * 1
        y.fill_(z.sum())
        return y.sin()

    x, z = leaves(T)
    wrap(filled)(x, z).sum().backward()
    return grads(x, z)


# ---- leaves that the call makes, the order of hooks


@program
def a_leaf_on_the_memory_of_an_argument(T: Any, wrap: Wrap) -> Any:
    _, p = leaves(T)

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (slope,) = T.autograd.grad((x * p).sin().sum(), x)
        y = x.detach().requires_grad_()
        (y * p).cos().sum().backward()
        return slope, y.grad

    compiled, x = wrap(step), numbers(T, 1, 2, grad=False)
    return [[g.tolist() for g in compiled(x + k)] for k in range(2)], x.requires_grad, grads(p)


@program
def a_penalty_inside_of_a_step(T: Any, wrap: Wrap) -> Any:
    _, p = leaves(T)

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        out = (x * p).sin().sum()
        (g,) = T.autograd.grad(out, x, create_graph=True)
        loss = out + 0.5 * g.pow(2).sum()
        loss.backward()
        return loss.detach()

    compiled, x = wrap(step), numbers(T, 1, 2, grad=False)
    return [compiled(x + k).tolist() for k in range(2)], grads(p)


@program
def hooks_of_two_outputs(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    seen: list[str] = []
    a, b = wrap(lambda x: (x * 2, x.exp()))(x)
    a.register_hook(lambda g: seen.append("first"))
    b.register_hook(lambda g: seen.append("second"))
    (a * b).sum().backward()
    return seen, grads(x)


@program
def hooks_of_parameters_layer_by_layer(T: Any, wrap: Wrap) -> Any:
    layers = [T.nn.Linear(2, 2, bias=False).double() for _ in range(3)]
    seen: list[int] = []
    for k, layer in enumerate(layers):
        layer.weight.data = T.eye(2, dtype=T.float64) + k
        layer.weight.register_post_accumulate_grad_hook(lambda p, k=k: seen.append(k))
    compiled = wrap(T.nn.Sequential(*layers))
    compiled(T.ones(1, 2, dtype=T.float64)).sum().backward()
    return seen, grads(*(layer.weight for layer in layers))


@program
def a_result_changed_that_is_equal_to_a_needed_one(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    y, s = wrap(lambda x: (x.exp() * 1, x.exp().sin()))(x)
    y.mul_(2)
    (y.sum() + s.sum()).backward()
    return grads(x)


# ---- parts and gradients of gradients, in company


@program
def losses_that_compute_the_same_apart(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)
    layer = T.nn.Linear(2, 2).double()
    layer.weight.data = T.eye(2, dtype=T.float64)
    layer.bias.data = T.ones(2, dtype=T.float64)
    a, b = wrap(lambda x: (layer(x).pow(2).sum(), layer(x).exp().sum()))(x)
    a.backward()
    b.backward()
    return grads(x, layer.weight, layer.bias)


@program
def parts_with_hooks_inside(T: Any, wrap: Wrap) -> Any:
    (x, y), z = leaves(T), numbers(T, 0.0, 4.0)
    seen: list[str] = []

    def hooked(x: Any, y: Any, z: Any) -> Any:
        h, k = x.exp(), y * z
        h.register_hook(lambda g: seen.append("h") or 2 * g)
        k.register_hook(lambda g: seen.append("k") or 3 * g)
        return (h * k).sum(), z.log().sum(), (y * h.detach()).sum()

    a, _, c = wrap(hooked)(x, y, z)
    c.backward()
    seen.extend(map(str, grads(x, y, z)))
    a.backward()
    return len(seen), seen[-2:], grads(x, y, z)


@program
def parts_of_one_module_each(T: Any, wrap: Wrap) -> Any:
    layers = [T.nn.Linear(2, 2).double() for _ in range(4)]
    seen: list[Any] = []
    for k, layer in enumerate(layers):
        layer.weight.data = T.eye(2, dtype=T.float64) + k
        layer.bias.data = T.ones(2, dtype=T.float64)
        layer.weight.register_hook(lambda g, k=k: seen.append(k) or g * 2)
    losses = wrap(lambda x: [layer(x).tanh().pow(2).mean() for layer in layers])(T.ones(1, 2, dtype=T.float64))
    for k in (2, 0, 3, 1):
        losses[k].backward()
        seen.append(grads(*(layer.bias for layer in layers)))
    return seen


@program
def a_part_differentiated_again_after_another(T: Any, wrap: Wrap) -> Any:
    x, y = leaves(T)
    a, b = wrap(lambda x, y: (x.exp().sum(), y.sin().sum()))(x, y)
    a.backward()
    (g,) = T.autograd.grad(b, y, create_graph=True)
    g.sum().backward()
    return grads(x, y)


@program
def a_gradient_differentiated_behind_a_hook(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)

    def hooked(x: Any) -> Any:
        h = x.exp()
        h.register_hook(lambda g: g * 2)
        return (h * h).sum()

    (g,) = T.autograd.grad(wrap(hooked)(x), x, create_graph=True)
    g.sum().backward()
    return g.tolist(), grads(x)


@program
def the_gradient_of_a_hooked_output(T: Any, wrap: Wrap) -> Any:
    x, _ = leaves(T)

    def hooked(x: Any) -> Any:
        h = x.exp()
        h.register_hook(lambda g: g * 2)
        return (h * h).sum(), h

    seen = []
    for behind in (True, False):
        loss, h = wrap(hooked)(x)
        seen.append([g.tolist() for g in T.autograd.grad(loss, [h, x] if behind else [h])])
    return seen


@program
def a_batch_norm_differentiated_twice(T: Any, wrap: Wrap) -> Any:
    norm, x = T.nn.BatchNorm1d(2).double(), T.tensor([[0.5, 1.5], [0.1, 0.2]], dtype=T.float64, requires_grad=True)
    compiled = wrap(lambda x: norm(x.exp()).pow(3).sum())
    for _ in range(2):
        (g,) = T.autograd.grad(compiled(x), x, create_graph=True)
        g.pow(2).sum().backward()
    return [round(v, 9) for row in x.grad.tolist() for v in row], norm.running_mean.tolist()


@program
def other_sizes_differentiated_twice_and_in_parts(T: Any, wrap: Wrap) -> Any:
    compiled, seen = wrap(lambda x, y: ((x.sin() * x.shape[0]).sum(), (y * y.exp()).sum(0).sum())), []
    for n in (2, 3, 4):
        x, y = (T.linspace(0, 1, n, dtype=T.float64).requires_grad_() for _ in range(2))
        a, b = compiled(x, y)
        b.backward()
        (g,) = T.autograd.grad(a, x, create_graph=True)
        g.sum().backward()
        seen.append(grads(x, y))
    return seen
