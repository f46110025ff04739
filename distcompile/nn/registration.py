"""What a module is made of: parameters, buffers, children, and the walk over their tree.

In: assignments (`self.l1 = Linear(2, 3)`) and `register_*` calls. Out: named iteration, and one integer tree version.

Attributes that are parameters, buffers or modules live in three `Registry` dicts, as in torch, and are found by
`__getattr__`; all others are ordinary attributes. Every change stamps the module (`versions.py`).
Names, messages and the order of iteration are torch's: state dict keys and parameter groups depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from compiler_core.breaking import breaks_graph
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import (
    NonLeafParameterError,
    RegistrationNameError,
    RegistrationOrderError,
    RegistrationTypeError,
)
from distcompile.nn.parameter import Buffer, Parameter
from distcompile.nn.versions import Registry, Stamp, TreeVersion

if TYPE_CHECKING:
    from distcompile.nn.module import Module

Found = TypeVar("Found")

_MISSING = object()
_PLAIN = (bool, int, float, str, type(None))
_REGISTRIES = ("_parameters", "_buffers", "_modules")

RegistrationHook = Callable[["Module", str, Any], Any]
global_stamp = Stamp()  # of everything that concerns all modules: the global hooks
global_parameter_registration_hooks: Registry[int, RegistrationHook] = Registry(global_stamp)
global_buffer_registration_hooks: Registry[int, RegistrationHook] = Registry(global_stamp)
global_module_registration_hooks: Registry[int, RegistrationHook] = Registry(global_stamp)


def type_name(thing: object) -> str:
    """The name of a thing's type, as error messages give it."""
    cls = type(thing)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


