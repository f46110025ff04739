"""Hooks of modules: registering, removing, and the order in which a call runs them.

In: a module, its arguments, the hooks registered on it and on all modules. Out: what `Module.__call__` returns.

Order of a call (torch's):
    global pre, module pre, [inputs pass the backward boundary], forward, global forward, module forward,
    [outputs pass the backward boundary];
    in the backward: global pre, module pre (gradients of the outputs), then global, module (gradients of the inputs).
A hook that returns something replaces the arguments, the output or the gradients. Registering and removing bump the
module's stamp (global hooks: the global stamp), so compiled functions notice.
The backward boundary is `compiler_core.aot.boundary.gradient_boundary`: a node of the tape; a compiled backward is cut
there. So backward hooks are called in every backward, on real Tensors, when that gradient is ready.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from compiler_core.capture.guards.module_protocol import WatchedModule
from compiler_core.log import DistCompileWarning
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import current_trace, meta_of
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled
from compiler_core.tensor.autograd.handles import RemovableHandle
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import HookError, NotSupportedError
from distcompile.nn.module_watch import ModuleWatch
from distcompile.nn.registration import (
    Registration,
    RegistrationHook,
    global_buffer_registration_hooks,
    global_module_registration_hooks,
    global_parameter_registration_hooks,
    global_stamp,
)
from distcompile.nn.versions import Registry

if TYPE_CHECKING:
    from distcompile.nn.module import Module

Grads = tuple[Tensor | None, ...]
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Hook:
    """One registered hook. with_kwargs: it takes the call's keyword arguments. always_call: also after an error."""

    fn: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


def registered(hooks: Registry[int, Any], hook: Any, *, prepend: bool = False) -> RemovableHandle:
    """Put `hook` at the end of `hooks`, or at the beginning; its handle."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_front(handle.id)
    return handle


_global_forward_pre: Registry[int, Hook] = Registry(global_stamp)
_global_forward: Registry[int, Hook] = Registry(global_stamp)
_global_backward_pre: Registry[int, Hook] = Registry(global_stamp)
_global_backward: Registry[int, Hook] = Registry(global_stamp)


class _EveryModule:
    """The hooks on all modules, watched as a module's own are."""

    def __init__(self) -> None:
        self._stamp = global_stamp
        self.global_forward_pre_hooks, self.global_forward_hooks = _global_forward_pre, _global_forward
        self.global_backward_pre_hooks, self.global_backward_hooks = _global_backward_pre, _global_backward


