"""state_dict and load_state_dict: a module tree's tensors under their dotted paths, in and out.

In: a module tree; a mapping from paths to tensors (ours, NumPy arrays, or any other tensors that NumPy can read,
torch's included). Out: a `StateDict`; parameters and buffers holding the loaded values.

Keys, order, hooks, strictness and the texts of the errors are torch's. A state dict's tensors are detached handles on
the module's own cells: they see later updates, as in torch; `copy.deepcopy` one to keep it.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from compiler_core.errors import DistCompileError
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.autograd.handles import RemovableHandle
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import HookError, RegistrationTypeError, StateDictError
from distcompile.nn.foreign import as_tensor_like, is_tensor_like
from distcompile.nn.hooks import Hooked, registered
from distcompile.nn.lazy import is_lazy
from distcompile.nn.loads import LOADS
from distcompile.nn.parameter import Parameter
from distcompile.nn.versions import Registry

if TYPE_CHECKING:
    from distcompile.nn.module import Module

EXTRA_STATE = "_extra_state"


class StateDict(OrderedDict[str, Any]):
    """Path -> tensor, in registration order. `_metadata`: module path -> {"version": n}."""

    _metadata: OrderedDict[str, dict[str, Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._metadata = OrderedDict()

    def __repr__(self) -> str:
        return f"OrderedDict({list(self.items())})" if self else "OrderedDict()"  # as torch's, which is one


class IncompatibleKeys(NamedTuple):
    """What load_state_dict found too few of, and too many."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"

    def __str__(self) -> str:
        return repr(self)


