"""Programs with leaves of their own in compiled code: penalties on the gradient of an input, attacks, inner loops.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, equal wherever it runs.
"""

from __future__ import annotations

from typing import Any

from backward_programs import Wrap, breaks, data, mlp, program, show, state


def over(T: Any, wrap: Wrap, step: Any, m: Any) -> Any:
    """What four calls of a step give, and leave."""
    c = wrap(step)
    return [[show(c(data(T, i))), *state(m)] for i in range(4)]


@program
def wgan_gp(T: Any, wrap: Wrap) -> Any:
    g, d = mlp(T), mlp(T, 1, 3)
    og, od = (T.optim.Adam(m.parameters(), lr=0.01, betas=(0.5, 0.9)) for m in (g, d))

    def step(x: Any) -> Any:
        real = x[:, :3]
        for _ in range(2):
            od.zero_grad()
            fake = g(x).detach()
            alpha = x[:, :1].sigmoid()
            between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
            score = d(between)
            (slope,) = T.autograd.grad(score, between, T.ones_like(score), create_graph=True, retain_graph=True)
            penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
            loss = d(fake).mean() - d(real).mean() + 10 * penalty
            loss.backward()
            od.step()
        og.zero_grad()
        other = -d(g(x)).mean()
        other.backward()
        og.step()
        return [loss, other.detach()]

    return [over(T, wrap, step, d), state(g)]


@program
def slope_of_real(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        m.zero_grad()
        y = m(x).sum()
        (slope,) = T.autograd.grad(y, x, create_graph=True)
        (y + slope.pow(2).sum(1).mean()).backward()
        return [y.detach(), x.grad]

    return over(T, wrap, step, m)


@program
def saliency(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        x = x.clone()
        x.requires_grad = True
        m(x).square().sum().backward()
        return x.grad

    return over(T, wrap, step, m)


@program
def attack(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        delta = T.zeros_like(x, requires_grad=True)
        for _ in range(3):
            m(x + delta).square().mean().backward()
            delta.data = (delta.data + 0.1 * delta.grad.sign()).clamp(-0.2, 0.2)
            delta.grad.zero_()
        m.zero_grad()
        loss = m(x + delta.detach()).square().mean()
        loss.backward()
        return [loss.detach(), delta.detach()]

    return over(T, wrap, step, m)


@program
def inner_descent(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        w = T.zeros(4, 3, requires_grad=True)
        for _ in range(3):
            loss = (x @ w - m(x).detach()).square().mean()
            loss.backward()
            with T.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
        return [w.detach(), loss.detach()]

    return over(T, wrap, step, m)


@program
def fast_weights(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        fast = {n: p.detach().clone().requires_grad_() for n, p in m.named_parameters()}
        for _ in range(2):
            loss = T.func.functional_call(m, fast, (x,)).square().mean()
            slopes = T.autograd.grad(loss, list(fast.values()))
            fast = {n: (p - 0.1 * g).detach().requires_grad_() for (n, p), g in zip(fast.items(), slopes)}
        for n, p in m.named_parameters():
            p.grad = p.detach() - fast[n].detach()
        return loss.detach()

    return over(T, wrap, step, m)


@program
def laplacian(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        x = x.clone().requires_grad_()
        m.zero_grad()
        (slope,) = T.autograd.grad(m(x).sum(), x, create_graph=True)
        second = sum(T.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(4))
        (second**2).mean().backward()
        return [second, x.grad]

    return over(T, wrap, step, m)


@program
def written_leaf(T: Any, wrap: Wrap) -> Any:
    """A leaf on the memory of an argument, which a write to it shows."""
    m = mlp(T)

    def step(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        (slope,) = T.autograd.grad(m(leaf).sum(), leaf)
        with T.no_grad():
            leaf.add_(slope)
        return [x * 1, leaf.detach() * 1, slope]

    return over(T, wrap, step, m)


@program
def flag_taken_back(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        x = x.clone().requires_grad_()
        m(x).sum().backward()
        x.requires_grad_(False)
        m(x * 2).sum().backward()
        return x.grad

    return over(T, wrap, step, m)


@program
def view_of_a_leaf(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        w = T.ones(4, requires_grad=True)
        v = w[:2]
        ((x[:, :2] * v).sum() ** 2).backward()
        return [w.grad, v.detach()]

    return over(T, wrap, step, m)


@program
def spent_result(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        x = x.clone().requires_grad_()
        loss = m(x).sum()
        loss.backward()
        return loss

    c = wrap(step)
    loss = c(data(T, 0))
    try:
        loss.backward()
        told = "twice"
    except RuntimeError:
        told = "spent"
    return [loss, loss.requires_grad, loss.is_leaf, told, *state(m)]


@program
def forces(T: Any, wrap: Wrap) -> Any:
    """A model with a leaf of its own whose results are trained outside."""
    m = mlp(T)

    def model(x: Any) -> Any:
        places = x.clone().requires_grad_()
        energy = m(places).sum()
        return energy, -T.autograd.grad(energy, places, create_graph=True)[0]

    c, out = wrap(model), []
    for i in range(4):
        m.zero_grad()
        energy, force = c(data(T, i))
        (energy.square() + (force - 1).square().mean()).backward()
        out.append([energy, force, *state(m)])
    return out


@breaks
def history_of_a_leaf_alone(T: Any, wrap: Wrap) -> Any:
    def step(x: Any) -> Any:
        return (x.clone().requires_grad_() * 2).sum()

    results = [wrap(step)(data(T, i)) for i in range(3)]
    for result in results:
        result.backward()
    return [*results, *(result.requires_grad for result in results)]


@breaks
def leaf_that_is_returned(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        x = x.clone().requires_grad_()
        m(x).sum().backward()
        return x

    c = wrap(step)
    return [[x.grad, x.is_leaf, x.requires_grad] for x in (c(data(T, i)) for i in range(3))]


@breaks
def history_that_ends_in_a_leaf(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        leaf = x.clone().requires_grad_()
        return [leaf, (leaf * 2).sum(), m(leaf).sum()]

    out = []
    for i in range(3):
        leaf, double, y = wrap(step)(data(T, i))
        (double + y).backward()
        out.append([leaf.grad, *state(m)])
    return out


@breaks
def leaf_over_a_break(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        x = x.clone().requires_grad_()
        y = m(x).sum()
        scale = float(y.detach())
        y.backward()
        return x.grad * scale

    return over(T, wrap, step, m)


@breaks
def hook_on_a_leaf(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        x = x.clone().requires_grad_()
        x.register_hook(lambda g: g * 2)
        m(x).sum().backward()
        return x.grad

    return over(T, wrap, step, m)


@program
def checkpointed(T: Any, wrap: Wrap) -> Any:
    m = mlp(T)

    def step(x: Any) -> Any:
        m.zero_grad()
        hidden = T.utils.checkpoint.checkpoint(lambda x: m[1](m[0](x)), x, use_reentrant=False)
        loss = m[2](hidden).square().mean()
        loss.backward()
        return loss.detach()

    return over(T, wrap, step, m)


@program
def checkpointed_in_part(T: Any, wrap: Wrap) -> Any:
    """Two backwards, of which the last alone computes again."""
    m = mlp(T)

    def step(x: Any) -> Any:
        m.zero_grad()
        for part in x.chunk(2):
            hidden = T.utils.checkpoint.checkpoint(lambda x: m[1](m[0](x)), part, use_reentrant=False)
            (m[2](hidden).square().mean() / 2).backward()

    return over(T, wrap, step, m)
