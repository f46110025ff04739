"""Random small programs: nested control flow, exceptions, generators, closures and calls over a few integer variables.

In: a seed. Out: the source of `main()`, which ends (its loops are bounded) by a value or an exception.
"""

from __future__ import annotations

import random

HEAD = """
class Trouble(Exception):
    pass

class Manager:
    def __init__(self, tag, suppress):
        self.tag, self.suppress = tag, suppress
    def __enter__(self):
        note(("enter", self.tag))
        return self.tag
    def __exit__(self, kind, value, entries):
        note(("exit", self.tag, kind))
        return self.suppress and kind is Trouble
"""
ERRORS = ("ZeroDivisionError", "Trouble", "(KeyError, IndexError)", "Exception", "ValueError")


class Writer:
    """Writes one program. depth: of nested blocks; loops: how many surround the line (break and continue)."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.lines: list[str] = []
        self.names = ["a", "b", "c"]
        self.functions: list[tuple[str, bool]] = []
        self.count = 0
        self.is_generator = False

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def write(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    # expressions

    def value(self, depth: int = 2) -> str:
        choices = ["name", "number"] + ["binary", "compare", "choice", "call", "list", "index"] * (depth > 0)
        match self.dice.choice(choices):
            case "name":
                return self.dice.choice(self.names)
            case "number":
                return str(self.dice.randint(-3, 9))
            case "binary":
                op = self.dice.choice(["+", "-", "*", "//", "%", "&", "|", "^"])
                return f"({self.value(depth - 1)} {op} {self.value(depth - 1)})"
            case "compare":
                middle = self.dice.choice(["<", "==", ">=", "!="])
                return f"int({self.value(depth - 1)} {middle} {self.value(depth - 1)} < {self.value(0)})"
            case "choice":
                word = self.dice.choice(["if {} else", "and {} or", "or {} and"])
                return f"({self.value(depth - 1)} {word.format(self.value(depth - 1))} {self.value(0)})"
            case "list":
                return f"sum([x * {self.value(0)} for x in range({self.value(0)} % 4) if x != {self.value(0)}])"
            case "index":
                return f"[{self.value(0)}, {self.value(0)}, {self.value(0)}][{self.value(depth - 1)}]"
        return self.call(depth)

    def call(self, depth: int) -> str:
        if not self.functions:
            return f"note({self.value(depth - 1)})"
        name, is_generator = self.dice.choice(self.functions)
        form = self.dice.choice(["{}({})", "{}(*[{}])", "{}(x={})", "{}(**dict(x={}))"])
        called = form.format(name, self.value(depth - 1))
        return self.dice.choice(["sum({})", "len(list({}))", "next({}, 7)"]).format(called) if is_generator else called

    # statements

    def block(self, indent: int, depth: int, loops: int) -> None:
        for _ in range(self.dice.randint(1, 3)):
            self.statement(indent, depth, loops)

    def statement(self, indent: int, depth: int, loops: int) -> None:
        simple = ["assign", "assign", "note", "in_place", "raise", "jump", "unpack"] + ["yield"] * self.is_generator
        nested = ["if", "for", "while", "try", "finally", "with", "function", "match"] if depth else []
        kind = self.dice.choice(simple + nested * 2)
        getattr(self, f"write_{kind}")(indent, depth, loops)

    def write_assign(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, f"{self.dice.choice('abc')} = {self.value()}")

    def write_unpack(self, indent: int, depth: int, loops: int) -> None:
        form = self.dice.choice(["a, b = {}, {}", "c, *_ = [{}, {}]", "(a, (b, c)) = ({}, ({}, 1))"])
        self.write(indent, form.format(self.value(1), self.value(1)))

    def write_note(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, f"note(({self.value()}, f'{{{self.value(1)}:>3}}'))")

    def write_in_place(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, f"{self.dice.choice('abc')} {self.dice.choice(['+=', '-=', '|='])} {self.value(1)}")

    def write_raise(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, f"if {self.value(1)} % 5 == {self.dice.randint(0, 4)}:")
        error = self.dice.choice(["Trouble", "Trouble(a)", "KeyError(b) from ValueError(c)", "ValueError from None"])
        self.write(indent + 1, f"raise {error}")

    def write_jump(self, indent: int, depth: int, loops: int) -> None:
        choices = ["return a + b" if not self.is_generator else "return b"] + ["break", "continue"] * bool(loops)
        self.write(indent, f"if {self.value(1)} % 3 == {self.dice.randint(0, 2)}:")
        self.write(indent + 1, self.dice.choice(choices))

    def write_yield(self, indent: int, depth: int, loops: int) -> None:
        form = self.dice.choice(["yield {}", "a = (yield {}) or 2", "yield from range({} % 3)"])
        self.write(indent, form.format(self.value(1)))

    def write_if(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, f"if {self.value()}:")
        self.block(indent + 1, depth - 1, loops)
        if self.dice.random() < 0.5:
            self.write(indent, "else:")
            self.block(indent + 1, depth - 1, loops)

    def write_for(self, indent: int, depth: int, loops: int) -> None:
        over = self.dice.choice(["range({} % 4)", "[a, b, {}]", "(x for x in (c, {}))"]).format(self.value(0))
        self.write(indent, f"for {self.dice.choice('abc')} in {over}:")
        self.block(indent + 1, depth - 1, loops + 1)
        self.maybe_else(indent, depth, loops)

    def write_while(self, indent: int, depth: int, loops: int) -> None:
        counter = self.fresh("n")
        self.write(indent, f"{counter} = {self.dice.randint(1, 4)}")
        self.write(indent, f"while {counter} and {self.value(1)} != 3:")
        self.write(indent + 1, f"{counter} -= 1")
        self.block(indent + 1, depth - 1, loops + 1)
        self.maybe_else(indent, depth, loops)

    def maybe_else(self, indent: int, depth: int, loops: int) -> None:
        if self.dice.random() < 0.3:
            self.write(indent, "else:")
            self.block(indent + 1, depth - 1, loops)

    def write_try(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, "try:")
        self.block(indent + 1, depth - 1, loops)
        for error in self.dice.sample(ERRORS, self.dice.randint(1, 2)):
            self.write(indent, f"except {error} as e:")
            self.write(indent + 1, "note(repr(e.__context__))")
            self.block(indent + 1, depth - 1, loops)
            if self.dice.random() < 0.3:
                self.write(indent + 1, "raise")
        if self.dice.random() < 0.3:
            self.write(indent, "else:")
            self.block(indent + 1, depth - 1, loops)
        if self.dice.random() < 0.4:
            self.write(indent, "finally:")
            self.block(indent + 1, depth - 1, 0)

    def write_finally(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, "try:")
        self.block(indent + 1, depth - 1, loops)
        self.write(indent, "finally:")
        self.block(indent + 1, depth - 1, 0)

    def write_with(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, f"with Manager({self.value(0)}, {self.dice.random() < 0.5}) as {self.dice.choice('abc')}:")
        self.block(indent + 1, depth - 1, loops)

    def write_match(self, indent: int, depth: int, loops: int) -> None:
        self.write(indent, f"match ({self.value(1)}, {self.value(0)}):")
        patterns = ["(0, _)", "(int(a), 1 | 2)", "(b, c) if b == c", "(a, *_)", "[1, b]"]
        for pattern in self.dice.sample(patterns, 2):
            self.write(indent + 1, f"case {pattern}:")
            self.block(indent + 2, depth - 1, loops)

    def write_function(self, indent: int, depth: int, loops: int) -> None:
        name, outer, outer_kind = self.fresh("f"), list(self.functions), self.is_generator
        self.is_generator = self.dice.random() < 0.4
        own = self.dice.random() < 0.5
        self.write(indent, f"def {name}(x=1, *rest, k=2):")
        self.write(indent + 1, "a, b, c = x, 1, k" if own else "nonlocal a, b, c")
        self.write(indent + 1, "yield a" if self.is_generator else f"c = {self.value(0)}")
        self.block(indent + 1, min(depth - 1, 1), 0)
        self.write(indent + 1, f"return {self.value(1)}")
        self.functions, kind = [*outer, (name, self.is_generator)], self.is_generator
        self.is_generator = outer_kind
        self.write(indent, f"note({name if kind else self.call(1)!s} is None)")


def program(seed: int) -> str:
    writer = Writer(seed)
    writer.write(0, HEAD)
    writer.write(0, "def main():")
    writer.write(1, "a, b, c = 1, 2, 3")
    for _ in range(6):
        writer.statement(1, 3, 0)
    writer.write(1, "return a, b, c")
    return "\n".join(writer.lines)
