"""Reading the pickle of a file: the restricted unpickler, which runs nothing that a file brings, and the full one.

In: pickle bytes, and a function from a storage's key to its bytes. Out: the object.
`WeightsUnpickler` is Python's own unpickler, less the opcodes that reach further: it looks names up in
`names.allowed()` and what the user added, calls and builds nothing else, and fills lists, dicts and sets alone.
Anything else raises WeightsOnlyError, which names it. `FullUnpickler` imports and calls what the file says: only for
files that are trusted.
"""

from __future__ import annotations

import importlib
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import IO, Any, ClassVar

from compiler_core.tensor.tensor import Tensor
from distcompile.errors import CheckpointError, WeightsOnlyError
from distcompile.nn.parameter import Parameter
from distcompile.nn.versions import Registry, Stamp
from distcompile.torch_format import names
from distcompile.torch_format.storages import Storage, StorageType

StorageOf = Callable[[StorageType, str, str, int], Storage]  # type, key, location, number of elements
_OPCODES = """
PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8
BYTEARRAY8 EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS
EMPTY_SET ADDITEMS FROZENSET GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE BINPERSID GLOBAL STACK_GLOBAL REDUCE
NEWOBJ BUILD
"""


def _persistent(storage_of: StorageOf, pid: Any) -> Storage:
    if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] not in ("storage", b"storage"):
        raise CheckpointError("the file names something outside of it that is no storage", got=repr(pid)[:80])
    _, kind, key, location, count = pid[:5]
    if not isinstance(kind, StorageType):
        raise CheckpointError("a storage of an unknown type", got=repr(kind))
    return storage_of(kind, str(key), str(location), int(count))


# of a whole module that we wrote: a counter, and dicts that bump it; neither does anything with what a file puts in it
_BOOKKEEPING = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in (Stamp, Registry)}


