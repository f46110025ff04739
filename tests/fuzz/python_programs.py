"""Random Python programs: control flow, containers, closures, classes, exceptions, mutation, generators, and tensors.

In: a seed, and whether there are tensors. Out: a `Program`: a prelude of globals, classes and helpers, and the body of
`program(x, y, n, flag, items, table, obj, s)`, as trees, so that they can be made smaller; its source. Programs end:
loops are bounded and helpers call no helpers. Most do not raise; the same seed gives the same text.
"""

from __future__ import annotations

import functools
import random
import re
from dataclasses import dataclass

from tests.fuzz.program_tree import Node, line, pieces, render
from tests.fuzz.python_grammar import (
    ATOMS,
    EXPRESSIONS,
    GLOBAL_STATEMENTS,
    LOOKS,
    STATEMENTS,
    TENSOR_STATEMENTS,
)
from tests.fuzz.python_prelude import (
    AFTER,
    GLOBALS,
    HELPERS,
    MODULE_LINES,
    NET,
    TENSOR_AFTER,
    TENSOR_GLOBALS,
    THING,
)

HOLE = re.compile(r"<(new )?(\w+)>|@(\w+)")
TENSORS = {"tensor", "scalar", "tlist", "tfn"}
OF_TENSORS = re.compile(
    r"<tensor>|<scalar>|<tlist>|<tfn>|\btorch\.|\bGT\b|\bnet\b|\blayer\b|\bsmooth\b|\bblend\b|\b[xy]\b"
)
CALLS_HELPERS = re.compile(
    r"\b(helper|numbers|adder|counting|cached|recurse|delegating|zipped|layer|net|smooth|blend|scaler|waves|variadic"
    r"|Thing|Sub|obj|<obj>|@obj|note)\b|<obj>|@obj|<fn>|<tfn>|<gen>"
)
ARGUMENTS = {"x": "tensor", "y": "tensor", "n": "int", "flag": "bool", "items": "list", "table": "dict", "obj": "obj"}
ERRORS = ["ValueError", "KeyError", "Stop", "IndexError", "ZeroDivisionError"]


@dataclass
class Program:
    """prelude: what is defined at module level. body: of `program`. tensors: whether there are any."""

    seed: int
    prelude: list[Node]
    body: list[Node]
    tensors: bool

    def source(self) -> str:
        header = "def program(x, y, n, flag, items, table, obj, s):\n    global G, GT"
        return "\n".join([*render(self.prelude), header, *render(self.body, 4)]) + "\n"

    def nodes(self) -> list[Node]:
        """One tree of both, for `minimise`."""
        return [Node([("# prelude", self.prelude)]), Node([("# body", self.body)])]


@functools.cache
def needs(form: str) -> tuple[frozenset[str], bool, bool]:
    """Types of which it needs a variable; whether it calls helpers; whether it is of tensors."""
    kinds = frozenset(re.findall(r"@(\w+)", form))
    return kinds, bool(CALLS_HELPERS.search(form)), bool(OF_TENSORS.search(form))


