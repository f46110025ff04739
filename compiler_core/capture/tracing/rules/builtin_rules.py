"""Rules for builtins whose answer depends on more than a native call sees, or that call the program's code.

In: the parts and a call's arguments. Out: its result, or Enter of a polyfill. `RULES`: callable -> rule.
"""

from __future__ import annotations

import collections
import copy
import importlib
import inspect
import operator
import sys
import weakref
from abc import ABCMeta
from collections.abc import Callable
from types import FunctionType, MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.native import advance_generator
from compiler_core.bytecode.reflection import zero_argument_super
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.arrays import is_opaque
from compiler_core.capture.guards.kinds import CONTAINERS, is_constant
from compiler_core.capture.guards.module_protocol import unwrapped
from compiler_core.capture.guards.sources import Attribute, Bound, CellContents, Item, Raw, Variable
from compiler_core.capture.numbers.functions import converted
from compiler_core.capture.numbers.reads import read_later
from compiler_core.capture.numbers.symbols import PLAIN, is_symbol, plain_of
from compiler_core.capture.outside import Lazy
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.containers import drained, hashable, is_interpreted
from compiler_core.capture.tracing.iteration import RunBetween
from compiler_core.capture.tracing.operators import BINARY, COMPARE, IN_PLACE, UNARY, Operators
from compiler_core.capture.tracing.rules import autograd_rules, copying, held_rules, iterable_rules, overriding
from compiler_core.capture.tracing.rules.library_rules import HEAPS
from compiler_core.capture.tracing.rules.pure_calls import call_pure
from compiler_core.config import config
from compiler_core.location import is_ours
from compiler_core.numpy_trace.array import TracedArray, numpy_of
from compiler_core.ops.registry import current_trace
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.autograd.function_calls import FunctionContext, finish
from compiler_core.tensor.autograd.function_purity import only_computes
from compiler_core.tensor.methods.indexing import masked_select
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _length(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    (owner,) = args
    owner = parts.numbers.specialise(owner) if is_symbol(owner) else owner
    if isinstance(owner, (*CONTAINERS, dict)) and parts.classes.method_of(owner, "__len__") is None:
        parts.contents.read_length(owner)
        return len(owner)
    if is_opaque(owner) or (isinstance(owner, Tensor) and parts.classes.program_method(owner, "__len__") is None):
        return parts.native.run(Tensor.__len__ if isinstance(owner, Tensor) else len, owner)
    method = parts.classes.method_of(owner, "__len__")
    if method is not None:
        return parts.call(method, (owner,), {})
    parts.classes.vouch(owner, "__len__")
    parts.contents.read_data(owner)
    return len(owner)


def _getattr(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 3:
        return parts.call(polyfills.getattr_default, args, {})
    owner, name = args
    return parts.attributes.load_attr(owner, parts.numbers.specialise(name))


def _hasattr(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    owner, name = args
    if isinstance(owner, Tensor) and not parts.outside.has(owner):
        parts.classes.guard_names(type(owner))
        return hasattr(owner, name)
    return parts.call(polyfills.hasattr_, args, {})


def _setattr(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    return parts.changing.store_attr(*args)


def _delattr(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    return parts.changing.delete_attr(*args)


def _isinstance(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    owner, kinds = args
    if type(owner) is Sym:
        owner = plain_of(owner)
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        check = parts.classes.method_of(kind, "__instancecheck__")
        if type(kind) is ABCMeta:
            _guard_registered(parts, type(owner), kind)
        elif type(kind).__module__ == "typing" and (known := parts.outside.find(owner)) is not None:  # a protocol
            bind, answer = parts.code.guards.bind, isinstance(owner, kind)
            local, asked = parts.code.local(known.source), bind(isinstance, "isinstance")
            text = f"{known.source.text} {'follows' if answer else 'does not follow'} {kind.__name__}"
            parts.code.require_once(f"{asked}({local}, {bind(kind, 'kind')}) is {answer}", text)
        elif check is not None and is_of_program(check) and type(kind).__module__ not in ("enum", "typing", "abc"):
            if kinds is not kind:
                raise Break("isinstance() is told by code of the program's")
            asked = parts.numbers.specialise(args[0])
            return parts.call(polyfills.is_instance, (asked, kind, MethodType(check, kind)), {})
    return isinstance(owner, kinds)


def _guard_registered(parts: Parts, cls: type, kind: type) -> None:
    """What is registered as derived from an abstract class tells `isinstance` and `issubclass`."""
    bind, answer = parts.code.guards.bind, issubclass(cls, kind)
    code = f"{bind(issubclass, 'issubclass')}({bind(cls, 'type')}, {bind(kind, 'kind')}) is {answer}"
    does = "derives from" if answer else "does not derive from"
    parts.code.require_once(code, f"{cls.__name__} {does} {kind.__name__}")


def _issubclass(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    cls, kinds = args
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if type(kind) is ABCMeta and isinstance(cls, type):
            _guard_registered(parts, cls, kind)
        elif parts.classes.program_method(kind, "__subclasscheck__") is not None and type(kind) is not ABCMeta:
            raise Break("issubclass() is told by code of the program's")
    return issubclass(cls, kinds)


def is_of_program(function: Any) -> bool:
    """Whether a function is not ours, nor of the modules that CPython itself is started with."""
    file = function.__code__.co_filename
    return not is_ours(file) and not file.startswith("<frozen")


def _iter(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return parts.call(polyfills.iter_until, args, {})
    return parts.iteration.iterate(*args)


def _next(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    if is_interpreted(args[0]):
        if parts.outside.has(args[0]):
            raise RunBetween("a generator from outside is advanced")
        return advance_generator(*args)
    if parts.classes.method_of(args[0], "__next__") is not None:
        method = parts.attributes.load_attr(args[0], "__next__")
        return parts.call(method, (), {}) if len(args) == 1 else parts.call(polyfills.next_of, (method, args[1]), {})
    polyfill = polyfills.next_default if len(args) == 2 else polyfills.next_plain
    return parts.call(polyfill, args, {})


def _callable(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    parts.classes.guard_names(type(args[0]))
    return callable(*args)


def _type(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        if type(args[0]) is TracedArray:
            return args[0].__class__
        return PLAIN.get(type(args[0]), type(args[0]))
    raise Break("a class is made")


def _converting(kind: type) -> Any:
    """A rule for int, float and str: of a symbol they are symbols."""

    def rule(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs:
            (value,) = args
            if (
                is_symbol(value)
                and (kind is not int or not isinstance(value, str))
                and (kind is not float or not isinstance(value, str))
            ):
                return converted(parts.numbers, kind, value)
            name = {int: "__int__", float: "__float__", str: "__str__"}[kind]
            if kind is str and (isinstance(value, Tensor) or not is_constant(value)):
                return parts.text.format(value, "s", "")
            if parts.classes.program_method(value, name) is not None:
                return parts.call(parts.attributes.load_attr(value, name), (), {})
            if isinstance(value, Tensor):
                later = (
                    None
                    if kind is str
                    else parts.native.hand_on(read_later, parts.numbers, value, f"{kind.__name__}()", kind)
                )
                return parts.native.run(kind, value) if later is None else later
        return call_pure(parts, kind, args, kwargs)

    return rule


def _bool(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    return parts.operators.truth(*args) if args else False


def _shown(conversion: str) -> Any:
    """A rule for repr and ascii."""
    return lambda parts, args, kwargs: parts.text.format(args[0], conversion, "")


def _format(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    return parts.text.format(args[0], "", parts.numbers.specialise(args[1]) if len(args) > 1 else "")


def _of_operator(method: Callable[..., Any], symbol: str) -> Any:
    """A rule for the function of module `operator` that does what an operator of the language does."""
    return lambda parts, args, kwargs: method(parts.operators, symbol, *args)


def _vars(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1:
        raise Break("vars() without an argument", looks=True)
    return parts.attributes.load_attr(args[0], "__dict__")


def _dict(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    if args and isinstance(args[0], dict) and parts.outside.has(args[0]):
        parts.contents.read_whole(args[0])
    elif args and (parts.containers.runs_python(args[0]) or parts.classes.program_method(args[0], "keys") is not None):
        return parts.call(polyfills.dict_, (args[0], kwargs), {})
    elif args and not isinstance(args[0], dict) and parts.numbers.any_change:
        parts.contents.read_all(args, {})
        args = (hashable(parts.numbers, drained(args[0]), are_members=False),)
        parts.keys.check_members(args[0])
    elif args and isinstance(args[0], CONTAINERS):
        parts.keys.check_members(args[0])
        parts.contents.read_all(args, {})
    return dict(*args, **kwargs)


def _ignored(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    return None


def _id(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    known = parts.outside.find(args[0])
    if isinstance(args[0], type) if known is None else known.fixed:
        return id(args[0])
    if copying.is_copying(parts.entering.current()):
        return id(args[0])  # a key of a deep copy's memo, which keeps the object and which nobody else reads
    source = None if known is None else Raw(known.source, id)
    if source is None or parts.segment.memory.is_dynamic(source):
        raise Break("id() of an object, which another call's will not have")
    return parts.outside.load(source, id(args[0]))


def _hash(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    (owner,) = map(parts.numbers.specialise, args)
    if is_constant(owner) or isinstance(owner, (type, tuple)):
        return hash(owner)
    method = parts.classes.program_method(owner, "__hash__")
    if method is None:
        raise Break("hash() of an object, which another call's will not have")
    return parts.call(method, (owner,), {})


def _signature(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    """inspect.signature of a function: what the function was defined with, so a constant."""
    function = args[0] if len(args) == 1 and not kwargs else None
    inner = parts.classes.part(function, "__func__") if isinstance(function, MethodType) else function
    if not isinstance(inner, FunctionType) or vars(inner):  # __signature__, __wrapped__
        raise Break("inspect.signature() of what is no plain function")
    parts.calls.same_function(inner)
    return parts.native.run(inspect.signature, function)


def _import_module(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    name = args[0] if args else kwargs.get("name")
    if name not in sys.modules or len(args) + len(kwargs) != 1:
        raise Break(f"the module {name!r} is imported")
    return sys.modules[name]


def _super(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    if args:
        return super(*args)
    frame = parts.entering.current()
    if type(frame.locals[0]) is Lazy:
        parts.variables.load_fast(frame, 0)
    return zero_argument_super(frame, args, kwargs)


def _outside_reading(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    raise Break("the variables of a frame are asked for", looks=True)


def _finish_function(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    """The end of a call of an autograd.Function: numbers that its context holds are constants from here on."""
    function, ctx, *_ = args
    backward = parts.attributes.load_attr(function, "backward")
    if parts.outside.has(ctx):
        raise Break("a graph break in the forward of an autograd.Function")
    for name, value in vars(ctx).items():
        setattr(ctx, name, parts.numbers.specialise(value))
    if only_computes(backward, ctx):
        _read_names(parts, backward)
    return parts.native.run(finish, *args)


def _note_for_backward(method: Any) -> Any:
    """What forward tells its context. After a graph break that is not this call's: another call has another one."""

    def rule(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
        if parts.outside.has(args[0]):
            raise Break(f"{method.__name__}() after a graph break in the forward of an autograd.Function")
        return parts.native.run(method, *args, **kwargs)

    return rule


_NOTES = (
    FunctionContext.save_for_backward, FunctionContext.save_for_forward, FunctionContext.mark_non_differentiable,
    FunctionContext.mark_dirty, FunctionContext.set_materialize_grads,
)  # fmt: skip


def _read_names(parts: Parts, function: Any) -> None:
    """What a function means by its names counts, and so on in functions that it names: it is traced natively."""
    todo, seen = [function], set()
    while todo:
        function = todo.pop()
        if not isinstance(function, FunctionType) or is_ours(function.__code__.co_filename) or function in seen:
            continue
        seen.add(function)
        known = parts.outside.find(function)
        for name in function.__code__.co_names:
            if name in function.__globals__:
                value = function.__globals__[name]
                todo.append(parts.outside.load(Variable(Bound(function.__globals__, "globals"), name), value))
        for place, cell in enumerate(function.__closure__ or ()):
            if known is not None:
                source = Item(Attribute(known.source, "__closure__"), place)
                parts.outside.identify_cell(source, cell, known.fixed)
                contents = CellContents(source, function.__code__.co_freevars[place])
                todo.append(parts.outside.load(contents, cell.cell_contents))


def _masked_select(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    given = (*args, *(kwargs[name] for name in ("input", "mask") if name in kwargs))
    selection = parts.native.hand_on(parts.numbers.selections.take, *given, whole=True) if len(given) == 2 else None
    return parts.native.run(masked_select, *args, **kwargs) if selection is None else selection


def _numpy(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    return parts.native.run(numpy_of if config.trace_numpy else Tensor.numpy, *args, **kwargs)


def _places_in_order(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
    parts.containers.check_order(args[0])
    parts.numbers.settle(args)
    parts.contents.read_deeply(args[0])
    return parts.native.run(polyfills.places_in_order, *map(parts.numbers.specialise, args))


RULES: dict[Any, Any] = {
    **HEAPS,
    **overriding.RULES,
    **iterable_rules.RULES,
    **autograd_rules.RULES,
    **held_rules.RULES,
    polyfills.places_in_order: _places_in_order,
    finish: _finish_function,
    **{method: _note_for_backward(method) for method in _NOTES},
    masked_select: _masked_select,
    unwrapped: lambda parts, args, kwargs: parts.attributes.inner(*args),
    Tensor.numpy: _numpy,
    len: _length,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    isinstance: _isinstance,
    issubclass: _issubclass,
    iter: _iter,
    next: _next,
    type: _type,
    vars: _vars,
    dict: _dict,
    id: _id,
    hash: _hash,
    super: _super,
    copy.deepcopy: copying.deepcopy,
    inspect.signature: _signature,
    collections._count_elements: lambda parts, args, kwargs: parts.call(polyfills.count_elements, args, kwargs),  # type: ignore[attr-defined]
    callable: _callable,
    MappingProxyType: lambda parts, args, kwargs: MappingProxyType(*args, **kwargs),
    MethodType: lambda parts, args, kwargs: MethodType(*args, **kwargs),
    sys.exc_info: lambda parts, args, kwargs: sys.exc_info(),
    sys.exception: lambda parts, args, kwargs: sys.exception(),
    weakref.ref: lambda parts, args, kwargs: weakref.ref(*args, **kwargs),
    importlib.import_module: _import_module,
    int: _converting(int),
    float: _converting(float),
    str: _converting(str),
    bool: _bool,
    repr: _shown("r"),
    ascii: _shown("a"),
    format: _format,
    operator.truth: _bool,
    operator.inv: _of_operator(Operators.unary, "~"),
    operator.iconcat: _of_operator(Operators.in_place, "+"),
    operator.is_: lambda parts, args, kwargs: parts.keys.is_same(*args),
    operator.is_not: lambda parts, args, kwargs: not parts.keys.is_same(*args),
    operator.getitem: lambda parts, args, kwargs: parts.items.get_item(*args),
    operator.setitem: lambda parts, args, kwargs: parts.items.store_item(*args),
    operator.delitem: lambda parts, args, kwargs: parts.items.delete_item(*args),
    operator.contains: lambda parts, args, kwargs: parts.iteration.contains(*reversed(args)),
    operator.call: lambda parts, args, kwargs: parts.call(args[0], args[1:], kwargs),
    operator.abs: lambda parts, args, kwargs: parts.call(abs, args, kwargs),
    **{function: _of_operator(Operators.binary, symbol) for symbol, (_, function) in BINARY.items()},
    **{function: _of_operator(Operators.in_place, symbol) for symbol, function in IN_PLACE.items()},
    **{function: _of_operator(Operators.unary, symbol) for symbol, (_, function) in UNARY.items()},
    **{function: _of_operator(Operators.compare, symbol) for symbol, (*_, function) in COMPARE.items()},
    current_trace: lambda parts, args, kwargs: current_trace(),
    locals: _outside_reading,
    globals: _outside_reading,
    eval: _outside_reading,
    exec: _outside_reading,
    sys._getframe: _outside_reading,
    object.__init_subclass__: _ignored,
}
BY_ID = {id(function): rule for function, rule in RULES.items()}  # a program's `__hash__` never runs
