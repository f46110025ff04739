"""Recipes: the Python objects that a captured call left behind, made anew at every later call by a generated function.

In: values that must exist afterwards (`root`), calls that change objects from outside (`effect`), and three functions
that tell what is not to be rebuilt: objects from outside, traced tensors, numbers computed from outside numbers.
Out: `build`: a function of (the graph's outputs, the objects from outside) that returns the roots.
Method: walk all that is reachable, and plan each object (`instances`); strongly connected components (Tarjan),
parts first. What lies on no cycle is written as one expression where its type has one, and in place where it is used
once; on a cycle all are made empty, then filled, what hashes its parts last. Immutable values made of constants are
constants. Everything else is new at every call, with the sharing that it had: no user's code runs but `__hash__` and
`__eq__` of keys.
Limits: a class made by captured code counts as a constant, `__context__` and tracebacks of exceptions are dropped, and
a set may iterate in another order than the one it is made after.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from compiler_core.capture.recipes.constants import is_constant, literal
from compiler_core.capture.recipes.instances import filled_table, has_fixed_table, plan_of, shared_table, tensor_plan
from compiler_core.capture.recipes.plans import (
    SELF,
    CannotRebuild,
    Code,
    Fixed,
    Part,
    RebuildPlan,
    Refusal,
)
from compiler_core.tensor.tensor import Tensor

__all__ = ["CannotRebuild", "Recipe"]

Rebuild: TypeAlias = Callable[[Sequence[Tensor], Sequence[Any]], tuple[Any, ...]]
LONGEST_INLINE = 80  # characters of an expression that is written where it is used
_SUBSCRIPT = re.compile(r"(fresh|outside)\[\d+\]")
_WORD = re.compile(r"\W+")


class _Node:
    """One object that was reached. text: how generated code refers to it, once it can."""

    __slots__ = ("access", "constant", "index", "low", "onto", "parent", "parts", "plan", "text", "thing", "uses")

    def __init__(self, thing: Any, parent: _Node | None, access: str) -> None:
        self.thing, self.parent, self.access = thing, parent, access
        self.plan: RebuildPlan | None = None
        self.parts: list[_Node] = []
        self.text = ""
        self.constant = False
        self.uses = 0
        self.index = self.low = -1
        self.onto = False

    def where(self) -> str:
        """How it is reached from a root."""
        steps: list[str] = []
        node: _Node = self
        while node.parent is not None:
            steps.append(node.access)
            node = node.parent
        path = "".join(reversed(steps))
        return f"{node.access}, at {path.removeprefix(', ')}" if path else node.access


class Recipe:
    """What a later call does after the graph ran.

    lookup: the index into `outside` of an object that came from outside, None if captured code made it. tensor: the
    expression for a traced tensor, symbol: for a number computed from outside numbers, over the names `fresh`,
    `outside` and those that `bind` gave; None if it is none.
    """

    def __init__(
        self,
        lookup: Callable[[Any], int | None],
        tensor: Callable[[Tensor], str | None],
        symbol: Callable[[Any], str | None],
    ) -> None:
        self._lookup, self._tensor, self._symbol = lookup, tensor, symbol
        self._roots: list[tuple[str, Any]] = []
        self._effects: list[tuple[Any, tuple[Any, ...]]] = []
        self._namespace: dict[str, Any] = {}
        self._bound: dict[int, str] = {}
        self._names = 0
        self._first: list[str] = []
        self.source = ""

    def root(self, name: str, value: Any) -> None:
        """One value that must exist afterwards. name: what errors call it, e.g. `the variable 'gen'`."""
        self._roots.append((name, value))

    def effect(self, function: Any, target: Any, *args: Any) -> None:
        """After all is rebuilt: `function(target, *args)`, in the order recorded."""
        self._effects.append((function, (target, *args)))

    def first(self, name: str, function: Callable[..., Any], *args: str) -> None:
        """Before anything else: the variable `name` is what `function(*args)` gives. No other name is without a `_`.

        args: code.
        """
        self._first.append(f"{name} = {self.bind(function, 'function')}({', '.join(args)})")

    def bind(self, thing: Any, stem: str) -> str:
        """A name by which generated code refers to this very object."""
        if id(thing) not in self._bound:
            name = self._bound[id(thing)] = self._name(stem)
            self._namespace[name] = thing
        return self._bound[id(thing)]

    def _name(self, stem: str) -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"{_WORD.sub('_', stem)}_{self._names - 1}"

    def build(self, name: str) -> Rebuild:
        """The function that a later call runs; returns the roots, in order. Raises CannotRebuild."""
        body = _Writer(self, _Graph(self)).lines()
        self.source = "\n    ".join(["def rebuild(fresh, outside):", *self._first, *body]) + "\n"
        filename = f"<frozen distcompile recipe of {name}>"
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(keepends=True), filename)
        exec(compile(self.source, filename, "exec"), self._namespace)
        rebuild: Rebuild = self._namespace.pop("rebuild")
        return rebuild


class _Graph:
    """All objects that roots and effects reach. roots, effects: their nodes."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.nodes: dict[int, _Node] = {}
        self.waiting: list[_Node] = []
        self.tables: dict[int, _Node] = {}  # id of a `__dict__` -> the first object that has it
        self.roots = [self.reach(value, None, name) for name, value in recipe._roots]
        self.effects = [
            [self.reach(value, None, f"an argument of {name_of(function)}") for value in arguments]
            for function, arguments in recipe._effects
        ]
        self.walk()
        self.own_tables()
        for node in self.nodes.values():
            if node.plan is not None:
                node.parts = [self.nodes[id(part.value)] for part in node.plan.parts()]

    def reach(self, thing: Any, parent: _Node | None, access: str) -> _Node:
        node = self.nodes.get(id(thing))
        if node is None:
            node = self.nodes[id(thing)] = _Node(thing, parent, access)
            self.waiting.append(node)
        return node

    def walk(self) -> None:
        """Plan all that waits, and what that leads to."""
        while self.waiting:
            node = self.waiting.pop()
            self.settle(node)
            if node.plan is None:
                continue
            table = node.plan.table
            if table is not None and (self.recipe._lookup(table) is not None or id(table) in self.tables):
                self.reach(table, node, ".__dict__")
            if table:
                self.tables.setdefault(id(table), node)
                for key, value in table.items():
                    self.reach(key, node, ", an attribute's name")
                    self.reach(value, node, f".{key}")
            for part in node.plan.parts():
                fixed = not isinstance(part, Part) and self.recipe._lookup(part.value) is None
                held = self.reach(part.value, node, part.access if isinstance(part, Part) else "")
                if fixed and held.plan is None and not held.text:
                    held.constant = True

    def settle(self, node: _Node) -> None:
        """Say how code refers to the object: by a place outside, as a constant, by an expression, or by a plan."""
        thing = node.thing
        if node.constant:
            return
        if literal(thing) is not None:
            node.constant = True
            return
        place = self.recipe._lookup(thing)
        if place is not None:
            node.text = f"outside[{place}]"
            return
        is_tensor = issubclass(type(thing), Tensor)
        code = self.recipe._tensor(thing) if is_tensor else self.recipe._symbol(thing)
        if code is not None:
            node.plan = tensor_plan(thing, code) if is_tensor else RebuildPlan((code,), whole=(code,), stem="number")
            node.plan.pure = _SUBSCRIPT.fullmatch(code) is not None
        elif is_constant(thing):
            node.constant = True
        else:
            try:
                node.plan = plan_of(thing)
            except Refusal as refusal:
                raise CannotRebuild(thing, node.where(), refusal.why, refusal.remedy) from None

    def own_tables(self) -> None:
        """Have each `__dict__` filled with its items, or be the one that others hold too."""
        for node in list(self.nodes.values()):
            plan = node.plan
            if plan is None or plan.table is None:
                continue
            shared = self.nodes.get(id(plan.table))
            if shared is not None and has_fixed_table(node.thing):
                assert shared.plan is not None
                shared.plan.make, shared.plan.whole = (Part(node.thing), ".__dict__"), None
            elif shared is not None:
                plan.fill += (shared_table(node.thing, plan.table),)
                plan.whole = None
            elif plan.table:
                plan.fill += (filled_table(node.thing, plan.table),)
                plan.whole = None


