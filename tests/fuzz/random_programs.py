"""Random small Python programs on Tensors: views, writes through them, dropout, loops, and a rare look at data.

In: a seed. Out: the lines of `def program(x, y, w, s)`: x, y: f32[4, 6] and w: f32[6, 6] take gradients, s: f32[6] is
state that the program changes in place. It returns a tensor or two. Shapes are tracked, so every line runs; whether
autograd allows a write is for eager to say. `minimise` drops lines while a program goes on failing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Shape = tuple[int, ...]
HEADER = "def program(x, y, w, s):"


class RandomProgram:
    """Lines under construction. shapes: of the variables so far; owned: those that may be written in place."""

    def __init__(self, seed: int, steps: int = 14) -> None:
        self.rng = np.random.default_rng(seed)
        self.shapes: dict[str, Shape] = {"x": (4, 6), "y": (4, 6)}
        self.owned: list[str] = []
        self.body: list[str] = []
        self.count = 0
        for _ in range(steps):
            STATEMENTS[self.rng.integers(len(STATEMENTS))](self)
        last = list(self.shapes)[-2:]
        self.body.append(f"return {', '.join(f'{name}.mean() + {name}' for name in last)}")

    @property
    def lines(self) -> list[str]:
        return [HEADER, *(f"    {line}" for line in self.body)]

    def pick(self, shape: Shape | None = None) -> str:
        """A variable, of that shape if given ("" if there is none)."""
        names = [n for n, s in self.shapes.items() if shape is None or s == shape]
        return str(names[self.rng.integers(len(names))]) if names else ""

    def new(self, shape: Shape, expression: str, *, owned: bool = False) -> str:
        name = f"v{self.count}"
        self.count += 1
        self.shapes[name] = shape
        if owned:
            self.owned.append(name)
        self.body.append(f"{name} = {expression}")
        return name

    def number(self) -> str:
        return f"{self.rng.uniform(0.2, 1.2):.2f}"


def _pointwise(p: RandomProgram) -> None:
    a = p.pick()
    forms = (
        "{a}.tanh()",
        "F.gelu({a})",
        "torch.sigmoid({a} * {n})",
        "{a} * {n} - 0.5",
        "F.relu({a}) + {a}",
        "-{a}.abs()",
    )
    p.new(p.shapes[a], forms[p.rng.integers(len(forms))].format(a=a, n=p.number()))


def _combine(p: RandomProgram) -> None:
    a = p.pick()
    b = p.pick(p.shapes[a])
    form = ("{a} + {b}", "{a} * {b}.sigmoid()", "torch.where({a} > {b}, {a}, {b} * 0.5)", "torch.maximum({a}, {b})")
    p.new(p.shapes[a], form[p.rng.integers(len(form))].format(a=a, b=b))


def _row(p: RandomProgram) -> None:
    a = p.pick()
    n = p.shapes[a][-1]
    forms = (
        f"F.softmax({a}, dim=-1)",
        f"F.layer_norm({a}, ({n},))",
        f"{a} - {a}.mean(-1, keepdim=True)",
        f"{a}.cumsum(-1)",
    )
    p.new(p.shapes[a], forms[p.rng.integers(len(forms))])


def _matmul(p: RandomProgram) -> None:
    a = p.pick((4, 6))
    p.new((4, 6), f"{a} @ w * 0.3" if p.rng.random() < 0.5 else f"F.linear({a}, w * 0.3, s)")


def _copy(p: RandomProgram) -> None:
    a = p.pick()
    p.new(p.shapes[a], f"{a}.clone()" if p.rng.random() < 0.7 else f"{a} * 1.0", owned=True)


def _view(p: RandomProgram) -> None:
    """A view, of something owned if there is anything, so that writes go through it."""
    a = p.owned[p.rng.integers(len(p.owned))] if p.owned else p.pick()
    shape = p.shapes[a]
    choices: list[tuple[Shape, str]] = [(shape[::-1], f"{a}.t()" if len(shape) == 2 else f"{a}.flip(0)")]
    choices.append(((shape[0] // 2, *shape[1:]), f"{a}[::2]" if shape[0] % 2 == 0 else f"{a}[: {shape[0] // 2}]"))
    choices.append((shape[1:] or (1,), f"{a}[1]" if len(shape) == 2 else f"{a}[1:2]"))
    choices.append(((int(np.prod(shape)),), f"{a}.reshape(-1)"))
    new_shape, expression = choices[p.rng.integers(len(choices))]
    p.new(new_shape, expression, owned=a in p.owned and "flip" not in expression)


def _write(p: RandomProgram) -> None:
    """An in-place change of something owned, or of a view of it."""
    if not p.owned:
        return _copy(p)
    a = p.owned[p.rng.integers(len(p.owned))]
    shape = p.shapes[a]
    b = p.pick(shape)
    forms = (f"{a}.mul_({p.number()})", f"{a}.add_({b}.detach())", f"{a} += {p.number()}", f"{a}[0] = {p.number()}",
             f"{a}[-1:] = {a}[:1] * 2", f"{a}.copy_({b} * 0.5)", f"{a}.clamp_(-1.5, 1.5)", f"{a}.zero_()")  # fmt: skip
    p.body.append(forms[p.rng.integers(len(forms))])
    return None


def _state(p: RandomProgram) -> None:
    a = p.pick((4, 6))
    forms = (f"s.mul_(0.9).add_({a}.detach().mean(0), alpha=0.1)", f"s[1:3] = {a}.detach()[0, 1:3]", "s += 1")
    p.body.append(forms[p.rng.integers(len(forms))])


def _use_state(p: RandomProgram) -> None:
    p.new((4, 6), f"{p.pick((4, 6))} + s")


def _dropout(p: RandomProgram) -> None:
    a = p.pick()
    p.new(p.shapes[a], f"F.dropout({a}, 0.3)" if p.rng.random() < 0.7 else f"{a} + torch.randn({p.shapes[a]})")


def _join(p: RandomProgram) -> None:
    a = p.pick()
    b = p.pick(p.shapes[a])
    shape = p.shapes[a]
    if shape[0] <= 12:
        c = p.new((2 * shape[0], *shape[1:]), f"torch.cat([{a}, {b}])")
        p.new(shape, f"{c}[{shape[0] // 2}:{shape[0] // 2 + shape[0]}]")


def _loop(p: RandomProgram) -> None:
    a = p.pick()
    name = p.new(p.shapes[a], f"{a} * 1.0")
    p.body += ["for k in range(2):", f"    {name} = ({name} + k).tanh()"]


def _look(p: RandomProgram) -> None:
    """Data decides: the compiler must break the graph and still be right."""
    if p.rng.random() < 0.15:
        a = p.pick()
        p.new(p.shapes[a], f"{a} * 2 if float({a}.sum()) > 0 else {a} - 1")


STATEMENTS: tuple[Callable[[RandomProgram], None], ...] = (
    *(_pointwise, _pointwise, _combine, _combine, _row, _matmul, _copy, _copy, _view, _view, _write, _write, _write),
    *(_state, _use_state, _dropout, _join, _loop, _look),
)


def minimise(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """`lines` with all that can go while `fails` stays true; one line at a time, from the end, until none can."""
    changed = True
    while changed:
        changed = False
        for k in reversed(range(1, len(lines) - 1)):
            shorter = [*lines[:k], *lines[k + 1 :]]
            if fails(shorter):
                lines, changed = shorter, True
    return lines
