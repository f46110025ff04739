"""Every opcode of this Python is run by a program here or declared, and bodies of modules and classes do as CPython's.

Captured code leaves the bodies of classes to CPython; here the machine runs them (`__build_class__`), with a namespace.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
from typing import Any

import pytest

import distcompile
from compiler_core.bytecode import kept, program, versions
from compiler_core.bytecode.frame import UNSET, Frame
from compiler_core.bytecode.instructions import variable_names
from compiler_core.bytecode.intrinsics import INTRINSICS
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from tests.compiler_core.bytecode.test_bytecode_programs import PROGRAMS, oracle

BODIES = """
x: int = 1
y = [x + 1, len("abc")]
del x
try:
    x
except NameError as error:
    text = str(error)
try:
    del x
except NameError as error:
    deleted = str(error)
---
class A:
    '''words'''
    a: int = 1
    b: str
    c = [a, *(q for q in range(2))]
    del a
    try:
        a
    except NameError as error:
        text = str(error)
    try:
        del a
    except NameError as error:
        deleted = str(error)

    def method(self):
        return __class__, super().__repr__()

    for k in range(3):
        locals()[f"k{k}"] = k
found = sorted(vars(A)), A.__annotations__, A.c, A.text, A.deleted, A.k2, A().method()[0] is A
---
def f(n):
    class B:
        first = n
        locals()["n"] = 7
        second = n

        def method(self):
            return n

        class C:
            m = n

    return B.first, B.second, B().method(), B.C.m
found = f(3)
---
class Meta(type):
    @classmethod
    def __prepare__(cls, name, bases, **kwargs):
        return {"given": kwargs}

    def __new__(meta, name, bases, names, **kwargs):
        return super().__new__(meta, name, bases, names)

    def __init__(cls, name, bases, names, **kwargs):
        pass

class D(metaclass=Meta, k=1):
    seen = given["k"]
    given = 2
found = D.seen, D.given
---
class E:
    missing
---
class F:
    try:
        raise ValueError(len([1]))
    except ValueError as error:
        n = error.args
    with open(__file__) if False else __import__("contextlib").nullcontext(4) as four:
        pass
found = F.n, F.four
"""
ONLY_312 = """
k = 1

class A:
    k = 5

    def pair[S, *T, **P](self, x: S, y: k = k + 1) -> k:
        return x, y

def g(n):
    class B[T](dict):
        locals()["n"] = 3

        def pair[U](self, u: U, v: n = n) -> n:
            return u, v, n

    return B().pair(1), B.pair.__annotations__["return"], len(B.__type_params__)

found = A().pair(1), A.pair.__annotations__["y"], [str(t) for t in A.pair.__type_params__], g(7)
"""
LAZY_TYPES = """
def step(x):
    type Alias = Later  # never asked for
    def add[T: Later](x: T) -> T:
        return x + 1
    return add(x) * 2
"""


def enter(code: types.CodeType, names: dict[str, Any], namespace: Any, function: Any = None) -> Any:
    """Run a body by the machine."""
    variables = [UNSET] * len(variable_names(code))
    frame = Frame(code, names, names["__builtins__"], variables, function=function, namespace=namespace)
    return Machine(NativeSemantics(inline=True)).run([frame])


def build_class(body: Any, name: str, *bases: Any, **kwargs: Any) -> Any:
    """`__build_class__` by the machine."""
    resolved = types.resolve_bases(bases)
    meta, namespace, kwargs = types.prepare_class(name, resolved, kwargs)
    enter(body.__code__, body.__globals__, namespace, body)
    if resolved is not bases:
        namespace["__orig_bases__"] = bases
    return meta(name, resolved, namespace, **kwargs)


def ending(source: str, by_machine: bool) -> Any:
    """What a module leaves, or what it raises."""
    found: dict[str, Any] = (
        {**vars(builtins), "__build_class__": functools.partial(build_class)} if by_machine else vars(builtins)
    )
    names = {"__builtins__": found, "__name__": "made", "__file__": __file__}
    code = compile(source, "<body>", "exec", dont_inherit=True)
    try:
        if by_machine:
            enter(code, names, names)
        else:
            exec(code, names)
    except Exception as error:  # noqa: BLE001 (whichever it is, it must be the same)
        return type(error), str(error)
    return {k: v for k, v in names.items() if not isinstance(v, type | types.FunctionType) and k != "__builtins__"}


def bodies() -> list[str]:
    return [*BODIES.split("---\n"), *([ONLY_312] if sys.version_info >= (3, 12) else [])]


@pytest.mark.parametrize("source", bodies())
def test_bodies_of_modules_and_classes(source: str) -> None:
    expected = ending(source, by_machine=False)
    assert ("missing" in source) is (expected == (NameError, "name 'missing' is not defined"))
    assert ending(source, by_machine=True) == expected


def test_every_opcode_that_is_not_declared_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: set[str] = set()
    make = program.step

    def step(code: types.CodeType, instructions: Any, index: int) -> Any:
        ran.add(instructions[index].opname)
        return make(code, instructions, index)

    monkeypatch.setattr(program, "step", step)
    monkeypatch.setattr(program, "programs", kept.table())
    for function in PROGRAMS:
        oracle.outcome(lambda function=function: oracle.interpret(function))
    for source in bodies():
        ending(source, by_machine=True)
    declared = {*versions.NOTHING, *versions.NOT_REACHED, *versions.UNSUPPORTED}
    assert set(dis.opmap) - declared - ran == set()
    assert not ran & {*versions.NOT_REACHED, *versions.UNSUPPORTED}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="they came with 3.12")
def test_every_intrinsic_is_handled_or_declared() -> None:
    named = {*dis._intrinsic_1_descs, *dis._intrinsic_2_descs}
    assert named == {*INTRINSICS, *versions.UNSUPPORTED_INTRINSICS} & named


@pytest.mark.skipif(sys.version_info < (3, 12), reason="they came with 3.12")
def test_types_that_are_evaluated_later_are_left_to_cpython() -> None:
    names: dict[str, Any] = {}
    exec(compile(LAZY_TYPES, "<types>", "exec", dont_inherit=True), names)
    compiled = distcompile.compile(names["step"], backend="eager")
    with pytest.warns(Warning, match="evaluated when it is asked for"):
        assert compiled(distcompile.ones(2)).tolist() == [4.0, 4.0]
    assert compiled(distcompile.zeros(2)).tolist() == [2.0, 2.0]
