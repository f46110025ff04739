"""Optimizer: parameter groups, per-parameter state, and their saving and loading; the base of all optimizers.

In: parameters (or named parameters, or groups of them with options of their own). Out: `step`, `zero_grad`, a state
dict of torch's layout: {"state": {i: {...}}, "param_groups": [{..., "params": [i, ...]}]}, numbered in group order.
A user's own optimizer subclasses this and defines `step`; hooks and the step flag are put around it here.
"""

from __future__ import annotations

import copy
import functools
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from compiler_core import observe
from compiler_core.capture.held_numbers import keep_tensors
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.grad_mode import enable_grad
from compiler_core.tensor.autograd.handles import RemovableHandle
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, NotSupportedError, OptimizerStateError, RegistrationTypeError
from distcompile.nn.foreign import as_tensor_like, is_tensor_like
from distcompile.nn.hooks import registered
from distcompile.nn.versions import Registry, Stamp
from distcompile.optim.kinds import group_tensors_by_device_and_dtype

Group = dict[str, Any]
Closure = Callable[[], Any]
StepHook = Callable[..., Any]
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
RECENT_STEPS: deque[tuple[weakref.ref[Optimizer], Any, Any]] = deque(maxlen=256)  # and when each began and ended
STEP_CLOCKS: weakref.WeakSet[Any] = weakref.WeakSet()  # who has a better clock than the host's: see `_now`


