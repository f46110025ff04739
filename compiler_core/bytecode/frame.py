"""A frame that the machine runs: code, variables, operand stack, where it is, and what it does with a call's result.

In: a function and its bound arguments. Out: `Frame`, which is plain data: it can be copied at any instruction, and run
on from there later. Values are real Python objects; `UNSET` stands for a variable that is not bound, `NULL` for the
empty slot that CPython's calls put on the stack.
Invariant: `next` is the index of the instruction to run next; while an instruction runs it is still that one's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from types import CodeType
from typing import Any

from compiler_core.records import dataclass


class Marker:
    """A value that no program can hold."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


UNSET = Marker("UNSET")
NULL = Marker("NULL")


@dataclass(slots=True, eq=False)
class Frame:
    """locals: fast variables, then cells and free variables (CellType objects), in CPython's order ("localsplus").

    namespace: where names of a class or module body live; None in a function. completion, pending: what to do with the
    result of the call that the current instruction made (a key of `completions.COMPLETIONS`, and the values it needs).
    handled: exceptions under handling, innermost last (`sys.exc_info`). generator: the object that this frame is the
    body of, if it is a generator's or a coroutine's. owner: free for the semantics (e.g. sources of variables).
    """

    code: CodeType
    globals: dict[str, Any]
    builtins: dict[str, Any]
    locals: list[Any]
    stack: list[Any] = field(default_factory=list)
    next: int = 0
    namespace: dict[str, Any] | None = None
    completion: str = ""
    pending: tuple[Any, ...] = ()
    handled: list[BaseException] = field(default_factory=list)
    keyword_names: tuple[str, ...] = ()  # KW_NAMES of 3.11 and 3.12
    generator: Any = None
    function: Callable[..., Any] | None = None
    owner: Any = None

    def copy(self) -> Frame:
        """The same state, with lists of its own."""
        return Frame(
            self.code,
            self.globals,
            self.builtins,
            list(self.locals),
            list(self.stack),
            self.next,
            self.namespace,
            self.completion,
            self.pending,
            list(self.handled),
            self.keyword_names,
            self.generator,
            self.function,
            self.owner,
        )

    def become(self, other: Frame) -> None:
        """Be in the state of another frame of the same code, with its lists."""
        for part in fields(self):
            setattr(self, part.name, getattr(other, part.name))


@dataclass(frozen=True, slots=True)
class Enter:
    """A semantics method's answer "run this frame: its result is mine".

    then: what becomes of the result, if it is not the answer itself: a key of COMPLETIONS. pending: its values.
    """

    frame: Frame
    then: str = ""
    pending: tuple[Any, ...] = ()