_every_module: Any = _EveryModule()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, args) -> None | args` before every module's forward."""
    return registered(_global_forward_pre, Hook(hook))


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Run `hook(module, args, [kwargs,] output) -> None | output` after every module's forward."""
    return registered(_global_forward, Hook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_output) -> None | grad_output` before every module's backward."""
    return registered(_global_backward_pre, Hook(hook))


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_input, grad_output) -> None | grad_input` after every module's backward."""
    return registered(_global_backward, Hook(hook))


def register_module_parameter_registration_hook(hook: RegistrationHook) -> RemovableHandle:
    """Run `hook(module, name, parameter) -> None | parameter` whenever a parameter is registered."""
    return registered(global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: RegistrationHook) -> RemovableHandle:
    """Run `hook(module, name, buffer) -> None | buffer` whenever a buffer is registered."""
    return registered(global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: RegistrationHook) -> RemovableHandle:
    """Run `hook(module, name, child) -> None | child` whenever a child module is registered."""
    return registered(global_module_registration_hooks, hook)


class Hooked(Registration):
    """The part of Module that holds hooks and calls `forward` through them."""

    _forward_pre_hooks: Registry[int, Hook]
    _forward_hooks: Registry[int, Hook]
    _backward_pre_hooks: Registry[int, Hook]
    _backward_hooks: Registry[int, Hook]
    forward: Callable[..., Any]

    def _init_hooks(self) -> None:
        for name in _HOOKS:
            self.__dict__[name] = Registry(self._stamp)

    def _take_hooks(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Register the hooks of a state that torch pickled, which keeps their options in dicts beside them.

        What is left of it. Raises NotSupportedError for hooks that torch wraps, or calls deprecated.
        """
        left = {name: value for name, value in state.items() if not name.startswith(_HOOKS)}
        for name in _HOOKS:
            with_kwargs, always = state.get(f"{name}_with_kwargs", ()), state.get(f"{name}_always_called", ())
            for number, hook in state.get(name, {}).items():
                registered(self.__dict__[name], Hook(hook, number in with_kwargs, number in always))
        is_old = left.pop("_is_full_backward_hook", None) is False and bool(self._backward_hooks)
        others = [name for name in list(left) if name.endswith("_hooks") and name in self.__dict__ and left.pop(name)]
        if is_old or others:
            raise NotSupportedError(
                f"the pickled {type(self).__name__} has hooks that are not read",
                got=", ".join(others) or "register_backward_hook's",
                remedy="in torch, remove them before saving, or save the state_dict()",
            )
        return left

    @staticmethod
    def __watch__(modules: Iterable[WatchedModule]) -> ModuleWatch:
        """A watch over these modules, and over the hooks on all modules. See `module_watch.py`."""
        return ModuleWatch([*modules, WatchedModule(_every_module, "every module")])

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, args) -> None | args`, or with_kwargs `(module, args, kwargs) -> None | (args, kwargs)`.

        It runs before `forward`; what it returns replaces the arguments. prepend: before the hooks that are there.
        The handle's `remove()` takes it away.

        Example:
            >>> layer = nn.Identity()
            >>> handle = layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
            >>> layer(torch.ones(2))
            tensor([2., 2.])
        """
        return registered(self._forward_pre_hooks, Hook(hook, with_kwargs), prepend=prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, args, [kwargs,] output) -> None | output` after forward; always_call: also if it raised.

        What it returns replaces the output. The handle's `remove()` takes it away.

        Example:
            >>> shapes, layer = [], nn.Linear(3, 2)
            >>> handle = layer.register_forward_hook(lambda module, args, output: shapes.append(output.shape))
            >>> y = layer(torch.ones(4, 3))
            >>> handle.remove()
            >>> shapes
            [(4, 2)]
        """
        return registered(self._forward_hooks, Hook(hook, with_kwargs, always_call), prepend=prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Run `hook(module, grad_output) -> None | grad_output` when the outputs' gradients are known."""
        return registered(self._backward_pre_hooks, Hook(hook), prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Run `hook(module, grad_input, grad_output) -> None | grad_input` when the inputs' gradients are known.

        Both are tuples, with None where there is no gradient. What it returns replaces grad_input.

        Example:
            >>> layer = nn.Tanh()
            >>> handle = layer.register_full_backward_hook(lambda module, grad_in, grad_out: print(grad_out[0]))
            >>> layer(torch.zeros(2, requires_grad=True)).sum().backward()
            tensor([1., 1.])
        """
        return registered(self._backward_hooks, Hook(hook), prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """torch's deprecated, not-full kind. Raises NotSupportedError."""
        raise NotSupportedError("register_backward_hook is not offered", remedy="use register_full_backward_hook")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or _global_forward
            or _global_forward_pre
            or _global_backward
            or _global_backward_pre
        ):
            return self.forward(*args, **kwargs)
        return _HookedCall(cast("Module", self), args, kwargs).run()


class _HookedCall:
    """One call of a module that has hooks."""

    def __init__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.result: Any = None
        self.to_come: Iterator[Hook] | None = None  # forward hooks that have not run

    def run(self) -> Any:
        if current_trace() is not None:
            return self.steps()  # an error while tracing is retried eagerly; hooks must not run for it
        try:
            return self.steps()
        except BaseException as error:
            if isinstance(error, Exception):
                self.always_called_hooks()
            raise

    def steps(self) -> Any:
        self.forward_pre_hooks()
        boundary = self.backward_boundary()
        if boundary is not None:
            self.args = boundary.inputs(self.args)
        self.result = self.module.forward(*self.args, **self.kwargs)
        self.forward_hooks()
        if boundary is not None:
            self.result = boundary.outputs(self.result)
        return self.result

    def forward_pre_hooks(self) -> None:
        for hook in (*_global_forward_pre.values(), *self.module._forward_pre_hooks.values()):
            if hook.with_kwargs:
                self.take_arguments(hook.fn(self.module, self.args, self.kwargs))
                continue
            args = hook.fn(self.module, self.args)
            if args is not None:
                self.args = args if isinstance(args, tuple) else (args,)

    def take_arguments(self, new: Any) -> None:
        if new is None:
            return
        if not (isinstance(new, tuple) and len(new) == 2):
            raise HookError(
                "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got something else",
                got=repr(new)[:200],
            )
        self.args, self.kwargs = new

    def forward_hooks(self) -> None:
        self.to_come = iter((*_global_forward.values(), *self.module._forward_hooks.values()))
        for hook in self.to_come:
            self.call_forward_hook(hook)

    def call_forward_hook(self, hook: Hook) -> None:
        extra = (self.kwargs,) if hook.with_kwargs else ()
        output = hook.fn(self.module, self.args, *extra, self.result)
        if output is not None:
            self.result = output

    def always_called_hooks(self) -> None:
        to_come = self.to_come or (*_global_forward.values(), *self.module._forward_hooks.values())
        for hook in to_come:
            if not hook.always_call:
                continue
            try:
                self.call_forward_hook(hook)
            except Exception as error:  # noqa: BLE001  # torch's contract: the first error is the one that counts
                warnings.warn(
                    "module forward hook with ``always_call=True`` raised an exception that was silenced as another "
                    f"error was raised in forward: {error}",
                    DistCompileWarning,
                    stacklevel=2,
                )

    def backward_boundary(self) -> BackwardBoundary | None:
        pre = [hook.fn for hook in (*_global_backward_pre.values(), *self.module._backward_pre_hooks.values())]
        full = [hook.fn for hook in (*_global_backward.values(), *self.module._backward_hooks.values())]
        return BackwardBoundary(self.module, pre, full) if pre or full else None


class BackwardBoundary:
    """The two identities around a module's forward whose backward runs the hooks: outputs' gradients, then inputs'.

    As in torch, hooks run if the backward passes here, also if no gradient came with it. Those on the outputs'
    gradients are given None and hand it on; those on the inputs' are given zeros and hand these on.
    """

    def __init__(self, module: Module, pre: list[Callable[..., Any]], full: list[Callable[..., Any]]) -> None:
        self.module, self.pre, self.full = module, pre, full
        self.n_inputs = 0
        self.input_places: list[int] | None = None  # places of the tensors among the arguments; None: no boundary there
        self.n_outputs = 0
        self.output_places: list[int] = []
        self.input_metas: list[TensorMeta] = []
        self.grad_outputs: Grads | None = None

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.n_inputs = len(args)
        wrapped, self.input_places = _wrap(args, self.on_input_gradients)
        self.input_metas = [meta_of(args[place]) for place in self.input_places or ()]
        return tuple(wrapped)

    def outputs(self, result: Any) -> Any:
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                f"but received {type(result)}",
                DistCompileWarning,
                stacklevel=2,
            )
            return result
        results = (result,) if isinstance(result, Tensor) else result
        self.n_outputs = len(results)
        wrapped, places = _wrap(results, self.on_output_gradients)
        self.output_places = places or []
        if isinstance(result, Tensor):
            return wrapped[0]
        return type(result)(*wrapped) if hasattr(result, "_fields") else tuple(wrapped)

    def on_output_gradients(self, *grads: Tensor | None) -> Grads:
        self.grad_outputs = _spread(self.n_outputs, self.output_places, grads)
        for hook in self.pre:
            self.grad_outputs = _replaced(self.grad_outputs, hook(self.module, self.grad_outputs), "pre hook", "output")
        current = self.grad_outputs
        if self.input_places is None:
            self.call_without_input_gradients(current)
        return tuple(current[place] for place in self.output_places)

    def call_without_input_gradients(self, grad_outputs: Grads) -> None:
        nothing: Grads = (None,) * self.n_inputs
        for hook in self.full:
            new = hook(self.module, nothing, grad_outputs)
            if new is not None and not (isinstance(new, tuple) and all(g is None for g in new)):
                raise HookError(
                    "Backward hook for Modules where no input requires gradient should always return None "
                    "or None for all gradients.",
                )
        self.grad_outputs = None

    def on_input_gradients(self, *grads: Tensor | None) -> Grads:
        places, grads = self.input_places or [], _materialized(grads, self.input_metas)
        if self.grad_outputs is None:  # the gradient reached the input without passing the output
            return grads
        current = _spread(self.n_inputs, places, grads)
        for hook in self.full:
            current = _replaced(current, hook(self.module, current, self.grad_outputs), "hook", "input")
        self.grad_outputs = None
        return tuple(current[place] for place in places)


