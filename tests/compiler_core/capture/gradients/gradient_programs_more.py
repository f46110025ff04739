"""More programs as those of gradient_programs.py: gradients of gradients, copies, leaves that a call makes."""

from __future__ import annotations

from typing import Any

from gradient_programs import Wrap, grads, leaves, numbers, program

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
