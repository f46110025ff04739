"""Whole steps whose loss is of a product's rows: their gradient can be made where the loss is.

In: `T`, the library, and `wrap`, which compiles a function or leaves it alone. Out: numbers, equal wherever it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from whole_step_programs import Wrap, show

ROWS, WIDTH, CLASSES = 12, 6, 9
Loss = Callable[..., Any]  # of the library, the logits and the targets
LOSSES: dict[str, Loss] = {}
STEPS: dict[str, Callable[..., Any]] = {}


def loss(function: Loss) -> Loss:
    LOSSES[function.__name__] = function
    return function


def model_of(T: Any) -> Any:
    rng = np.random.RandomState(0)
    made = T.nn.Sequential(T.nn.Linear(WIDTH, WIDTH), T.nn.Tanh(), T.nn.Linear(WIDTH, CLASSES, bias=False))
    with T.no_grad():
        for p in made.parameters():
            p.copy_(T.tensor(rng.randn(*p.shape).astype("f")))
    return made


def batch(T: Any, k: int, ignored: int = 3) -> tuple[Any, Any]:
    rng = np.random.RandomState(k + 1)
    y = rng.randint(0, CLASSES, ROWS)
    y[:ignored] = -100
    return T.tensor(rng.randn(ROWS, WIDTH).astype("f")), T.tensor(y)


def ce(T: Any, z: Any, y: Any, **options: Any) -> Any:
    return T.nn.functional.cross_entropy(z, y, **options)


def weights(T: Any) -> Any:
    return T.tensor(np.linspace(0.5, 2, CLASSES).astype("f"))


@loss
def mean(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, y)


@loss
def summed(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, y, reduction="sum")


@loss
def each(T: Any, z: Any, y: Any) -> Any:
    return (ce(T, z, y, reduction="none") * T.arange(ROWS)).mean()


@loss
def another_index_ignored(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, y.clamp(min=0), ignore_index=0)


@loss
def smoothed(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, y, label_smoothing=0.1)


@loss
def weighted(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, y, weight=weights(T))


@loss
def smoothed_and_weighted(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, y, weight=weights(T), label_smoothing=0.2)


@loss
def probabilities(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, (T.arange(ROWS * CLASSES).reshape(ROWS, CLASSES) % 7 * 1.0).softmax(1))


@loss
def nll(T: Any, z: Any, y: Any) -> Any:
    return T.nn.functional.nll_loss(T.nn.functional.log_softmax(z, 1), y)


@loss
def kl(T: Any, z: Any, y: Any) -> Any:
    wanted = (T.arange(ROWS * CLASSES).reshape(ROWS, CLASSES) % 5 * 1.0).softmax(1)
    return T.nn.functional.kl_div(T.nn.functional.log_softmax(z, 1), wanted, reduction="batchmean")


@loss
def mse(T: Any, z: Any, y: Any) -> Any:
    return T.nn.functional.mse_loss(z, z.detach().roll(1, 0))


@loss
def binary(T: Any, z: Any, y: Any) -> Any:
    return T.nn.functional.binary_cross_entropy_with_logits(z, (z.detach() > 0.3).float())


@loss
def of_the_whole(T: Any, z: Any, y: Any) -> Any:
    """Each element's gradient needs all rows."""
    return z.square().mean().sqrt() + z.amax()


@loss
def with_a_penalty(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, y) + 1e-2 * z.logsumexp(1).square().mean()


@loss
def two(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z, y) + 0.5 * T.nn.functional.mse_loss(z.softmax(1), z.detach().softmax(1).roll(1, 0))


@loss
def of_bf16(T: Any, z: Any, y: Any) -> Any:
    return ce(T, z.bfloat16(), y).float()


def trained(T: Any, wrap: Wrap, step_of: Callable[..., Any], of: Loss, ignored: int = 3) -> Any:
    """Three steps."""
    m = model_of(T)
    o = T.optim.AdamW(m.parameters(), lr=0.05)
    step = wrap(step_of(T, m, o, of))
    out = []
    for k in range(3):
        out.append(show(step(*batch(T, k, ignored))))
        out += [show(p) for p in m.parameters()]
    return out


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    STEPS[function.__name__] = function
    return function


@step
def plain(T: Any, m: Any, o: Any, of: Loss) -> Any:
    def run(x: Any, y: Any) -> Any:
        o.zero_grad()
        value = of(T, m(x), y)
        value.backward()
        o.step()
        return value.detach()

    return run


@step
def in_autocast(T: Any, m: Any, o: Any, of: Loss) -> Any:
    def run(x: Any, y: Any) -> Any:
        with T.autocast("cpu", T.bfloat16):
            value = of(T, m(x), y)
        value.backward()
        o.step()
        o.zero_grad(set_to_none=True)
        return value.detach()

    return run


@step
def scaled(T: Any, m: Any, o: Any, of: Loss) -> Any:
    scaler = T.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)

    def run(x: Any, y: Any) -> Any:
        o.zero_grad()
        value = of(T, m(x), y)
        scaler.scale(value).backward()
        scaler.step(o)
        scaler.update()
        return value.detach()

    return run


@step
def accumulated(T: Any, m: Any, o: Any, of: Loss) -> Any:
    def run(x: Any, y: Any) -> Any:
        o.zero_grad()
        for k in range(2):
            value = of(T, m(x + k), y) / 2
            value.backward()
        o.step()
        return value.detach()

    return run


@step
def twice_through_one(T: Any, m: Any, o: Any, of: Loss) -> Any:
    def run(x: Any, y: Any) -> Any:
        o.zero_grad()
        value = of(T, m(x), y)
        value.backward(retain_graph=True)
        value.backward()
        o.step()
        return value.detach()

    return run


@step
def two_losses(T: Any, m: Any, o: Any, of: Loss) -> Any:
    def run(x: Any, y: Any) -> Any:
        o.zero_grad()
        z = m(x)
        first, second = of(T, z, y), z.square().mean()
        T.autograd.backward([first, second], [T.tensor(0.5), first.detach()])
        o.step()
        return first.detach(), second.detach()

    return run


@step
def one_loss_goes_back(T: Any, m: Any, o: Any, of: Loss) -> Any:
    def run(x: Any, y: Any) -> Any:
        o.zero_grad()
        z = m(x)
        value, other = of(T, z, y), z.abs().mean()
        value.backward()
        o.step()
        return value.detach(), other.detach()

    return run


@step
def none_goes_back(T: Any, m: Any, o: Any, of: Loss) -> Any:
    def run(x: Any, y: Any) -> Any:
        return of(T, m(x), y).detach()

    return run


@step
def logits_are_returned(T: Any, m: Any, o: Any, of: Loss) -> Any:
    def run(x: Any, y: Any) -> Any:
        o.zero_grad()
        z = m(x)
        value = of(T, z, y)
        value.backward()
        o.step()
        return value.detach(), z.detach()

    return run


@step
def two_heads(T: Any, m: Any, o: Any, of: Loss) -> Any:
    """Two products are first, of a gradient each."""

    def run(x: Any, y: Any) -> Any:
        o.zero_grad()
        hidden = m[1](m[0](x))
        value = of(T, m[2](hidden), y) + of(T, hidden @ (m[2].weight.t() * 0.5 + 0.1), y)
        value.backward()
        o.step()
        return value.detach()

    return run