class _Required:
    """The default of an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """Base of all optimizers: parameters in groups, options by group, state by parameter.

    A subclass defines `step`. It finds dicts with "params" and options in `param_groups`, and a dict for each
    parameter in `state[parameter]`.

    Args:
        params: Tensors; or pairs (name, Tensor); or dicts {"params": ..., option: value, ...}, one for each group.
        defaults: the options, with their values for groups that do not give them.

    Options that most optimizers here share:
        lr: the learning rate; a number, or a Tensor of one element.
        weight_decay: g ← g + weight_decay·p, before the formula; decoupled: p ← p·(1 - lr·weight_decay) instead.
        maximize: go uphill: g ← -g.
        fused (SGD, Adam, AdamW, Adagrad): None: one compiled call for all parameters, or, with a warning, op by op
            where that cannot be compiled; True: BackendError where it cannot; False: op by op.
        foreach, capturable: taken for torch's sake; they choose no other code here.
        differentiable: True raises NotSupportedError.

    A complex parameter is updated as its two parts; Adafactor, LBFGS, Muon and SparseAdam take none.
    Raises: ArgumentError for an option out of range, an empty list, a Tensor that is no leaf or comes twice.

    Example:
        >>> class SignDescent(torch.optim.Optimizer):
        ...     def step(self, closure=None):
        ...         with torch.no_grad():
        ...             for group in self.param_groups:
        ...                 for p in group["params"]:
        ...                     p -= group["lr"] * p.grad.sign()
        >>> w = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        >>> w.square().sum().backward()
        >>> SignDescent([w], {"lr": 0.5}).step()
        >>> w.detach()
        tensor([ 0.5000, -1.5000])
    """

    takes_complex = True  # whether parameters may be complex; they are then updated as their two parts
    has_stepped = False
    _in_step = True  # until __init__: one that holds another, and never calls it, has no hooks of its own

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise RegistrationTypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts", got="a Tensor"
            )
        self.has_stepped = self._in_step = False
        self.defaults = dict(defaults)
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        stamp = Stamp()
        self._pre_hooks: Registry[int, StepHook] = Registry(stamp)
        self._post_hooks: Registry[int, StepHook] = Registry(stamp)
        self._state_pre_hooks: Registry[int, StepHook] = Registry(stamp)
        self._state_post_hooks: Registry[int, StepHook] = Registry(stamp)
        self._load_pre_hooks: Registry[int, StepHook] = Registry(stamp)
        self._load_post_hooks: Registry[int, StepHook] = Registry(stamp)
        groups = list(params)
        if not groups:
            raise ArgumentError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], Mapping) else [{"params": groups}]:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter from its gradient. closure: recomputes the loss, which is then returned."""
        raise NotImplementedError(f"{type(self).__name__} has no step")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset every parameter's gradient: to None, or to zeros."""
        for group in self.param_groups:
            keep_tensors(group["params"])
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif (grad := parameter.grad) is not None:
                    (grad.detach_() if grad.is_sparse else grad.detach()).zero_()

    _group_tensors_by_device_and_dtype = staticmethod(group_tensors_by_device_and_dtype)

    # --- groups ---------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add a group: {"params": ..., option: value, ...}; missing options take the defaults.

        Raises: RegistrationTypeError; ArgumentError (non-leaf, a parameter given twice, a required option missing);
        NotSupportedError (complex parameters, where the optimizer takes none).
        """
        if not isinstance(param_group, Mapping):
            raise RegistrationTypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, set):
            raise RegistrationTypeError("optimizer parameters need to be organized in ordered collections, not a set")
        params = [params] if isinstance(params, Tensor) else list(params)
        named = [isinstance(p, tuple) for p in params]
        if any(named):
            if not all(named):
                raise ArgumentError("all optimizer params should be with/without names. Some param names are missing")
            group["param_names"] = [name for name, _ in params]
            params = [parameter for _, parameter in params]
        group["params"] = params
        if self.param_groups and ("param_names" in group) is not ("param_names" in self.param_groups[0]):
            which = "with" if "param_names" in group else "without"
            raise ArgumentError(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {which} names to the optimizer"
            )
        for parameter in params:
            _check_parameter(parameter)
            if parameter.dtype.is_complex and not self.takes_complex:
                raise NotSupportedError(f"{type(self).__name__} does not take complex parameters")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ArgumentError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if len({id(p) for p in params}) != len(params) or any(id(p) in known for p in params):
            raise ArgumentError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    # --- hooks ----------------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: StepHook) -> RemovableHandle:
        """Run `hook(optimizer, args, kwargs) -> None | (args, kwargs)` before every step."""
        return registered(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: StepHook) -> RemovableHandle:
        """Run `hook(optimizer, args, kwargs)` after every step."""
        return registered(self._post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: StepHook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(optimizer)` before the state dict is made."""
        return registered(self._state_pre_hooks, hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: StepHook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(optimizer, state_dict) -> None | state_dict` when it is made."""
        return registered(self._state_post_hooks, hook, prepend=prepend)

    def register_load_state_dict_pre_hook(self, hook: StepHook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(optimizer, state_dict) -> None | state_dict` before one is loaded."""
        return registered(self._load_pre_hooks, hook, prepend=prepend)

    def register_load_state_dict_post_hook(self, hook: StepHook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(optimizer)` after a state dict was loaded."""
        return registered(self._load_post_hooks, hook, prepend=prepend)

    # --- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Groups and state, parameters replaced by their numbers. The tensors are the live ones; copy to keep them."""
        for pre_hook in tuple(self._state_pre_hooks.values()):
            pre_hook(self)
        number = {id(p): i for i, p in enumerate(self._parameters())}
        state = {number[id(p)]: dict(entries) for p, entries in self.state.items()}
        groups = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        for packed, group in zip(groups, self.param_groups, strict=True):
            packed["params"] = [number[id(p)] for p in group["params"]]
        whole: dict[str, Any] = {"state": state, "param_groups": groups}
        for post_hook in tuple(self._state_post_hooks.values()):
            whole = post_hook(self, whole) or whole
        return whole

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned (torch's too). State takes its parameter's dtype and device; not "step".

        Raises: OptimizerStateError if the groups do not have the same sizes.
        """
        for pre_hook in tuple(self._load_pre_hooks.values()):
            state_dict = pre_hook(self, state_dict) or state_dict
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise OptimizerStateError("loaded state dict has a different number of parameter groups")
        if any(len(s["params"]) != len(g["params"]) for s, g in zip(saved, self.param_groups, strict=True)):
            raise OptimizerStateError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        parameter_of = dict(zip((i for s in saved for i in s["params"]), self._parameters(), strict=True))
        self.state.clear()
        for key, entries in state_dict["state"].items():
            parameter = parameter_of[key]
            self.state[parameter] = {name: _fit(name, value, parameter) for name, value in entries.items()}
        for group, s in zip(self.param_groups, saved, strict=True):
            kept = {k: v for k, v in group.items() if k in self.defaults or k in ("params", "param_names")}
            group.clear()  # of what was written there since: a scheduler's initial_lr would outlive the rate it was of
            group.update(kept | {k: copy.deepcopy(v) for k, v in s.items() if k != "params"})
        for post_hook in tuple(self._load_post_hooks.values()):
            post_hook(self)

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += ([""] if i else []) + [f"Parameter Group {i}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def run_closure(closure: Closure | None) -> Any:
    """The closure's loss, computed with gradients on; None without one."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the step hooks around it, once even where a subclass's step calls its parent's."""

    @functools.wraps(step)
    def hooked(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._in_step:
            return step(self, *args, **kwargs)
        self._in_step = True
        try:
            for pre_hook in tuple(self._pre_hooks.values()):
                args, kwargs = pre_hook(self, args, kwargs) or (args, kwargs)
            captured = current_trace() is not None  # then it is the compiled call that is watched
            result = step(self, *args, **kwargs) if captured else _watched(self, step, args, kwargs)
            for post_hook in tuple(self._post_hooks.values()):
                post_hook(self, args, kwargs)
        finally:
            self._in_step = False
        self.has_stepped = True
        return result

    return hooked


def _watched(optimizer: Optimizer, step: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`step`, of which others learn when it began and ended."""
    began = _now(optimizer)
    with observe.phase("optimizer", type(optimizer).__name__):
        result = step(optimizer, *args, **kwargs)
    RECENT_STEPS.append((weakref.ref(optimizer), began, _now(optimizer)))
    return result


def _now(optimizer: Optimizer) -> Any:
    """This moment: in seconds of perf_counter, or as who owns the parameters tells it (`owns`, `now`)."""
    for clock in tuple(STEP_CLOCKS):
        if any(clock.owns(parameter) for group in optimizer.param_groups for parameter in group["params"][:1]):
            return clock.now()
    return time.perf_counter()


def _check_parameter(parameter: object) -> None:
    if not isinstance(parameter, Tensor):
        raise RegistrationTypeError(f"optimizer can only optimize Tensors, but one of the params is {type(parameter)}")
    if not parameter.is_leaf:
        raise ArgumentError("can't optimize a non-leaf Tensor")


def _fit(name: str, value: Any, parameter: Tensor) -> Any:
    """A loaded piece of state, of its own; tensors in lists as well (LBFGS keeps some)."""
    if isinstance(value, (list, tuple)):
        return type(value)(_fit(name, entry, parameter) for entry in value)
    if not is_tensor_like(value):
        return copy.deepcopy(value)
    tensor = as_tensor_like(value).detach().clone()
    if name == "step":
        return tensor
    return tensor.to(parameter.device, parameter.dtype if parameter.dtype.is_floating_point else tensor.dtype)
