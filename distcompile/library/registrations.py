"""torch.library's registrations by name: `Library`, `define`, `impl`, `register_kernel`, `register_fake`, ...

In: operators or names of them, keys of torch's dispatcher or types of devices, functions. Out: what operators.py keeps.
What a `Library` registered is forgotten with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from distcompile.errors import ArgumentError, NotSupportedError, OperatorError
from distcompile.library import operators
from distcompile.library.calls import call_defined
from distcompile.library.operators import ALL, FAKE, OperatorGradient, OpOverload, key_of
from distcompile.library.schema import parse

Function = Callable[..., Any]
_defining: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()  # by namespace: kind "DEF"


def fallthrough_kernel() -> None:
    """A kernel that stands for none."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """Registrations for operators of one namespace, kept for as long as this is. kind: DEF, IMPL or FRAGMENT."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ArgumentError(f"Unsupported kind: {kind}", expected="DEF, IMPL or FRAGMENT")
        if ns == "prim" and kind != "IMPL":
            raise ArgumentError(f"{ns} is a reserved namespace", remedy="create a Library with another name")
        if kind == "DEF" and ns in _defining:
            raise OperatorError(f"there is a Library for {ns} already", remedy="define all in it, or use FRAGMENT")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._undo: list[Callable[[], object]] = []
        self._destroy = weakref.finalize(self, _undo_all, self._undo)
        if kind == "DEF":
            _defining[ns] = self

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """A new operator, "name.overload(Tensor x) -> Tensor". Gives its name, without the overload's."""
        if self.kind == "IMPL":
            raise OperatorError(f"a Library of kind IMPL cannot define {schema}", expected="DEF or FRAGMENT")
        made = operators.define(parse(schema, self.ns), call_defined)
        self._undo.append(lambda: operators.remove(made))
        return made._opname

    def impl(
        self,
        op_name: str | OpOverload,
        fn: Function,
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """`fn` runs it for a key of torch's dispatcher: "CPU", "Meta", "Autograd", "CompositeImplicitAutograd"."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if fn is fallthrough_kernel:
            return
        name = _name(op_name)
        name = name if "::" in name else f"{self.ns}::{name}"
        key = key_of(dispatch_key or self.dispatch_key)
        if key in operators.registered(name).kernels and not allow_override:
            raise OperatorError(f"{name} has a kernel for {key} already", remedy="allow_override=True")
        _put(name, key, (lambda *args, **kwargs: fn(None, *args, **kwargs)) if with_keyset else fn, self)

    def _register_fake(self, op_name: str, fn: Function, _stacklevel: int = 1, *, allow_override: bool = True) -> None:
        self.impl(op_name, fn, "Meta", allow_override=allow_override)


def _undo_all(undo: list[Callable[[], object]]) -> None:
    while undo:
        undo.pop()()


@contextmanager
def _scoped_library(ns: str, kind: str, dispatch_key: str = "") -> Iterator[Library]:
    made = Library(ns, kind, dispatch_key)
    try:
        yield made
    finally:
        made._destroy()


def _put(op: Any, key: str, fn: Function, lib: Library | None) -> None:
    kernels = operators.registered(_name(op)).kernels
    kernels[key] = fn
    if lib is not None:
        lib._undo.append(lambda: kernels.pop(key, None))


def _name(op: Any) -> str:
    """Of an OpOverload, of a CustomOpDef, which has one, or as it is."""
    op = getattr(op, "_opoverload", op)
    if not isinstance(op, str | OpOverload):
        raise ArgumentError(f"got unexpected type for op: {type(op)}")
    return op if isinstance(op, str) else op.name()


def split_name(name: str) -> tuple[str, str]:
    """(the namespace, the rest) of "ns::name"."""
    namespace, colons, opname = name.partition("::")
    if not colons or "::" in opname:
        raise ArgumentError(f"{name!r} is no operator's name", expected="namespace::name")
    return namespace, opname


def _each(types: str | Iterable[str]) -> list[str]:
    return [types] if isinstance(types, str) else list(types)


def define(
    qualname: str | Library, schema: str, alias_analysis: str = "", *, lib: Library | None = None, tags: Any = ()
) -> Any:
    """A new operator: `define("ns::name", "(Tensor x) -> Tensor")`. `define(lib, "name(...) -> ...")`: a decorator."""
    if isinstance(qualname, Library):
        qualname.define(schema, alias_analysis)
        return impl(qualname, schema.partition("(")[0].strip(), "")
    if not isinstance(qualname, str):
        raise ArgumentError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    namespace, name = split_name(qualname)
    if lib is not None:
        lib.define(name + schema)
    else:
        operators.define(parse(name + schema, namespace), call_defined)


def impl(qualname: str | Library, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """`func` runs an operator on devices of these types; or `impl(lib, name, key)`. Without `func`, a decorator."""
    if isinstance(qualname, Library):
        into, name, keys, func = qualname, types, [func or ""], None
    else:
        into, name, keys = lib or Library(split_name(qualname)[0], "IMPL"), qualname, _each(types)
        if lib is None:
            into._destroy.detach()  # for good

    def register(fn: Function) -> Function:
        for key in keys:
            into.impl(name, fn, key)
        return fn

    return register if func is None else register(func)


# ---- one kind of registration each; the methods of a CustomOpDef, too


def register_kernel(op: Any, device_types: Any, func: Function | None = None, /, *, lib: Any = None) -> Any:
    """`func` is the kernel of an operator on these devices; on all for None. Without it, a decorator."""

    def register(fn: Function) -> Function:
        for key in [ALL] if device_types is None else _each(device_types):
            _put(op, key, fn, lib)
        return fn

    return register if func is None else register(func)


def register_fake(
    op: Any, func: Function | None = None, /, *, lib: Any = None, _stacklevel: int = 1, allow_override: bool = True
) -> Any:
    """`func` tells an operator's results on the device "meta". Without it, a decorator."""

    def register(fn: Function) -> Function:
        _put(op, FAKE, fn, lib)
        return fn

    return register if func is None else register(func)


def register_autograd(
    op: Any, backward: Function, /, *, setup_context: Function | None = None, lib: Any = None
) -> None:
    """The gradient of an operator: see `operators.Gradient`. Raises OperatorError for one that changes arguments."""
    found = operators.find(_name(op))
    if found._schema.is_mutable:
        raise OperatorError(
            f"Cannot register autograd formula for non-functional operator {found} with schema {found._schema}",
            remedy="register it for an operator that gives new tensors back",
        )
    found.registered.gradient = OperatorGradient(backward, setup_context)
    if lib is not None:
        lib._undo.append(lambda: setattr(found.registered, "gradient", None))


def register_vmap(op: Any, func: Function | None = None, /, *, lib: Any = None) -> Any:
    """A rule for vmap: func(info, in_dims, *inputs) -> (results, out_dims). Without one the kernel is mapped as any
    code."""
    if func is None:
        return lambda fn: register_vmap(op, fn, lib=lib)
    operators.registered(_name(op)).vmap = func
    return func


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Where autocast acts on such a device, the operator's inputs are cast to this dtype."""
    if device_type not in ("cpu", "cuda"):
        raise ArgumentError(f"Unknown device type: {device_type}")
    operators.registered(_name(op)).autocast[device_type] = cast_inputs


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Any = None) -> NoReturn:
    """`__torch_dispatch__` is not asked here."""
    raise NotSupportedError("__torch_dispatch__ is not asked", remedy="use __torch_function__")