def _wrap(values: tuple[Any, ...], on_gradients: Callable[..., Grads]) -> tuple[list[Any], list[int] | None]:
    """Pass the tensors among `values` through one gradient boundary. Places None: nothing there needs a gradient."""
    from compiler_core.aot.boundary import gradient_boundary

    places = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    if not is_grad_enabled() or not any(values[i].requires_grad for i in places):
        return list(values), None
    wrapped = list(values)
    for place, tensor in zip(places, gradient_boundary(tuple(values[i] for i in places), on_gradients), strict=True):
        wrapped[place] = tensor
    return wrapped, places


def _materialized(grads: Sequence[Tensor | None], metas: Sequence[TensorMeta]) -> Grads:
    """Zeros in place of None."""
    return tuple(
        Tensor._wrap(prims.full(meta.shape, 0, meta.dtype)) if grad is None else grad
        for grad, meta in zip(grads, metas, strict=True)
    )


def _spread(count: int, places: Sequence[int], grads: Grads) -> Grads:
    table = dict(zip(places, grads, strict=True))
    return tuple(table.get(i) for i in range(count))


def _replaced(before: Grads, new: Any, kind: str, what: str) -> Grads:
    if new is None:
        return before
    after: Grads = (new,) if isinstance(new, Tensor) else tuple(new)
    if len(after) != len(before):
        raise HookError(
            f"Backward {kind} returned an invalid number of grad_{what}, got {len(after)}, but expected {len(before)}"
        )
    return after
