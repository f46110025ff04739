"""What the machine asks for: everything an instruction does beside moving values between variables and stack.

In: real Python objects. Out: the result, or `Enter(frame)` where Python code has to run for it. Methods raise what the
program would see, wrapped by nobody: the machine turns an exception raised here into the program's. `Break` alone
leaves the machine: the instruction cannot be done by these semantics, and the frame is put back to before it.
`native.NativeSemantics` does all of this as CPython; capture's semantics notes sources, guards and effects beside.
"""

from __future__ import annotations

from typing import Any, Protocol

from compiler_core.bytecode.frame import Frame

STOP = object()  # what `advance` answers when an iterator is exhausted


class Break(BaseException):
    """An instruction that cannot be done here. Not an Exception: no handler of the program may see it.

    looks: whether it may look at all variables of all frames, those too that the program does not read any more.
    """

    def __init__(self, reason: str, remedy: str = "", looks: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.looks = reason, remedy, looks


class Semantics(Protocol):
    """One method for each kind of access. Every `Any` result may be an `Enter` unless it says otherwise."""

    # variables
    def load_fast(self, frame: Frame, slot: int) -> Any: ...  # never Enter; the slot is bound
    def load_cell(self, frame: Frame, slot: int) -> Any: ...  # contents of the CellType in locals[slot]; never Enter
    def store_cell(self, frame: Frame, slot: int, value: Any) -> None: ...
    def delete_cell(self, frame: Frame, slot: int) -> None: ...
    def load_global(self, frame: Frame, name: str) -> Any: ...  # globals, then builtins; never Enter
    def store_global(self, frame: Frame, name: str, value: Any) -> None: ...
    def delete_global(self, frame: Frame, name: str) -> None: ...
    def load_name(self, frame: Frame, name: str) -> Any: ...  # namespace, globals, builtins
    def store_name(self, frame: Frame, name: str, value: Any) -> None: ...
    def delete_name(self, frame: Frame, name: str) -> None: ...

    # attributes and items
    def load_attr(self, owner: Any, name: str) -> Any: ...
    def load_super_attr(self, cls: type, self_: Any, name: str) -> Any: ...  # super(cls, self_).name
    def store_attr(self, owner: Any, name: str, value: Any) -> Any: ...  # the result is dropped
    def delete_attr(self, owner: Any, name: str) -> Any: ...
    def get_item(self, owner: Any, key: Any) -> Any: ...
    def store_item(self, owner: Any, key: Any, value: Any) -> Any: ...
    def delete_item(self, owner: Any, key: Any) -> Any: ...

    # operators; `op` is a symbol: "+", "-", "*", "/", "//", "%", "@", "**", "<<", ">>", "&", "|", "^"
    def binary(self, op: str, left: Any, right: Any) -> Any: ...
    def in_place(self, op: str, left: Any, right: Any) -> Any: ...
    def unary(self, op: str, value: Any) -> Any: ...  # "-", "+", "~"
    def compare(self, op: str, left: Any, right: Any) -> Any: ...  # "<", "<=", "==", "!=", ">", ">="
    def contains(self, item: Any, container: Any) -> Any: ...  # a bool
    def is_same(self, left: Any, right: Any) -> bool: ...  # never Enter
    def truth(self, value: Any) -> Any: ...  # a bool

    # iteration
    def iterate(self, value: Any) -> Any: ...  # iter(value)
    def advance(self, iterator: Any) -> Any: ...  # next(iterator), or STOP
    def unpack(self, value: Any, count: int, after: int) -> Any: ...  # list of items; after >= 0: `a, *b, c = value`

    # calls
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def format(self, value: Any, conversion: str, spec: str) -> Any: ...  # a str; conversion "", "s", "r" or "a"
    def join(self, pieces: list[str]) -> str: ...  # the pieces of an f-string; never Enter
    def make_function(
        self, frame: Frame, code: Any, parts: dict[str, Any]
    ) -> Any: ...  # attributes such as __closure__
    def build_class(self, frame: Frame, body: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def import_name(self, frame: Frame, name: str, fromlist: Any, level: int) -> Any: ...
    def import_from(self, module: Any, name: str) -> Any: ...

    # containers under construction: [... for ...]; name: append, add or __setitem__
    def collect(self, target: Any, name: str, *values: Any) -> None: ...
    def as_key(self, value: Any) -> Any: ...  # what a new set or dict is given as a key; never Enter

    def as_tuple(self, items: list[Any]) -> tuple[Any, ...]: ...  # of a list under construction; never Enter

    # containers whose parts come from elsewhere: [*a], {**a}, (*a,)
    def extend(self, target: list[Any] | set[Any], values: Any) -> Any: ...
    def merge(self, target: dict[Any, Any], mapping: Any, call: Any) -> Any: ...  # call: f(**mapping): duplicates raise

    # context managers and exceptions
    def enter_with(self, manager: Any) -> Any: ...  # (exit function, result of __enter__)
    def chain(self, error: Any, cause: Any) -> None: ...  # before `raise error from cause`; never Enter
    def match_exception(self, error: Any, kinds: Any) -> bool: ...
    def match_mapping(self, value: Any) -> bool: ...
    def match_sequence(self, value: Any) -> bool: ...
    def match_keys(self, value: Any, keys: tuple[Any, ...]) -> Any: ...  # tuple of values, or None
    def match_class(self, value: Any, cls: Any, count: int, names: tuple[str, ...]) -> Any: ...  # tuple, or None