class _Writer:
    """From the graph of objects to lines of code."""

    def __init__(self, recipe: Recipe, graph: _Graph) -> None:
        self.recipe, self.graph = recipe, graph
        self.body: list[str] = []

    def lines(self) -> list[str]:
        """The body of the function."""
        used = [*self.graph.roots, *(node for nodes in self.graph.effects for node in nodes)]
        for node in [*used, *(part for holder in self.graph.nodes.values() for part in holder.parts)]:
            node.uses += 1
        for component in components(used):
            self.component(component)
        for (function, _), nodes in zip(self.recipe._effects, self.graph.effects):
            name = self.recipe.bind(function, name_of(function))
            self.body.append(f"{name}({', '.join(map(self.text, nodes))})")
        roots = "".join(f"{self.text(node)}, " for node in self.graph.roots)
        return [*self.body, f"return ({roots.rstrip() if len(self.graph.roots) == 1 else roots[:-2]})"]

    def component(self, nodes: list[_Node]) -> None:
        """Make the objects of one component; all that they mention beside each other exists."""
        cyclic = len(nodes) > 1 or nodes[0] in nodes[0].parts
        if not cyclic:
            self.single(nodes[0])
            return
        for node in self.makeable(nodes):
            assert node.plan is not None
            self.assign(node, self.render(node.plan.make, node))
        for kind in ("fill", "hashing"):
            for node in nodes:
                self.body += [self.render(code, node) for code in getattr(node.plan, kind)]

    def single(self, node: _Node) -> None:
        plan = node.plan
        if plan is None:
            return
        if plan.immutable and all(part.constant for part in node.parts):
            node.constant = True
            return
        code = self.render(plan.make if plan.whole is None else plan.whole, node)
        inline = plan.whole is not None and len(code) <= LONGEST_INLINE and (plan.pure or not self.graph.effects)
        if inline and (node.uses == 1 or _SUBSCRIPT.fullmatch(code)):
            node.text = code
            return
        self.assign(node, code)
        if plan.whole is None:
            self.body += [self.render(statement, node) for statement in (*plan.fill, *plan.hashing)]

    def assign(self, node: _Node, code: str) -> None:
        assert node.plan is not None
        node.text = self.recipe._name(node.plan.stem)
        self.body.append(f"{node.text} = {code}")

    def makeable(self, nodes: list[_Node]) -> Iterator[_Node]:
        """The objects of a cycle so that what `make` mentions comes first."""
        ready: set[int] = set()
        inside = {id(node) for node in nodes}
        waiting = list(nodes)
        while waiting:
            late = []
            for node in waiting:
                assert node.plan is not None
                needs = {id(self.graph.nodes[id(piece.value)]) for piece in node.plan.make if isinstance(piece, Part)}
                if (needs & inside) <= ready:
                    ready.add(id(node))
                    yield node
                else:
                    late.append(node)
            if len(late) == len(waiting):
                thing = late[0]
                why = "it is part of itself through objects that cannot be changed after they are made"
                raise CannotRebuild(thing.thing, thing.where(), why, "make it outside the compiled function")
            waiting = late

    def render(self, code: Code, node: _Node) -> str:
        pieces = []
        for piece in code:
            if isinstance(piece, str):
                pieces.append(piece)
            elif piece is SELF:
                pieces.append(node.text)
            elif isinstance(piece, Fixed):
                pieces.append(self.recipe.bind(piece.value, piece.stem))
            else:
                pieces.append(self.text(self.graph.nodes[id(piece.value)]))  # type: ignore[union-attr]
        return "".join(pieces)

    def text(self, node: _Node) -> str:
        """How code refers to the object now."""
        if node.constant and not node.text:
            node.text = literal(node.thing) or self.recipe.bind(node.thing, name_of(node.thing))
        return node.text


