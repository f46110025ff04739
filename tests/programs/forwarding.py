"""Arguments: *args and **kwargs handed on, keyword-only, positional-only, unpacking, recursion."""

from __future__ import annotations

import inspect

from tests.programs.harness import attempt, program


@program
def wrapper_module_forwards_everything(torch, compile):
    class Wrapper(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *args, **kwargs):
            kwargs.setdefault("scale", 2.0)
            return self.inner(*args, **kwargs), len(args), sorted(kwargs)

    class Inner(torch.nn.Module):
        def forward(self, x, mask=None, *, scale):
            y = x * scale
            return y if mask is None else y.masked_fill(mask, 0.0)

    f = compile(Wrapper(Inner()))
    x = torch.arange(3.0)
    yield f(x)
    yield f(x, x > 1)
    yield f(x, mask=x > 0, scale=1.0)
    yield f(x=x, scale=-1.0)
    yield attempt(f, x, wrong=1)


@program
def signature_of_every_kind(torch, compile):
    @compile
    def run(a, /, b, c=3, *rest, d, e=5, **more):
        return a + b * c + sum(rest) * d + e, rest, more

    t = torch.ones(1)
    yield run(t, t, d=1)
    yield run(t, t, 2, 3, 4, d=t, e=0, f="more")
    yield run(t, b=t, d=2, a=7)
    yield attempt(run, t, t)
    yield attempt(run, a=t, b=t, d=1)


@program
def default_arguments_changed(torch, compile):
    def run(x, scale=2.0, *, shift=1.0):
        return x * scale + shift

    f = compile(run)
    yield f(torch.ones(1))
    run.__defaults__ = (5.0,)
    yield f(torch.ones(1))
    run.__kwdefaults__["shift"] = -1.0
    yield f(torch.ones(1))


@program
def unpacking_of_nested_arguments(torch, compile):
    @compile
    def run(batch, *layers):
        (x, y), meta = batch
        first, *middle, last = layers
        for m in middle:
            x = m(x)
        (h, *_), c = [x, y, 1], 2
        return last(first(h)) * c, {**meta, "n": len(middle)}, [*layers][0] is first

    data = ((torch.ones(2), torch.zeros(2)), {"id": 3})
    yield run(data, torch.sin, torch.cos, torch.exp)
    yield run(data, torch.sin, torch.cos)
    yield attempt(run, data, torch.sin)


@program
def arguments_by_signature(torch, compile):
    def model(x, *, temperature=1.0, top=None):
        x = x / temperature
        return x if top is None else x[:top]

    known = inspect.signature(model).parameters

    @compile
    def run(x, **options):
        accepted = {k: v for k, v in options.items() if k in known}
        return model(x, **accepted), sorted(set(options) - set(accepted))

    yield run(torch.arange(4.0))
    yield run(torch.arange(4.0), temperature=2.0, verbose=True)
    yield run(torch.arange(4.0), top=2, seed=1)


@program
def recursion_over_a_tree(torch, compile):
    def fold(tree):
        if not isinstance(tree, tuple):
            return tree
        left, right = map(fold, tree)
        return torch.tanh(left + right)

    f = compile(fold)
    a, b = torch.ones(2), torch.zeros(2)
    yield f((a, b))
    yield f(((a, b), (b, (a, a))))
    yield f(a)
    yield f((b, a))


@program
def mutual_recursion_and_depth(torch, compile):
    def even(x, n):
        return x if n == 0 else odd(x + 1, n - 1)

    def odd(x, n):
        return -x if n == 0 else even(x * 2, n - 1)

    f = compile(even)
    for n in (0, 3, 6, 20):
        yield f(torch.ones(1), n)


@program
def fast_fourier_by_recursion(torch, compile):
    def haar(x):
        if x.shape[0] == 1:
            return [x]
        a, b = x[0::2], x[1::2]
        return [*haar((a + b) / 2), (a - b) / 2]

    f = compile(haar)
    yield f(torch.arange(8.0))
    yield f(torch.arange(4.0) ** 2)


@program
def functions_as_arguments(torch, compile):
    @compile
    def newton(f, df, x, steps=3):
        path = [x]
        for _ in range(steps):
            x = x - f(x) / df(x)
            path.append(x)
        return path

    yield newton(lambda x: x * x - 2, lambda x: 2 * x, torch.tensor(1.0))
    yield newton(lambda x: x**3 - 2, lambda x: 3 * x * x, torch.tensor(1.0), steps=5)
    yield newton(torch.sin, torch.cos, torch.tensor(3.0))


@program
def walrus_and_conditional_expressions(torch, compile):
    @compile
    def run(x, names):
        kept = [y for n in names if (y := n.strip()) and not y.startswith("#")]
        if (n := len(kept)) > 1:
            x = x * n
        label = "many" if n > 2 else "few" if n else "none"
        return x, label, kept, 1 < n <= 3 and label

    yield run(torch.ones(1), ["a", " b ", "# no", ""])
    yield run(torch.ones(1), ["x"])
    yield run(torch.ones(1), "abcd")
    yield run(torch.ones(1), [])


@program
def pytree_map(torch, compile):
    def tree_map(fn, tree, *rest):
        if isinstance(tree, dict):
            return {k: tree_map(fn, tree[k], *(r[k] for r in rest)) for k in tree}
        if isinstance(tree, (list, tuple)):
            return type(tree)(tree_map(fn, *parts) for parts in zip(tree, *rest))
        return fn(tree, *rest)

    @compile
    def sgd(params, grads, lr):
        return tree_map(lambda p, g: p - lr * g, params, grads)

    params = {"w": [torch.ones(2), torch.zeros(1)], "b": (torch.ones(1),)}
    grads = {"w": [torch.ones(2), torch.ones(1)], "b": (torch.ones(1) * 3,)}
    for lr in (0.1, 0.1, 0.5):
        params = sgd(params, grads, lr)
        yield params


@program
def mutable_arguments_are_changed(torch, compile):
    @compile
    def collect(x, into, seen=None, **kw):
        into.append(x * 2)
        kw["into"] = into
        if seen is not None:
            seen.add(len(into))
        x = None
        return kw

    out, seen = [], set()
    for k in range(3):
        kw = {"k": k}
        result = collect(torch.ones(1) * k, out, seen, **kw)
        yield result["into"] is out, sorted(kw), result["k"]
    yield out, seen
