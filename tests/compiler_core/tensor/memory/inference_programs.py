"""Programs about inference tensors: which tensors are some, and what is refused of them. As `memory_programs.py`.

What a write that torch refuses has left is not looked at: there it is made, and then refused.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

from memory_programs import compiled, program, raised


@program
def made_in_inference_mode(t: Any) -> Any:
    x, w = t.ones(2), t.ones(2, requires_grad=True)
    with t.inference_mode():
        tensors = [t.ones(2), x * 2, x[1:], x.detach(), w * 2, t.ones(2, requires_grad=True), t.tensor([1.0]), x + x]
        tensors += [t.ones(2)[:1], t.empty(2).fill_(1), t.ones(2, dtype=t.int64) + 1, t.from_numpy(x.numpy()), x > 0]
        tensors += [t.nn.functional.layer_norm(x, (2,)), t.nn.Linear(2, 2).weight, t.stack([x, x]), t.rand(2) * 0]
        yield [a.is_inference() for a in tensors], [a.requires_grad for a in tensors]
        yield t.is_grad_enabled(), t.is_inference_mode_enabled(), x._version, raised(lambda: tensors[0]._version)
        x.add_(1)
        tensors[0].add_(1)
        w.mul_(2)
        yield x._version, w._version, w, tensors[0]
        with t.enable_grad():
            yield (w * 2).requires_grad, t.is_grad_enabled(), t.ones(1).is_inference()
        with t.no_grad():
            yield (w * 2).requires_grad, t.is_grad_enabled(), t.ones(1).is_inference()
        with t.inference_mode(False):
            a = tensors[0]
            yield (w * 2).requires_grad, t.is_grad_enabled(), t.ones(1).is_inference(), (a + 1).is_inference()
        yield tensors[0].requires_grad_().requires_grad, t.is_inference(tensors[0])


@program
def made_in_other_orders(t: Any) -> Any:
    images = t.arange(96.0).reshape(2, 3, 4, 4).to(memory_format=t.channels_last)
    with t.inference_mode():
        tensors = [images + 1, t.nn.functional.relu(images), images[0, 0].t() * 2, t.nn.BatchNorm2d(3)(images)]
        tensors[2].add_(1)
    yield [a.is_inference() for a in tensors], [a.stride() for a in tensors], tensors[:3]
    yield raised(lambda: tensors[2]._version), images._version, [(a + 1).is_inference() for a in (images, *tensors)]


@program
def inference_tensors_outside_of_the_mode(t: Any) -> Any:
    with t.inference_mode():
        a = t.ones(2)
    yield raised(lambda: a.add_(1)), raised(lambda: a[0].zero_()), raised(lambda: a.__setitem__(0, 1.0))
    yield raised(lambda: a._version), raised(lambda: a.requires_grad_()), raised(lambda: t.nn.init.zeros_(a))
    with t.no_grad():
        yield raised(lambda: a.add_(1)), raised(lambda: a.copy_(t.zeros(2)))
    same = [a.view(2, 1), a.detach(), a.data, a.contiguous(), a.T, a.expand(3, 2), a[:1]]
    others = [a + 1, a.clone(), a.to(t.float64), a.exp(), t.stack([a, a]), t.empty_like(a), a.repeat(1)]
    yield [b.is_inference() for b in same], [b.is_inference() for b in others]
    yield copy.deepcopy(a).is_inference(), pickle.loads(pickle.dumps(a)).is_inference()


@program
def inference_tensors_are_not_saved(t: Any) -> Any:
    w = t.ones(2, requires_grad=True)
    with t.inference_mode():
        a, layer = t.full((2,), 3.0), t.nn.Linear(2, 2)
    F = t.nn.functional
    yield raised(lambda: w * a), raised(lambda: w @ a), raised(lambda: w / a), raised(lambda: t.where(a > 0, w, w))
    yield raised(lambda: F.linear(a, t.ones(3, 2, requires_grad=True))), raised(lambda: w.mul(2).mul_(a))
    yield (w + a).requires_grad, (w * w + a).requires_grad, (w - a).requires_grad, w.mul(2).add_(a).requires_grad
    yield w.mul(2).copy_(a).requires_grad, a / (w.detach() * 2)
    layer(t.ones(1, 2)).sum().backward()  # needs no weight
    yield raised(lambda: layer(t.ones(1, 2, requires_grad=True)))
    with t.no_grad():
        yield w * a

    class Keeps(t.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(y)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, None

    yield raised(lambda: Keeps.apply(w, a)), Keeps.apply(w.detach(), a)
    (w + a).sum().backward()
    yield w.grad


@program
def inference_mode_false_turns_gradients_on(t: Any) -> Any:
    w = t.ones(2, requires_grad=True)
    with t.no_grad():
        with t.inference_mode(False):
            yield (w * 2).requires_grad, t.is_grad_enabled()
        yield (w * 2).requires_grad, t.is_grad_enabled()
    functions = [
        t.inference_mode(lambda x: x * 2),
        t.inference_mode()(lambda x: x * 2),
        t.inference_mode(False)(lambda x: x * 2),
        t.inference_mode(mode=True)(lambda x: x * 2),
    ]
    yield [(f(w).requires_grad, f(w).is_inference()) for f in functions]


@program
def views_taken_in_inference_mode(t: Any) -> Any:
    x, w = t.ones(2), t.ones(1, requires_grad=True)
    with t.inference_mode():
        v = x[:1]
        v.add_(1)
    yield v.is_inference(), x._version, v.add_(1), raised(lambda: v.mul_(w)), x


@program
def compiled_code_and_inference_mode(t: Any) -> Any:
    layer = t.nn.Linear(2, 2)
    t.nn.init.ones_(layer.weight)
    t.nn.init.zeros_(layer.bias)
    run = compiled(t, layer)
    for _ in range(2):
        with t.inference_mode():
            y = run(t.ones(1, 2))
            yield y, y.is_inference()
        z = run(t.ones(1, 2))
        yield z, z.is_inference()
    with t.inference_mode():
        a = t.ones(1, 2)
    yield raised(lambda: run(a))
    with t.no_grad():
        yield run(a)
    yield raised(lambda: compiled(t, lambda b: b.add_(1))(a))
