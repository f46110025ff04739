"""Indices as text, in Python's syntax, and back.

    Text := Term + Term ... | Term - Term ...    outer axes first: by falling coefficient; a number last
    Term := [size*] Atom | size                  Atom := NAME | (Text)//size | (Text)%size | Data, as its owner says

In: an `Index`. Out: `show_index`: its text; who prints it for another language says how what is no variable is spelt
(its divisions); the order of terms is one for all. `read_index`: the index that a parsed Python expression spells, term
by term as it stands: nothing simplifies, so what is printed reads back as it was.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TypeAlias

from compiler_core.errors import GraphError
from compiler_core.meta import Size
from compiler_core.symbolic.index import Atom, Axis, Data, Div, Index, Mod, Scalar, Variable

Spell: TypeAlias = Callable[[Data | Div | Mod, Size], str]  # of an atom with its coefficient
Name: TypeAlias = Callable[[Variable], str]


def name_of(variable: Variable) -> str:
    return variable.name


def show_index(index: Index, spell: Spell | None = None, name: Name = name_of) -> str:
    """`128*i0 + i1`, `(i0 + 1)//4`, `i0%3`. spell: of atoms that are no variables; a factor, unless it is 1."""
    text = ""
    for part in _parts(index, spell, name):
        if not text:
            text = part
        else:
            text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
    return text


def _parts(index: Index, spell: Spell | None, name: Name) -> Iterator[str]:
    terms = [(c, _kind(atom), _text(atom, c, spell, name)) for atom, c in index.terms.items()]
    for c, _, text in sorted(terms, key=_place) if len(terms) > 1 else terms:
        yield text if c == 1 else f"-{text}" if c == -1 else f"{c}*{text}"
    if index.const or not terms:
        yield str(index.const)


def _place(term: tuple[Size, int, str]) -> tuple[int, int, int, str]:
    c, kind, text = term
    return -abs(c), c < 0, kind, text


def _kind(atom: Atom) -> int:
    return 0 if isinstance(atom, Axis | Scalar) else 1 if isinstance(atom, Div) else 2


def _text(atom: Atom, coefficient: Size, spell: Spell | None, name: Name) -> str:
    if isinstance(atom, Axis | Scalar):
        return name(atom)
    if spell is not None:
        return spell(atom, coefficient)
    return in_python(atom, show_index(atom.arg, None, name), coefficient) if isinstance(atom, Div | Mod) else str(atom)


def in_python(atom: Div | Mod, dividend: str, coefficient: Size) -> str:
    """A quotient or remainder."""
    text = f"{dividend if dividend.isidentifier() else f'({dividend})'}{'//' if isinstance(atom, Div) else '%'}{atom.n}"
    return text if coefficient == 1 else f"({text})"


def read_index(tree: ast.expr, atom: Callable[[ast.Name | ast.Call], Atom]) -> Index:
    """The index that a parsed Python expression spells. atom: of a name or call. Raises GraphError for others."""
    match tree:
        case ast.Constant(value=int(value)):
            return Index({}, value)
        case ast.Name() | ast.Call():
            return Index({atom(tree): 1}, 0)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return read_index(operand, atom) * -1
        case ast.BinOp(left=left, op=op, right=right):
            return _read_operation(tree, read_index(left, atom), op, read_index(right, atom))
    raise not_an_index(tree)


def _read_operation(tree: ast.expr, left: Index, op: ast.operator, right: Index) -> Index:
    match op:
        case ast.Add():
            return _joined(left, right)
        case ast.Sub():
            return _joined(left, right * -1)
        case ast.Mult() if left.is_const:
            return right * left
        case ast.FloorDiv() if right.is_const and right.const > 0:
            return Index({Div(left, right.const): 1}, 0)
        case ast.Mod() if right.is_const and right.const > 0:
            return Index({Mod(left, right.const): 1}, 0)
    raise not_an_index(tree)


def _joined(left: Index, right: Index) -> Index:
    terms = dict(left.terms)
    for atom, c in right.terms.items():
        terms[atom] = terms.get(atom, 0) + c
    return Index({atom: c for atom, c in terms.items() if c}, left.const + right.const)


def not_an_index(tree: ast.expr) -> GraphError:
    text = f"{ast.unparse(tree)!r} is not an index expression"
    return GraphError(text, expected="+ - * // % over names and integers")
