"""Text -> Graph: the inverse of `print.py`, by recursive descent over a token list.

In: text as `print_graph` writes it (the grammar stands at the head of `ir.py`; blank lines and `//` lines are
skipped). Out: a Graph whose text is the input's; sizes that the call decides are symbols of which no hint is known.
Errors: GraphError with the line of the text.
Invariant: every call's meta is written in the text and taken from it; `verify` re-derives it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from compiler_core import dtype as dtypes
from compiler_core.dtype import DType
from compiler_core.errors import DTypeError, GraphError
from compiler_core.graph.ir import Call, Constant, Graph, Node, Placeholder
from compiler_core.graph.print import literal_value, read_literal
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS
from compiler_core.symbolic.expression import SizeSymbol, of_factor
from compiler_core.symbolic.size import Sym, SymOrInt
from compiler_core.symbolic.size_text import read_declarations, read_sum

TOKEN = re.compile(
    r"""\s*(?:
      (?P<location>\#[ ].*)
    | (?P<name>%\w+)
    | (?P<base64>base64'[A-Za-z0-9+/=]*')
    | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<number>-?(?:inf|nan|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
        (?:[+-](?:inf|nan|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)j)?(?!\w))
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>//|==|<=|[()\[\]{},:=<+*%-])
    )""",
    re.VERBOSE,
)
WORDS: dict[str, Any] = {"True": True, "False": False, "None": None}


def parse_graph(text: str) -> Graph:
    """The graph that `text` spells. Raises GraphError where it does not parse, naming the line."""
    import compiler_core.ops.prims  # noqa: F401  registers the ops that the text names

    return _Parser(text).graph()


def parse_attrs(text: str) -> dict[str, Any]:
    """`key=value ...` as `print_call` writes attributes."""
    return _Parser(text).attrs()


def parse_size(text: str, symbols: Iterable[SizeSymbol]) -> SymOrInt:
    """The size that `text` spells, of these symbols."""
    parser = _Parser(text)
    parser.symbols = {symbol.name: of_factor(symbol) for symbol in symbols}
    return parser.size()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = list(_tokenise(text))
        self.position = 0
        self.nodes: dict[str, Node] = {}
        self.symbols: dict[str, Sym] = {}

    # -- tokens

    def peek(self) -> str:
        return self.tokens[self.position][1] if self.position < len(self.tokens) else "end of text"

    def kind(self) -> str:
        return self.tokens[self.position][0] if self.position < len(self.tokens) else "end"

    def next(self, kind: str = "") -> str:
        if kind and self.kind() != kind:
            raise self.error(f"a {kind}")
        token = self.peek()
        self.position += 1
        return token

    def expect(self, text: str) -> None:
        if self.peek() != text:
            raise self.error(repr(text))
        self.position += 1

    def accept(self, text: str) -> bool:
        found = self.peek() == text
        self.position += found
        return found

    def error(self, expected: str) -> GraphError:
        line = self.tokens[min(self.position, len(self.tokens) - 1)][2] if self.tokens else 1
        return GraphError("graph text does not parse", where=f"line {line}", expected=expected, got=repr(self.peek()))

    # -- grammar

    def graph(self) -> Graph:
        self.symbols = read_declarations(self)
        self.expect("graph")
        name = self.next("word")
        self.expect("(")
        while not self.accept(")"):
            self.placeholder()
            self.accept(",")
        device = self.device()
        self.expect("{")
        while self.kind() == "name":
            self.statement()
        waits, behind = self.events("wait", "inputs")
        signals, _ = self.events("signal", "outputs")
        hosted = self.places("outputs") if self.accept("host") else ()
        self.expect("return")
        outputs = []
        while not self.accept("}"):
            outputs.append(self.operand())
            self.accept(",")
        if self.kind() != "end":
            raise self.error("end of text")
        behind = behind if any(signal >= 0 for signal in behind) else ()
        return Graph(name, tuple(self.nodes.values()), tuple(outputs), signals, waits, device, behind, hosted)

    def device(self) -> str:
        """`on cuda:0`, or nothing: the CPU."""
        if not self.accept("on"):
            return "cpu"
        kind = self.next("word")
        return f"{kind}:{self.next('number')}" if self.accept(":") else kind

    def events(self, word: str, what: str) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """Lines `word K: what 0, 1, ...`, K counted from 0; and behind which each is, -1 for none."""
        found: list[tuple[int, ...]] = []
        behind: list[int] = []
        while self.accept(word):
            self.expect(str(len(found)))
            behind.append(int(self.next("number")) if self.accept("behind") else -1)
            found.append(self.places(what))
        return tuple(found), tuple(behind)

    def places(self, what: str) -> tuple[int, ...]:
        """`: what 0, 1, ...`."""
        self.expect(":")
        self.expect(what)
        places = []
        while self.kind() == "number":
            places.append(int(self.next("number")))
            self.accept(",")
        return tuple(places)

    def placeholder(self) -> None:
        name, meta = self.declaration()
        role, source = self.next("word"), literal_value(self.next("string"))
        self.nodes[name] = Placeholder(name, meta, role, source)

    def statement(self) -> None:
        name, meta = self.declaration()
        self.expect("=")
        op_name = self.next("word")
        if op_name == "constant":
            self.nodes[name] = Constant(name, meta, array=self.array(meta))
            return
        if op_name not in OPS:
            self.position -= 1
            raise self.error("the name of an op")
        self.expect("(")
        args = []
        while not self.accept(")"):
            args.append(self.operand())
            self.accept(",")
        attrs = self.attrs()
        location = self.next()[2:] if self.kind() == "location" else ""
        self.nodes[name] = Call(name, meta, op=OPS[op_name], args=tuple(args), attrs=attrs, location=location)

    def declaration(self) -> tuple[str, TensorMeta]:
        name = self.next("name")[1:]
        if name in self.nodes:
            raise self.error(f"a new name; %{name} is taken")
        self.expect(":")
        element = self.dtype(self.next("word"))
        self.expect("[")
        shape = []
        while not self.accept("]"):
            shape.append(self.size())
            self.accept(",")
        return name, TensorMeta(tuple(shape), element)  # type: ignore[arg-type]  # of which the sizes may be symbols

    def size(self) -> SymOrInt:
        size = self.attr()
        if isinstance(size, Sym) or type(size) is int:
            return size
        raise self.error("a size")

    def operand(self) -> Node:
        name = self.next("name")[1:]
        if name not in self.nodes:
            self.position -= 1
            raise self.error("a value defined before")
        return self.nodes[name]

    def attrs(self) -> dict[str, Any]:
        found = {}
        while self.kind() == "word" and self.peek() not in ("return", "wait", "signal", "host"):
            key = self.next("word")
            self.expect("=")
            found[key] = self.attr()
        return found

    def attr(self) -> Any:
        return read_sum(self, self.value)

    def value(self) -> Any:
        """A tuple, a size in parentheses, a literal or a word."""
        if self.accept("("):
            items, comma = [], True
            while not self.accept(")"):
                items.append(self.attr())
                comma = self.accept(",")
            return tuple(items) if comma or len(items) != 1 else items[0]
        if self.kind() in ("number", "string"):
            return literal_value(self.next())
        word = self.next("word")
        if word in self.symbols:
            return self.symbols[word]
        return WORDS[word] if word in WORDS else self.dtype(word)

    def array(self, meta: TensorMeta) -> np.ndarray[Any, np.dtype[Any]]:
        if self.kind() == "base64":
            data = base64.b64decode(self.next()[len("base64'") : -1])
            return np.frombuffer(data, meta.dtype.numpy).reshape(meta.shape)
        return read_literal(self.literal(), meta.dtype.numpy).reshape(meta.shape)

    def literal(self) -> Any:
        if self.accept("["):
            items = []
            while not self.accept("]"):
                items.append(self.literal())
                self.accept(",")
            return items
        return WORDS[self.next()] if self.peek() in WORDS else literal_value(self.next("number"))

    def dtype(self, word: str) -> DType:
        try:
            return dtypes.by_name(word)
        except DTypeError:
            self.position -= 1
            raise self.error("a dtype") from None


def _tokenise(text: str) -> list[tuple[str, str, int]]:
    """(kind, text, line number) of every token."""
    tokens = []
    for number, line in enumerate(text.splitlines(), 1):
        line, position = line.rstrip(), 0
        while position < len(line) and not line.lstrip().startswith("//"):
            match = TOKEN.match(line, position)
            if match is None:
                raise GraphError("graph text does not parse", where=f"line {number}", got=repr(line[position:]))
            tokens.append((str(match.lastgroup), match.group().strip(), number))
            position = match.end()
    return tokens