class Registration:
    """The part of Module that holds parameters, buffers and children, and walks the tree."""

    _stamp: Stamp
    _parameters: Registry[str, Parameter | None]
    _buffers: Registry[str, Tensor | None]
    if TYPE_CHECKING:  # not in __annotations__: typing.get_type_hints could not resolve it
        _modules: Registry[str, Module | None]
    _non_persistent_buffers_set: set[str]
    training: bool
    call_super_init: ClassVar[bool] = False

    def _init_registries(self) -> None:
        stamp = Stamp()
        state = self.__dict__
        state["_stamp"] = stamp
        state["_tree_version"] = TreeVersion()
        state["training"] = True
        state["_parameters"] = Registry(stamp)
        state["_buffers"] = Registry(stamp)
        state["_modules"] = Registry(stamp)
        state["_non_persistent_buffers_set"] = set()
        if current_trace() is not None:
            state["_made_in"] = current_trace()

    def _take_registries(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Fill new registries from the plain dicts of such a state; what is left of it."""
        for name in _REGISTRIES:
            self.__dict__[name].update(state[name])
        return {name: value for name, value in state.items() if name not in _REGISTRIES}

    @breaks_graph("a parameter is made while a forward is captured", "make the module in __init__")
    def _refuse_values_while_traced(self) -> None:
        """Before a parameter is registered: a graph does not make one."""

    # --- versions -------------------------------------------------------------------------------------------------

    def __tree_version__(self) -> int:
        """Another number after every change to this module or one below it; the same again after eval() and train().

        One comparison while nothing changes in the tree.
        """
        seen = self.__dict__.get("_tree_version")
        if seen is None:  # of a class with a __setstate__ of its own
            seen = self.__dict__["_tree_version"] = TreeVersion()
        return cast(TreeVersion, seen).look(self)

    # --- attributes -----------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        for registry in _REGISTRIES:
            if registry in state and name in state[registry]:
                return state[registry][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        parameters: Registry[str, Parameter | None] | None = state.get("_parameters")
        if isinstance(value, Parameter):
            self._require_init("parameters")
            self._forget(name, keep="_parameters")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise _cannot_assign(value, f"as parameter '{name}'", "distcompile.nn.Parameter or None")
            self.register_parameter(name, None)
        elif isinstance(value, Registration):
            self._require_init("module")
            self._forget(name, keep="_modules")
            self._set_module(name, cast("Module", value))
        elif name in state.get("_modules", ()):
            if value is not None:
                raise _cannot_assign(value, f"as child module '{name}'", "distcompile.nn.Module or None")
            self._set_module(name, None)
        elif isinstance(value, Buffer) or name in state.get("_buffers", ()):
            self._set_buffer(name, value)
        else:
            self._set_plain(name, value)

    def _set_plain(self, name: str, value: Any) -> None:
        if name in _REGISTRIES and not isinstance(value, Registry):
            registry: Registry[str, Any] = Registry(self._stamp)
            registry.update(value)
            value = registry
        before = self.__dict__.get(name, _MISSING)
        same = before is value or (type(before) is type(value) and isinstance(value, _PLAIN) and _equal(before, value))
        object.__setattr__(self, name, value)
        if same or "_stamp" not in self.__dict__:
            return
        if name == "training":
            self._stamp.flip()
        else:
            self._stamp.bump()

    def _set_module(self, name: str, module: Module | None) -> None:
        for hook in tuple(global_module_registration_hooks.values()):
            module = _or(hook(cast("Module", self), name, module), module)
        self._modules[name] = module

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            expected = "distcompile.nn.Buffer, distcompile.Tensor or None"
            raise _cannot_assign(value, f"as buffer '{name}'", expected)
        self._require_init("buffer")
        if value is not None and value is self._buffers.get(name) and not global_buffer_registration_hooks:
            return  # self.count += 1
        persistent = value.persistent if isinstance(value, Buffer) else name not in self._non_persistent_buffers_set
        self.register_buffer(name, value, persistent)

    def __delattr__(self, name: str) -> None:
        for registry in (self._parameters, self._buffers, self._modules):
            if name in registry:
                del registry[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)
        self._stamp.bump()

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[0].isdigit())

    def _forget(self, name: str, keep: str) -> None:
        self.__dict__.pop(name, None)
        for registry in _REGISTRIES:
            if registry != keep and name in self.__dict__[registry]:
                del self.__dict__[registry][name]
        self._non_persistent_buffers_set.discard(name)

    def _require_init(self, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise RegistrationOrderError(
                f"cannot assign {what} before Module.__init__() call",
                got=f"{type(self).__name__} without its registries",
                remedy="call super().__init__() first in __init__",
            )

    # --- registration ---------------------------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter (None: the name is reserved and absent from the state dict).

        Assigning a Parameter to an attribute does the same.

        Raises: RegistrationTypeError, RegistrationNameError, RegistrationOrderError, NonLeafParameterError.

        Example:
            >>> layer = nn.Module()
            >>> layer.register_parameter("scale", nn.Parameter(torch.ones(2)))
            >>> [name for name, _ in layer.named_parameters()]
            ['scale']
        """
        self._require_init("parameter")
        self._check_name("parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise _cannot_assign(param, f"object to parameter '{name}'", "distcompile.nn.Parameter or None", "required")
        if param is not None and param.grad_fn is not None:
            raise NonLeafParameterError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly.",
                remedy=f"to express '{name}' as a function of another Tensor, compute the value in forward()",
            )
        if param is not None:
            self._refuse_values_while_traced()
        for hook in tuple(global_parameter_registration_hooks.values()):
            param = _or(hook(cast("Module", self), name, param), param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not a parameter, as running statistics are. persistent: the state dict has it.

        Example:
            >>> layer = nn.Module()
            >>> layer.register_buffer("mean", torch.zeros(2))
            >>> layer.register_buffer("cache", torch.zeros(2), persistent=False)
            >>> [name for name, _ in layer.named_buffers()], list(layer.state_dict())
            (['mean', 'cache'], ['mean'])
        """
        self._require_init("buffer")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise _cannot_assign(tensor, f"object to buffer '{name}'", "distcompile.Tensor or None", "required")
        for hook in tuple(global_buffer_registration_hooks.values()):
            tensor = _or(hook(cast("Module", self), name, tensor), tensor)
        self._buffers[name] = tensor
        change = self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add
        change(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module under `name`."""
        if module is not None and not isinstance(module, Registration):
            raise RegistrationTypeError(f"{type_name(module)} is not a Module subclass")
        self._require_init("module")
        self._check_name("module", name, self._modules)
        self._set_module(name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """`add_module` under its other name."""
        self.add_module(name, module)

    def _check_name(self, what: str, name: str, registry: Registry[str, Any]) -> None:
        if not isinstance(name, str):
            raise RegistrationTypeError(f"{what} name should be a string. Got {type_name(name)}")
        if "." in name:
            raise RegistrationNameError(f'{what} name can\'t contain "."', got=name)
        if name == "":
            raise RegistrationNameError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in registry:
            raise RegistrationNameError(f"attribute '{name}' already exists")

    # --- lookup by path -------------------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; "" is this module. Raises RegistrationOrderError if there is none.

        Example:
            >>> nn.Sequential(nn.Sequential(nn.ReLU())).get_submodule("0.0")
            ReLU()
        """
        module = cast("Module", self)
        for item in target.split(".") if target else ():
            if not hasattr(module, item):
                raise RegistrationOrderError(f"{type(module).__name__} has no attribute `{item}`", got=target)
            module = getattr(module, item)
            if not isinstance(module, Registration):
                raise RegistrationOrderError(f"`{item}` is not an nn.Module", got=target)
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace the module at a dotted path. strict: it must exist already."""
        if target == "":
            raise RegistrationNameError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict or hasattr(parent, name):
            parent.get_submodule(name)
        if not isinstance(module, Registration):
            raise RegistrationTypeError(f"{type_name(module)} is not a Module subclass", got=target)
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path. Raises RegistrationOrderError if there is none."""
        found = self._get_member(target)
        if not isinstance(found, Parameter):
            raise RegistrationOrderError(f"`{target.rpartition('.')[2]}` is not an nn.Parameter", got=type_name(found))
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path. Raises RegistrationOrderError if there is none."""
        path, _, name = target.rpartition(".")
        found = self._get_member(target)
        if name not in self.get_submodule(path)._buffers or not isinstance(found, Tensor):
            raise RegistrationOrderError(f"`{name}` is not a buffer", got=type_name(found))
        return found

    def _get_member(self, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise RegistrationOrderError(f"{type(module).__name__} has no attribute `{name}`", got=target)
        return getattr(module, name)

    # --- iteration ------------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(path, module) of the whole tree, parents before children; a shared module once unless told otherwise.

        Example:
            >>> [(name, type(m).__name__) for name, m in nn.Sequential(nn.Linear(2, 2), nn.ReLU()).named_modules()]
            [('', 'Sequential'), ('0', 'Linear'), ('1', 'ReLU')]
        """
        return _walked(self._walk(set() if memo is None else memo, prefix, remove_duplicate))

    def _walk(self, memo: set[Module], prefix: str, remove_duplicate: bool) -> Iterator[tuple[str, Module]]:
        here = cast("Module", self)
        if here in memo:
            return
        if remove_duplicate:
            memo.add(here)
        yield prefix, here
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def _named_members(
        self,
        members: Callable[[Module], Iterable[tuple[str, Any]]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        here = [(prefix, cast("Module", self))]
        for path, module in self.named_modules(None, prefix, remove_duplicate) if recurse else here:
            for name, member in members(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) in registration order; a tied one once, under its first path, unless told otherwise.

        Args: prefix, put before every path; recurse: False leaves out the children's.

        Example:
            >>> [name for name, _ in nn.Sequential(nn.Linear(2, 2)).named_parameters()]
            ['0.weight', '0.bias']
        """
        return _walked(self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(path, buffer) in registration order."""
        return _walked(self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, child) of the immediate children, each module once."""
        found = {id(child): (name, child) for name, child in reversed(self._modules.items()) if child is not None}
        return iter(list(reversed(found.values())))

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return _walked(parameter for _, parameter in self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return _walked(buffer for _, buffer in self.named_buffers(recurse=recurse))

    def children(self) -> Iterator[Module]:
        return _walked(child for _, child in self.named_children())

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        return _walked(module for _, module in self.named_modules(remove_duplicate=remove_duplicate))


def _walked(steps: Iterator[Found]) -> Iterator[Found]:
    """`steps`; while tracing all at once, so that a graph that breaks in a loop goes on in a list, not in the walk."""
    return steps if current_trace() is None else iter(list(steps))


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) and (not isinstance(a, float) or repr(a) == repr(b))  # 0.0 is not -0.0


def _or(new: Any, old: Any) -> Any:
    return old if new is None else new


def _cannot_assign(value: object, where: str, wanted: str, verb: str = "expected") -> RegistrationTypeError:
    return RegistrationTypeError(f"cannot assign '{type_name(value)}' {where} ({wanted} {verb})", got=repr(value)[:80])