def components(roots: Sequence[_Node]) -> list[list[_Node]]:
    """Strongly connected components of what `roots` reach, those that others mention first (Tarjan 1972)."""
    found: list[list[_Node]] = []
    stack: list[_Node] = []
    count = 0
    for root in roots:
        if root.index >= 0:
            continue
        path = [(root, iter(root.parts))]
        while path:
            node, rest = path[-1]
            if node.index < 0:
                node.index = node.low = count
                count += 1
                stack.append(node)
                node.onto = True
            following = next((part for part in rest if _lower(node, part)), None)
            if following is not None:
                path.append((following, iter(following.parts)))
                continue
            path.pop()
            if path:
                path[-1][0].low = min(path[-1][0].low, node.low)
            if node.low == node.index:
                found.append(_cut(stack, node))
    return found


def _cut(stack: list[_Node], node: _Node) -> list[_Node]:
    """Take `node` and what lies above it off the stack."""
    component: list[_Node] = []
    while not component or component[-1] is not node:
        component.append(stack.pop())
        component[-1].onto = False
    return component[::-1]


def _lower(node: _Node, part: _Node) -> bool:
    """Whether `part` is yet to be visited; if it is on the stack, `node` is in a component with it."""
    if part.index < 0:
        return True
    if part.onto:
        node.low = min(node.low, part.index)
    return False


def name_of(thing: Any) -> str:
    """What a name for `thing` begins with."""
    name = getattr(thing, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else type(thing).__name__
