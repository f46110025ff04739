"""Context managers: torch's modes, the user's own, contextlib's, and context variables."""

from __future__ import annotations

import contextlib
import contextvars

from tests.programs.harness import attempt, leaf_tensor, program

DEPTH = contextvars.ContextVar("DEPTH", default=0)


@program
def no_grad_around_a_part(torch, compile):
    @compile
    def run(x, w):
        with torch.no_grad():
            scale = (x * w).abs().max()
        y = x * w / scale
        return y.sum(), torch.is_grad_enabled()

    for k in (1.0, 2.0):
        w = leaf_tensor(torch, [1.0, -3.0])
        loss, enabled = run(torch.full((2,), k), w)
        loss.backward()
        yield loss, enabled, w


@program
def called_under_no_grad_or_not(torch, compile):
    w = leaf_tensor(torch, [2.0])

    @compile
    def run(x):
        return x * w, torch.is_grad_enabled()

    yield run(torch.ones(1))
    with torch.no_grad():
        yield run(torch.ones(1))
    yield run(torch.ones(1))
    with torch.inference_mode():
        yield run(torch.ones(1))[1]


@program
def own_timer_class(torch, compile):
    class Section:
        def __init__(self, log, name):
            self.log, self.name = log, name

        def __enter__(self):
            self.log.append(f"+{self.name}")
            return self

        def __exit__(self, kind, error, trace):
            self.log.append(f"-{self.name}" + (f" {kind.__name__}" if kind else ""))
            return kind is KeyError

    log = []

    @compile
    def run(x, fail=None):
        with Section(log, "outer") as outer:
            x = x + 1
            with Section(log, outer.name + ".inner"):
                if fail:
                    raise fail("asked for")
                x = x * 2
        return x

    yield run(torch.ones(2))
    yield run(torch.ones(2), KeyError)
    yield attempt(run, torch.ones(2), ValueError)
    yield run(torch.zeros(2))
    yield log


@program
def contextmanager_with_state(torch, compile):
    settings = {"scale": 1.0}

    @contextlib.contextmanager
    def temporarily(**changes):
        before = dict(settings)
        settings.update(changes)
        try:
            yield settings
        finally:
            settings.clear()
            settings.update(before)

    def op(x):
        return x * settings["scale"]

    @compile
    def run(x, scale):
        a = op(x)
        with temporarily(scale=scale) as s:
            b = op(x)
            seen = s["scale"]
        return a, b, op(x), seen

    yield run(torch.ones(2), 3.0)
    yield run(torch.ones(2), 4.0)
    settings["scale"] = 10.0
    yield run(torch.ones(2), 4.0)
    yield settings


@program
def exit_stack(torch, compile):
    log = []

    @contextlib.contextmanager
    def item(name):
        log.append(f"open {name}")
        yield name
        log.append(f"close {name}")

    @compile
    def run(x, names):
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(item(n)) for n in names]
            stack.callback(log.append, "callback")
            x = x * len(opened)
        return x

    yield run(torch.ones(1), ["a", "b"])
    yield run(torch.ones(1), ["c"])
    yield log


@program
def suppress_and_nullcontext(torch, compile):
    @compile
    def run(x, table, key, guard=False):
        context = torch.no_grad() if guard else contextlib.nullcontext()
        with context, contextlib.suppress(KeyError):
            x = x * 2
            x = x + table[key]
            x = x * 100
        return x

    x = leaf_tensor(torch, [1.0])
    yield run(x, {"a": 1}, "a")
    yield run(x, {"a": 1}, "b")
    yield run(x, {"a": 1}, "a", guard=True)


@program
def context_variable(torch, compile):
    def deeper(x, n):
        token = DEPTH.set(DEPTH.get() + 1)
        try:
            return deeper(x * 2, n - 1) if n else x + DEPTH.get()
        finally:
            DEPTH.reset(token)

    @compile
    def run(x, n):
        return deeper(x, n), DEPTH.get()

    yield run(torch.ones(1), 2)
    outer = DEPTH.set(10)
    yield run(torch.ones(1), 2)
    DEPTH.reset(outer)
    yield run(torch.ones(1), 1)


@program
def autocast_region(torch, compile):
    w = leaf_tensor(torch, [[0.5, 1.5], [2.0, -1.0]])

    @compile
    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            inside = y.dtype
        z = y.float().sum()
        return z, inside

    for k in range(2):
        z, inside = run(torch.ones(2, 2) * k)
        z.backward()
        yield z, inside, w


@program
def set_grad_enabled_by_argument(torch, compile):
    @compile
    def run(x, w, train):
        with torch.set_grad_enabled(train):
            y = (x * w).sum()
        return y

    w = leaf_tensor(torch, [1.0, 2.0])
    for train in (True, False, True):
        y = run(torch.ones(2), w, train)
        yield y, y.requires_grad


@program
def decorators_no_grad_and_enable_grad(torch, compile):
    @torch.no_grad()
    def project(w):
        w.div_(w.norm())
        return w

    @torch.enable_grad()
    def energy(w):
        return (w**2).sum()

    @compile
    def run(w):
        project(w)
        with torch.no_grad():
            return energy(w)

    w = leaf_tensor(torch, [3.0, 4.0])
    e = run(w)
    e.backward()
    yield e, w
    yield run(w), w


@program
def reentrant_lock_like_object(torch, compile):
    class Depth:
        level = 0
        worst = 0

        def __enter__(self):
            Depth.level += 1
            Depth.worst = max(Depth.worst, Depth.level)

        def __exit__(self, *info):
            Depth.level -= 1

    guard = Depth()

    @compile
    def run(x, n):
        with guard:
            return run_inner(x, n)

    def run_inner(x, n):
        with guard:
            return x + Depth.level if n == 0 else run_inner(x * 2, n - 1)

    for n in (0, 2, 1):
        yield run(torch.ones(1), n)
        yield Depth.level, Depth.worst