class Writer:
    """Writes one program. scope: variables that are bound where the next statement stands, with their types."""

    atoms, expressions, statements, tensor_statements = ATOMS, EXPRESSIONS, STATEMENTS, TENSOR_STATEMENTS

    def __init__(self, seed: int, tensors: bool) -> None:
        self.rng = random.Random(seed)
        self.tensors = tensors
        self.scope: dict[str, str] = {}
        self.count = 0
        self.in_helper = self.in_closure = self.in_loop = self.is_generator = False
        self.looks = tensors and self.rng.random() < 0.2
        self.gradients = tensors and self.rng.random() < 0.4
        self.prints = self.rng.random() < 0.1

    # expressions

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def allowed(self, form: str) -> bool:
        """Whether the form may stand here: its variables are there, helpers call no helpers, tensors are wanted."""
        kinds, calls_helpers, of_tensors = needs(form)
        if (self.in_helper and calls_helpers) or (of_tensors and not self.tensors):
            return False
        return not kinds or kinds <= set(self.scope.values())

    def variables(self, kind: str) -> list[str]:
        return [name for name, its in self.scope.items() if its == kind]

    def expression(self, kind: str, depth: int = 2) -> str:
        names = self.variables(kind)
        atoms = [a for a in self.atoms.get(kind, []) if self.allowed(a)]
        if names and self.chance(0.45):
            return self.rng.choice(names)
        if kind == "bool" and self.looks and self.chance(0.1):
            return self.fill(self.rng.choice(LOOKS), 1)
        forms = [f for f in self.expressions.get(kind, []) if self.allowed(f)]
        if forms and (depth > 0 or not atoms):
            return "(" + self.fill(self.rng.choice(forms), depth - 1) + ")"
        return self.rng.choice(names or atoms)

    def fill(self, form: str, depth: int = 2) -> str:
        """The form, its holes filled; new names are bound from then on."""
        made: list[tuple[str, str]] = []

        def one(hole: re.Match[str]) -> str:
            new, kind, variable = hole.groups()
            if new:
                self.count += 1
                made.append((f"v{self.count}", kind))
                return made[-1][0]
            return self.rng.choice(self.variables(variable)) if variable else self.expression(kind, depth)

        text = HOLE.sub(one, form)
        self.scope.update(made)
        return text

    # statements

    def simple(self) -> Node:
        while True:
            forms = self.tensor_statements if self.tensors and self.chance(0.45) else self.statements
            if not (self.in_helper or self.in_closure) and self.chance(0.04):
                forms = GLOBAL_STATEMENTS
            form = self.rng.choice(forms)
            if not self.allowed(form) or ((self.in_helper or self.in_closure) and form.startswith("GT =")):
                continue
            return line(self.fill(form))

    def block(self, size: int, depth: int, **names: str) -> list[Node]:
        """Statements in a scope of their own: what they define is not seen after."""
        outer = dict(self.scope)
        self.scope.update(names)
        made = []
        for _ in range(self.rng.randint(1, size)):
            made += self.statement(depth)
        self.scope = outer
        return made

    def statement(self, depth: int) -> list[Node]:
        if depth <= 0 or self.chance(0.6):
            return [self.leave()] if self.chance(0.04) else [self.simple()]
        kinds = [self.if_, self.if_, self.for_, self.for_, self.while_, self.with_, self.try_, self.try_, self.match_]
        kinds += [self.closure, self.closure, self.swap, self.walrus]
        if self.chance(0.3):
            kinds.append(self.raise_)
        if self.is_generator:
            kinds += [self.yield_, self.yield_]
        if self.prints and not self.in_helper:
            kinds.append(self.print_)
        if not self.in_helper:
            kinds += [self.local_class, self.take, self.call_with]
        return self.rng.choice(kinds)(depth - 1)

    def leave(self) -> Node:
        """Out of a loop, or of nothing."""
        if self.in_loop and self.chance(0.8):
            return line(f"if {self.expression('bool')}:\n    {self.rng.choice(['break', 'continue'])}")
        return self.simple()

    def if_(self, depth: int) -> list[Node]:
        parts = [(f"if {self.expression('bool')}:", self.block(3, depth))]
        if self.chance(0.3):
            parts.append((f"elif {self.expression('bool')}:", self.block(2, depth)))
        if self.chance(0.5):
            parts.append(("else:", self.block(2, depth)))
        if self.chance(0.1) and not self.is_generator and not self.in_helper:
            parts[0][1].append(line(f"return {self.result()}"))
        return [Node(parts)]

    def loop(self, head: str, depth: int, **names: str) -> Node:
        outer, self.in_loop = self.in_loop, True
        parts = [(head, self.block(3, depth, **names))]
        self.in_loop = outer
        if self.chance(0.15):
            parts.append(("else:", self.block(1, depth)))
        return Node(parts)

    def for_(self, depth: int) -> list[Node]:
        self.count += 1
        i, q = f"i{self.count}", f"q{self.count}"
        forms: list[tuple[str, dict[str, str]]] = [
            (f"for {i} in range(<int> % 4):", {i: "int"}),
            (f"for {i}, {q} in enumerate(<list>[:3]):", {i: "int", q: "int"}),
            (f"for {q} in list(<list>)[:3]:", {q: "int"}),
            (f"for {q}, {i} in sorted(<dict>.items())[:3]:", {q: "str", i: "int"}),
            (f"for {i}, {q} in zip(range(3), <list>):", {i: "int", q: "int"}),
            (f"for {q} in itertools.islice(<gen>, 3):", {q: "int"}),
            (f"for {q} in reversed(<list>[:3]):", {q: "int"}),
        ]
        if self.tensors:
            forms += [(f"for {q} in (<tlist>)[:3]:", {q: "tensor"})] * 2
            forms += [(f"for {i}, {q} in enumerate((<tensor>).unbind(0)):", {i: "int", q: "scalar"})]
        head, names = self.rng.choice([f for f in forms if self.allowed(f[0])])
        return [self.loop(self.fill(head), depth, **names)]

    def while_(self, depth: int) -> list[Node]:
        self.count += 1
        c = f"c{self.count}"
        start = line(f"{c} = 0")
        return [start, self.loop(f"while ({c} := {c} + 1) < 4 and {self.expression('bool')}:", depth)]

    def with_(self, depth: int) -> list[Node]:
        heads = [
            "with section(<str>):",
            f"with Guard({self.chance(0.5)}) as guard:",
            "with contextlib.nullcontext(<int>):",
        ]
        heads += ["with contextlib.suppress(ValueError, KeyError):", "with section(<str>), Guard(False):"]
        if self.tensors:
            heads += ["with torch.no_grad():"]
        return [Node([(self.fill(self.rng.choice(heads)), self.block(3, depth))])]

    def raise_(self, depth: int) -> list[Node]:
        error = self.rng.choice(ERRORS[:3])
        return [
            Node(
                [
                    (
                        f"if {self.expression('bool', 1)} and {self.expression('int', 0)} > 2:",
                        [line(f"raise {error}({self.expression('int', 0)})")],
                    )
                ]
            )
        ]

    def try_(self, depth: int) -> list[Node]:
        body = self.block(3, depth)
        risky = ["<new int> = 1 // <int>", "<new int> = <list>[<int>]", "<new int> = <dict>[<str>]", "note(<int> // 0)"]
        form = self.rng.choice([r for r in risky if self.allowed(r)])
        outer = dict(self.scope)
        body.insert(self.rng.randint(0, len(body)), line(self.fill(form)))
        self.scope = outer
        if self.chance(0.4):
            body += self.raise_(depth)
        caught = ", ".join(self.rng.sample(ERRORS, 4))
        handler = self.block(2, depth)
        handler.insert(0, line(self.rng.choice(["LOG.append(type(error).__name__)", "LOG.append(error.args)"])))
        if self.chance(0.1):
            handler.append(line(self.rng.choice(["raise", "raise Stop(0) from error", "raise ValueError(1)"])))
        parts = [("try:", body), (f"except ({caught}) as error:", handler)]
        if self.chance(0.3):
            parts.append(("else:", self.block(1, depth)))
        if self.chance(0.3):
            parts.append(("finally:", self.block(1, depth)))
        return [Node(parts)]

    def match_(self, depth: int) -> list[Node]:
        subject = self.expression(self.rng.choice(["int", "str", "list", "dict"]))
        self.count += 1
        m = f"m{self.count}"
        cases: list[tuple[str, dict[str, str]]] = [
            ("case 0 | 1:", {}),
            (f"case int({m}) if {m} > 1:", {m: "int"}),
            (f"case [{m}, *_]:", {m: "int"}),
            ("case []:", {}),
            (f"case {{'a': {m}}}:", {m: "int"}),
            (f"case str({m}):", {m: "str"}),
            ("case {}:", {}),
        ]
        chosen = self.rng.sample(cases, 3)
        parts = [(head, self.block(2, depth, **names)) for head, names in chosen]
        parts.append(("case _:", self.block(1, depth)))
        return [Node([(f"match {subject}:", [Node(parts)])])]

    def closure(self, depth: int) -> list[Node]:
        """An inner function that may rebind what is outside of it."""
        kind = "tensor" if self.tensors and self.chance(0.5) else "int"
        self.count += 1
        name, a = f"f{self.count}", f"a{self.count}"
        body: list[Node] = []
        counters = self.variables("int")
        bound = [c for c in counters if re.fullmatch(r"v\d+", c)] if not self.in_helper else []
        if bound and self.chance(0.5):
            shared = self.rng.choice(bound)
            body += [line(f"nonlocal {shared}"), line(f"{shared} = ({shared} + 1) % 50")]
        flags = self.in_loop, self.is_generator
        hidden, self.scope = self.scope, {k: v for k, v in self.scope.items() if v not in ("gen",)}
        self.in_loop = self.is_generator = False
        self.in_closure = True
        reading = dict(self.scope)
        self.scope = {a: kind}
        for _ in range(self.rng.randint(0, 2)):
            body.append(self.simple())
        self.scope |= reading
        body.append(line(f"return {self.expression(kind)}"))
        self.scope, (self.in_loop, self.is_generator), self.in_closure = hidden, flags, False
        default = f", k={self.expression('int', 0)}" if self.chance(0.3) else ""
        made = Node([(f"def {name}({a}{default}):", body)])
        self.scope[name] = "tfn" if kind == "tensor" else "fn"
        return [made]

    def swap(self, depth: int) -> list[Node]:
        for kind in self.rng.sample(["int", "list", "str", "tensor"], 4):
            names = self.variables(kind)
            if len(names) > 1:
                a, b = self.rng.sample(names, 2)
                return [line(f"{a}, {b} = {b}, {a}")]
        return [self.simple()]

    def walrus(self, depth: int) -> list[Node]:
        self.count += 1
        w = f"w{self.count}"
        head = f"if ({w} := {self.expression('int')}) > {self.expression('int', 0)}:"
        return [Node([(head, self.block(2, depth, **{w: "int"}))])]

    def yield_(self, depth: int) -> list[Node]:
        return [line(f"yield {self.expression('int')}")]

    def print_(self, depth: int) -> list[Node]:
        return [line(f"print({self.expression('int', 1)}, {self.expression('str', 1)})")]

    def local_class(self, depth: int) -> list[Node]:
        self.count += 1
        name, obj = f"Local{self.count}", f"v{self.count}"
        body = [line(f"weight = {self.expression('int', 0)}")]
        method = f"def bump(self, k):\n    LOG.append({name!r})\n    return super().bump(k) + self.weight"
        made = Node([(f"class {name}(Thing):", [*body, line(method)])])
        start = line(f"{obj} = {name}({self.expression('int', 1)})")
        self.scope[obj] = "obj"
        return [made, start]

    def take(self, depth: int) -> list[Node]:
        """Partly consume a generator, and close it."""
        gens = self.variables("gen")
        if not gens:
            return [line(self.fill("<new gen> = <gen>"))]
        g = self.rng.choice(gens)
        forms = [f"LOG.append(next({g}, None))", f"LOG.append(list(itertools.islice({g}, 2)))"]
        forms += [f"getattr({g}, 'close', int)()", f"LOG.append(sum({g}))"]
        return [line(self.rng.choice(forms))]

    def call_with(self, depth: int) -> list[Node]:
        kw = self.rng.choice(["**{'k': <int>}", "k=<int>", "*<list>[:2]", "*<list>[:1], **dict(k=<int>)"])
        return [line(self.fill(f"<new int> = variadic(<int>, {kw})"))]

    def result(self) -> str:
        kinds = ("int", "bool", "float", "str", "list", "dict", "set", "obj", "tensor", "scalar", "tlist")
        names = [n for n, k in self.scope.items() if k in kinds]
        chosen = self.rng.sample(names, min(len(names), self.rng.randint(1, 4)))
        if self.tensors and not any(self.scope[c] == "tensor" for c in chosen):
            chosen.append(self.expression("tensor"))
        return chosen[0] if len(chosen) == 1 else f"({', '.join(chosen)})"

    # the whole

    def helper(self, head: str, last: str, size: int = 2, generator: bool = False, **names: str) -> Node:
        outer, self.scope = self.scope, {}
        self.in_helper, self.is_generator = True, generator
        self.scope = dict(names)
        body = []
        for _ in range(self.rng.randint(0, size)):
            body += self.statement(1)
        if last:
            kind = last.strip("<>").split()[-1]
            body.append(line(f"return {self.expression(kind)}"))
        self.scope, self.in_helper, self.is_generator = outer, False, False
        return Node([(head, body)])

    def program(self, seed: int) -> Program:
        prelude = self.prelude()
        self.scope = {k: v for k, v in ARGUMENTS.items() if self.tensors or v != "tensor"} | {"s": "str"}
        body = [line("x = net(x) + y * net.w")] if self.gradients and self.chance(0.7) else []
        for _ in range(self.rng.randint(4, 11)):
            body += self.statement(3)
        body.append(line(f"return {self.result()}"))
        return Program(seed, prelude, body, self.tensors)

    def prelude(self) -> list[Node]:
        made = [*pieces(GLOBALS), self.helper("def helper(a, b=2, *, k=1):", "<int>", a="int", b="int", k="int")]
        numbers = self.helper("def numbers(k):", "", 3, generator=True, k="int")
        numbers.parts[0][1].append(line("yield from range(k % 5)"))  # type: ignore[union-attr]
        made += [numbers, self.helper("def variadic(a, *rest, k=0, **more):", "<int>", a="int", k="int")]
        made += pieces(HELPERS)
        shifted = self.helper("    def shifted(self, a):", "<int>", a="int")
        made += [Node([("class Thing:", [*pieces(THING), Node([(shifted.parts[0][0].strip(), shifted.parts[0][1])])])])]
        made += pieces(AFTER)
        if self.tensors:
            made += [*pieces(TENSOR_GLOBALS), self.helper("def smooth(u):", "<tensor>", u="tensor")]
            made.append(self.helper("def blend(u, v=None, *, t=0.5):", "<tensor>", u="tensor", t="float"))
            made.append(self.helper("def layer(u, k=1):", "<tensor>", u="tensor", k="int"))
            forward = self.helper("def forward(self, t):", "<tensor>", t="tensor")
            forward.parts[0][1][:0] = [line(text) for text in self.rng.sample(MODULE_LINES, 3)]  # type: ignore[index]
            made.append(Node([("class Net(torch.nn.Module):", [line(NET), forward])]))
            made.append(line(TENSOR_AFTER.replace("GRAD", str(self.gradients))))
        return made


def write(seed: int, tensors: bool = True) -> Program:
    """The program of a seed."""
    return Writer(seed, tensors).program(seed)