class WeightsUnpickler(pickle._Unpickler):
    """Reads tensors, containers and plain values."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, n)[0] for n in _OPCODES.split())
    }

    def __init__(self, file: IO[bytes], storage_of: StorageOf, encoding: str) -> None:
        super().__init__(file, encoding=encoding)
        self.storage_of = storage_of
        self.known = names.allowed() | names.added() | _BOOKKEEPING
        self.callables = {id(thing) for thing in self.known.values() if callable(thing)}
        self.added = tuple(thing for thing in names.added().values() if isinstance(thing, type)) + (Stamp, Registry)

    def persistent_load(self, pid: Any) -> Storage:
        return _persistent(self.storage_of, pid)

    def find_class(self, module: str, name: str) -> Any:
        full = f"{'builtins' if module == '__builtin__' else module}.{name}"
        found = _found(module, name)  # what the user added, under torch's name of it
        if found is not None and any(found is thing for thing in names.added().values()):
            return found
        now = f"{names.moved(module)}.{name}"
        if full not in self.known and now in self.known:
            return self.known[now]
        if full not in self.known:
            raise WeightsOnlyError(
                f"Weights only load failed: Unsupported global: GLOBAL {full} was not an allowed global by default",
                remedy=f"if you trust it, torch.serialization.add_safe_globals([{full}]), or the block "
                f"torch.serialization.safe_globals([{full}]); if you trust the whole file, load(weights_only=False)",
            )
        return self.known[full]

    def _check_callable(self, function: Any, what: str) -> None:
        if id(function) not in self.callables:
            raise WeightsOnlyError(f"Weights only load failed: the file {what} {function!r}",
                                   remedy="load(weights_only=False), if you trust it")  # fmt: skip

    def load_reduce(self) -> None:
        self._check_callable(self.stack[-2], "calls")  # type: ignore[attr-defined]
        pickle._Unpickler.dispatch[pickle.REDUCE[0]](self)  # type: ignore[arg-type]

    def load_newobj(self) -> None:
        self._check_callable(self.stack[-2], "makes an object of")  # type: ignore[attr-defined]
        pickle._Unpickler.dispatch[pickle.NEWOBJ[0]](self)  # type: ignore[arg-type]

    def load_build(self) -> None:
        state, target = self.stack[-1], self.stack[-2]  # type: ignore[attr-defined]
        if type(target) in (OrderedDict, Tensor, Parameter) and isinstance(state, dict):
            self.stack.pop()  # type: ignore[attr-defined]
            target.__dict__.update(state)
            return
        if type(target) not in self.added:
            raise WeightsOnlyError(f"Weights only load failed: the file sets the state of a {type(target).__name__}",
                                   remedy="torch.serialization.add_safe_globals, if you trust it")  # fmt: skip
        pickle._Unpickler.dispatch[pickle.BUILD[0]](self)  # type: ignore[arg-type]

    def _filling(self, code: bytes, kinds: tuple[type, ...], above: bool) -> None:
        """Run an opcode that fills a container, after a look at what that is. above: its items follow a mark."""
        stack = self.metastack[-1] if above else self.stack[: -1 if code == pickle.APPEND else -2]  # type: ignore[attr-defined]
        if not stack or not isinstance(stack[-1], (*kinds, *self.added)):
            raise WeightsOnlyError("Weights only load failed: the file fills something that is no container")
        pickle._Unpickler.dispatch[code[0]](self)  # type: ignore[arg-type]


def _filler(code: bytes, kinds: tuple[type, ...], above: bool) -> Callable[[Any], None]:
    return lambda self: self._filling(code, kinds, above)


_RESTRICTED: dict[int, Any] = {
    pickle.REDUCE[0]: WeightsUnpickler.load_reduce,
    pickle.NEWOBJ[0]: WeightsUnpickler.load_newobj,
    pickle.BUILD[0]: WeightsUnpickler.load_build,
    pickle.APPEND[0]: _filler(pickle.APPEND, (list,), False),
    pickle.APPENDS[0]: _filler(pickle.APPENDS, (list,), True),
    pickle.SETITEM[0]: _filler(pickle.SETITEM, (dict, OrderedDict, Counter), False),
    pickle.SETITEMS[0]: _filler(pickle.SETITEMS, (dict, OrderedDict, Counter), True),
    pickle.ADDITEMS[0]: _filler(pickle.ADDITEMS, (set,), True),
}
WeightsUnpickler.dispatch |= _RESTRICTED


class FullUnpickler(pickle.Unpickler):
    """Reads whatever was pickled: imports and calls what the file says. Names of torch are looked up here."""

    def __init__(self, file: IO[bytes], storage_of: StorageOf, encoding: str) -> None:
        super().__init__(file, encoding=encoding)
        self.storage_of = storage_of

    def persistent_load(self, pid: Any) -> Storage:
        return _persistent(self.storage_of, pid)

    def find_class(self, module: str, name: str) -> Any:
        known = names.allowed() | names.added()
        if f"{module}.{name}" in known:
            return known[f"{module}.{name}"]
        if f"{module}.".startswith("torch."):
            return _ours(module, name)
        try:
            return super().find_class(module, name)
        except ModuleNotFoundError:
            if names.moved(module) == module:
                raise
            return super().find_class(names.moved(module), name)


_ELSEWHERE = {  # module of torch -> where its names are
    "torch.nn.modules": "torch.nn",
    "torch._C._nn": "torch.nn.functional",
    "torch._C": "torch",
}
_RENAMED = {"NonDynamicallyQuantizableLinear": "Linear"}  # of torch's own, within a layer


def _ours(module: str, name: str) -> Any:
    """What distcompile has under a name of torch: a layer's attributes are torch's, too (`Module.__setstate__`).

    Raises CheckpointError where it has none, and for an optimizer, whose insides are torch's.
    """
    found = _found(module, name)
    if found is None or module.startswith("torch.optim."):
        raise CheckpointError(
            f"the file holds a {module}.{name} of torch itself, whole, not its tensors",
            remedy="in torch, save its state_dict()",
        )
    return found


def _found(module: str, name: str) -> Any:
    """The same; None where there is none."""
    if not f"{module}.".startswith("torch."):
        return None
    place = next((ours for theirs, ours in _ELSEWHERE.items() if f"{module}.".startswith(f"{theirs}.")), module)
    try:
        found: Any = importlib.import_module("distcompile" + place.removeprefix("torch"))
        for part in _RENAMED.get(name, name).split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found