class Stateful(Hooked):
    """The part of Module that saves and loads its state."""

    _version: ClassVar[int] = 1
    _state_dict_pre_hooks: Registry[int, Callable[..., None]]
    _state_dict_hooks: Registry[int, tuple[Callable[..., Any], bool]]  # (hook, may it return a new dict)
    _load_state_dict_pre_hooks: Registry[int, tuple[Callable[..., None], bool]]  # (hook, does it take the module)
    _load_state_dict_post_hooks: Registry[int, Callable[..., Any]]

    def _init_state_hooks(self) -> None:
        for name in ("_state_dict_pre_hooks", "_state_dict_hooks"):
            self.__dict__[name] = Registry(self._stamp)
        for name in ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"):
            self.__dict__[name] = Registry(self._stamp)

    # --- hooks ----------------------------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Run `hook(module, prefix, keep_vars)` before this module's entries are collected."""
        return registered(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata)` afterwards; it may change the dict in place."""
        return registered(self._state_dict_hooks, (hook, False))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As `register_state_dict_post_hook`, but what the root's hook returns replaces the dict."""
        return registered(self._state_dict_hooks, (hook, True))

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return registered(self._load_state_dict_pre_hooks, (hook, True))

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., None], with_module: bool = False
    ) -> RemovableHandle:
        return registered(self._load_state_dict_pre_hooks, (hook, with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, incompatible_keys)` after loading; it may change the two lists in place."""
        return registered(self._load_state_dict_post_hooks, hook)

    def get_extra_state(self) -> Any:
        """Override, with `set_extra_state`, to keep more than tensors in the state dict."""
        raise NotImplementedError("get_extra_state and set_extra_state are overridden together")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` returned."""
        raise NotImplementedError("get_extra_state and set_extra_state are overridden together")

    # --- out ------------------------------------------------------------------------------------------------------

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Every parameter and persistent buffer under its path, detached unless `keep_vars`. Tied ones: every path.

        The tensors are the module's own, not copies.

        Example:
            >>> state = nn.Sequential(nn.Linear(2, 1, bias=False), nn.BatchNorm1d(1)).state_dict()
            >>> list(state)[:4]
            ['0.weight', '1.weight', '1.bias', '1.running_mean']
        """
        if destination is None:
            destination = StateDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for pre_hook in tuple(self._state_dict_pre_hooks.values()):
            pre_hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook, may_return in tuple(self._state_dict_hooks.values()):
            new = hook(self, destination, prefix, local_metadata)
            if new is not None and not may_return:
                raise HookError("state_dict post-hook must return None", got=type(new).__name__)
            destination = destination if new is None else new
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, tensor in self._own_state().items():
            destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def _own_state(self) -> dict[str, Tensor]:
        buffers = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        return {name: tensor for name, tensor in (*self._parameters.items(), *buffers.items()) if tensor is not None}

    # --- in -------------------------------------------------------------------------------------------------------

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy a state dict's tensors into this module's; assign: take the tensors themselves instead.

        Returns: (missing_keys, unexpected_keys), both empty if strict.

        Raises: StateDictError listing every size mismatch and, if strict, every missing and unexpected key.

        Example:
            >>> source, target = nn.Linear(3, 2), nn.Linear(3, 2)
            >>> target.load_state_dict(source.state_dict())
            <All keys matched successfully>
            >>> target.load_state_dict({"scale": torch.ones(2)}, strict=False).unexpected_keys
            ['scale']
        """
        if not isinstance(state_dict, Mapping):
            raise RegistrationTypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        LOADS.note(cast("Module", self))
        load = _Load(getattr(state_dict, "_metadata", None) or {}, assign)
        load.module(cast("Module", self), dict(state_dict), "")
        if strict:
            load.add_key_errors()
        if load.errors:
            texts = "\n\t".join(load.errors)
            raise StateDictError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{texts}")
        return load.keys

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own entries (not its children's). Subclasses may override it, as in torch."""
        rest = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for hook, with_module in tuple(self._load_state_dict_pre_hooks.values()):
            hook(*((self,) if with_module else ()), *rest)
        own = self._own_state()
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                error = self._load_one(name, key, tensor, state_dict[key], local_metadata)
                error_msgs.extend([error] if error else [])
            elif strict:
                missing_keys.append(key)
        self._load_extra_state(state_dict, prefix, strict, missing_keys, unexpected_keys)
        if strict:
            known = own.keys() | {EXTRA_STATE}
            unexpected_keys.extend(
                k for k in state_dict if k.startswith(prefix) and self._is_unknown(k[len(prefix) :], known)
            )

    def _is_unknown(self, path: str, known: set[str]) -> bool:
        first, dot, _ = path.partition(".")
        return first not in self._modules if dot else first not in known

    def _load_one(self, name: str, key: str, own: Tensor, given: Any, local_metadata: dict[str, Any]) -> str:
        """Load one tensor; returns the error, or ""."""
        if not is_tensor_like(given):
            return (
                f'While copying the parameter named "{key}", expected Tensor or Tensor-like object from checkpoint '
                f"but received {type(given)}"
            )
        new = as_tensor_like(given)
        if own.dim() == 0 and tuple(new.shape) == (1,):
            new = new[0]
        if tuple(new.shape) != tuple(own.shape):
            return (
                f"size mismatch for {key}: copying a param with shape {new.shape} from checkpoint, "
                f"the shape in current model is {own.shape}."
            )
        if own.is_meta and not new.is_meta and not local_metadata.get("assign_to_params_buffers", False):
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
                "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary "
                "to their corresponding key in the module instead of copying them in place?)",
                stacklevel=2,
            )
        try:
            with no_grad():
                if local_metadata.get("assign_to_params_buffers", False):
                    self._assign(name, own, new)
                else:
                    own.copy_(new)
        except DistCompileError as error:
            return (
                f'While copying the parameter named "{key}", whose dimensions in the model are {own.shape} and '
                f"whose dimensions in the checkpoint are {new.shape}, an exception occurred : {error}."
            )
        return ""

    def _assign(self, name: str, own: Tensor, new: Tensor) -> None:
        if isinstance(own, Parameter):
            new = new if isinstance(new, Parameter) else Parameter(new, requires_grad=own.requires_grad)
            new._require(own.requires_grad)
        setattr(self, name, new)

    def _load_extra_state(
        self, state_dict: dict[str, Any], prefix: str, strict: bool, missing: list[str], unexpected: list[str]
    ) -> None:
        key = prefix + EXTRA_STATE
        takes_extra_state = type(self).set_extra_state is not Stateful.set_extra_state
        if takes_extra_state and key in state_dict:
            self.set_extra_state(state_dict[key])
        elif takes_extra_state and strict:
            missing.append(key)
        elif strict and key in state_dict:
            unexpected.append(key)


class _Load:
    """One load_state_dict under way: what it has found so far."""

    def __init__(self, metadata: Mapping[str, dict[str, Any]], assign: bool) -> None:
        self.metadata, self.assign = metadata, assign
        self.keys = IncompatibleKeys([], [])
        self.errors: list[str] = []

    def module(self, module: Module, state: dict[str, Any], prefix: str) -> None:
        local_metadata = dict(self.metadata.get(prefix[:-1], {}))
        if self.assign:
            local_metadata["assign_to_params_buffers"] = True
        missing, unexpected = self.keys
        module._load_from_state_dict(state, prefix, local_metadata, True, missing, unexpected, self.errors)
        for name, child in module._modules.items():
            if child is not None:
                inner = f"{prefix}{name}."
                self.module(child, {k: v for k, v in state.items() if k.startswith(inner)}, inner)
        for hook in tuple(module._load_state_dict_post_hooks.values()):
            if hook(module, self.keys) is not None:
                raise HookError(
                    "Hooks registered with register_load_state_dict_post_hook must return None",
                    remedy="change incompatible_keys in place",
                )

    def add_key_errors(self) -> None:
        missing, unexpected = ([f'"{key}"' for key in keys] for keys in self.keys)
        if unexpected:
            self.errors.insert(0, f"Unexpected key(s) in state_dict: {', '.join(unexpected)}. ")
        if missing:
            self.errors.insert(0, f"Missing key(s) in state_dict: {', '.join(missing)}. ")
