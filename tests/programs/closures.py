"""Closures and factories: functions made by functions, and what they remember."""

from __future__ import annotations

from tests.programs.harness import attempt, program


@program(codegen=True)
def scale_factory(torch, compile):
    def make_scale(factor: float, bias: float = 0.0):
        def scale(x):
            return x * factor + bias

        return scale

    steps = [compile(make_scale(k + 1.0, bias=0.5 * k)) for k in range(3)]
    x = torch.arange(4.0)
    for step in steps:
        yield step(x)
    for step in reversed(steps):
        yield step(x - 1)


@program
def counter_in_a_closure(torch, compile):
    calls = 0
    history = []

    @compile
    def step(x):
        nonlocal calls
        calls += 1
        history.append(calls)
        return x + 1

    for k in range(5):
        yield step(torch.ones(2) * k)
        yield calls
    yield history


@program
def two_closures_share_a_cell(torch, compile):
    def account():
        balance = torch.zeros(3)

        def deposit(x):
            nonlocal balance
            balance = balance + x
            return balance * 1

        def peek():
            return balance * 2

        return deposit, peek

    deposit, peek = account()
    deposit, peek = compile(deposit), compile(peek)
    for k in range(4):
        yield deposit(torch.full((3,), float(k)))
        yield peek()


@program
def running_mean_factory(torch, compile):
    def running_mean(momentum: float):
        mean, seen = None, 0

        def update(x):
            nonlocal mean, seen
            seen += 1
            mean = x.mean(0) if mean is None else momentum * mean + (1 - momentum) * x.mean(0)
            return mean / (1 - momentum**seen)

        return update

    update = compile(running_mean(0.9))
    for k in range(6):
        yield update(torch.arange(6.0).reshape(3, 2) + k)


@program
def late_binding_of_loop_variables(torch, compile):
    @compile
    def build_and_run(x):
        late = [lambda v: v * k for k in range(3)]
        early = [lambda v, k=k: v * k for k in range(3)]
        return [f(x) for f in late], [f(x) for f in early]

    yield build_and_run(torch.ones(2))
    yield build_and_run(torch.ones(2) * 3)


@program
def pipeline_of_functions(torch, compile):
    def chain(*stages):
        def run(x):
            for stage in stages:
                x = stage(x)
            return x

        return run

    def power(n: int):
        return lambda x: x**n

    run = compile(chain(torch.relu, power(2), lambda x: x / x.sum(), torch.sqrt))
    yield run(torch.tensor([-1.0, 2.0, 3.0]))
    yield run(torch.tensor([1.0, 0.5, -3.0]))
    nested = compile(chain(chain(torch.sin, power(3)), chain(torch.cos)))
    yield nested(torch.arange(3.0))


@program
def switch_flipped_from_outside(torch, compile):
    def make():
        mode = "double"

        def set_mode(name: str):
            nonlocal mode
            mode = name

        def apply(x):
            if mode == "double":
                return x * 2
            if mode == "negate":
                return -x
            raise ValueError(mode)

        return set_mode, apply

    set_mode, apply = make()
    apply = compile(apply)
    x = torch.ones(2)
    yield apply(x)
    for name in ("negate", "double", "unknown", "negate"):
        set_mode(name)
        yield attempt(apply, x)


@program
def a_tensor_in_the_closure_is_replaced(torch, compile):
    weight = torch.ones(2)

    @compile
    def step(x):
        return x * weight

    yield step(torch.ones(2))
    weight = torch.full((2,), 5.0)
    yield step(torch.ones(2))
    weight.add_(1)
    yield step(torch.ones(2))
    weight = torch.ones(3)
    yield step(torch.ones(3))


@program
def memo_in_a_default_argument(torch, compile):
    def table(x, n: int, memo={}):
        if n not in memo:
            memo[n] = torch.arange(float(n))
        return x + memo[n].sum()

    memo_of = table.__defaults__
    table = compile(table)

    for n in (3, 4, 3, 5, 4):
        yield table(torch.ones(1), n)
    yield memo_of


@program
def functions_that_return_closures(torch, compile):
    @compile
    def prepare(x, k: int):
        centre = x.mean()
        spread = (x - centre).abs().max()

        def normalise(y):
            return (y - centre) / spread * k

        return normalise

    for k in (1, 2):
        normalise = prepare(torch.tensor([1.0, 2.0, 6.0]) * k, k)
        yield normalise(torch.tensor([3.0]))
        yield normalise.__name__


@program
def visitor_with_inner_recursion(torch, compile):
    @compile
    def total(tree):
        order = []

        def visit(node, path: str):
            order.append(path)
            if isinstance(node, dict):
                return sum(visit(child, f"{path}/{name}") for name, child in node.items())
            if isinstance(node, (list, tuple)):
                return sum(visit(child, f"{path}.{i}") for i, child in enumerate(node))
            return node.sum()

        return visit(tree, ""), order

    a = torch.arange(3.0)
    yield total({"a": a, "b": [a * 2, (a, a + 1)]})
    yield total({"a": a, "b": [a * 2, (a, a + 1)]})
    yield total([a, {"c": a}])


@program
def decorator_with_state(torch, compile):
    log = []

    def traced(fn):
        fn_calls = [0]

        def wrapper(*args, **kwargs):
            fn_calls[0] += 1
            log.append(f"enter {fn.__name__} {fn_calls[0]}")
            result = fn(*args, **kwargs)
            log.append(f"leave {fn.__name__}")
            return result

        return wrapper

    @traced
    def inner(x):
        return x.tanh()

    @traced
    def outer(x, *, times: int = 2):
        for _ in range(times):
            x = inner(x)
        return x

    outer = compile(outer)
    yield outer(torch.ones(2))
    yield outer(torch.ones(2), times=3)
    yield outer(torch.zeros(2))
    yield log
