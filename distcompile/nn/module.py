"""Module: the base of every layer and model, as in torch.

In: a subclass with `forward`. Out: a callable tree of parameters, buffers and children.

Module is put together from four parts, each in its file: `Registration` (what it is made of, and its versions),
`Hooked` (how it is called), `Stateful` (state dicts), and here what acts on the whole tree: mode, conversion, printing.
The compiler core knows a module only by its protocol: `__watch__`, `__tree_version__`, `named_modules`,
`named_parameters`, `named_buffers` and, on modules that own the gradients (DDP), `__gradient_strategy__`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from compiler_core import dtype as dtypes
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import empty_like
from distcompile.errors import ArgumentError, RegistrationTypeError
from distcompile.nn.registration import type_name
from distcompile.nn.state import Stateful
from distcompile.nn.versions import Registry, TreeVersion

M = TypeVar("M", bound="Module")


class Module(Stateful):
    """Base of layers and models: a subclass assigns parameters and children in `__init__`, and has a `forward`.

    What is assigned is registered: a `Parameter`, a `Buffer`, and a Module as a child. From there come `parameters()`,
    `state_dict()`, `to()`, `train()` and printing, for the whole tree. Call the module, not its `forward`, which runs
    no hooks. Call `super().__init__()` before the first assignment, else RegistrationOrderError.

    Attributes: `training`, True until `eval()`.

    Example:
        >>> class Scaled(nn.Module):
        ...     def __init__(self, size):
        ...         super().__init__()
        ...         self.inner = nn.Linear(size, size)
        ...         self.scale = nn.Parameter(torch.ones(()))
        ...
        ...     def forward(self, x):
        ...         return self.scale * self.inner(x)
        >>> model = Scaled(3)
        >>> model(torch.ones(2, 3)).shape
        (2, 3)
        >>> [name for name, _ in model.named_parameters()]
        ['scale', 'inner.weight', 'inner.bias']
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._init_registries()
        self._init_hooks()
        self._init_state_hooks()
        if self.call_super_init:
            super().__init__(*args, **kwargs)
        elif args or kwargs:
            got = f"{len(args)} positional, {', '.join(kwargs) or 'no keyword'}"
            raise RegistrationTypeError(f"{type(self).__name__}: Module.__init__() takes no arguments", got=got)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Every subclass that is called defines it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # --- mode -----------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Set training mode on the whole tree (dropout acts, batch norms use the batch); `mode=False` is `eval()`.

        Example:
            >>> nn.Dropout().train(False).training
            False
        """
        if not isinstance(mode, bool):
            raise ArgumentError("training mode is expected to be boolean", got=type_name(mode))
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode on the whole tree: `train(False)`. It does not turn gradients off; `no_grad` does.

        Example:
            >>> nn.Dropout(0.5).eval()(torch.ones(2))
            tensor([1., 1.])
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` of every parameter: False freezes the module.

        Example:
            >>> model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
            >>> model[0].requires_grad_(False)
            Linear(in_features=4, out_features=8, bias=True)
            >>> [p.requires_grad for p in model.parameters()]
            [False, False, True, True]
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        for module in self.modules():
            module._stamp.bump()
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset every parameter's gradient: to None, or to zeros."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif (grad := parameter.grad) is not None:
                (grad.detach_() if grad.is_sparse else grad.detach()).zero_()

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Call `fn` on every module of the tree, children first; to initialise, for example.

        Example:
            >>> def zero(module):
            ...     if isinstance(module, nn.Linear):
            ...         nn.init.zeros_(module.weight)
            >>> model = nn.Sequential(nn.Linear(2, 2)).apply(zero)
            >>> model[0].weight.abs().sum().item()
            0.0
        """
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # --- conversion -----------------------------------------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace every parameter's, gradient's and buffer's data by `fn` of it; the handles stay."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is None:
                    continue
                parameter.data = fn(parameter.detach())
                if parameter.grad is not None:
                    parameter.grad = fn(parameter.grad.detach())
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = fn(buffer)
        self._stamp.bump()
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """`to(device)`, `to(dtype)`, `to(device, dtype)` or `to(tensor)`: convert parameters and buffers in place.

        A dtype is for those that are floating, a device for all. Returns the module itself.

        Raises: RegistrationTypeError for a dtype that is neither floating nor complex.

        Example:
            >>> nn.Linear(2, 2).to(torch.float64).weight.dtype == torch.float64
            True
        """
        device, dtype, *_ = parse_to(*args, **kwargs)
        if dtype is not None and not dtype.is_inexact:
            raise RegistrationTypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        return self._apply(lambda t: _convert(t, device, dtype))

    def to_empty(self, *, device: DeviceLike, recurse: bool = True) -> Self:
        """Replace all parameters and buffers by uninitialised ones on `device`: data for a module made on "meta"."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def type(self, dst_type: DType) -> Self:
        """Convert all parameters and buffers, integer ones too. Raises DTypeError where a gradient is required."""
        return self._apply(lambda t: t.to(dst_type))

    def float(self) -> Self:
        return self.to(dtypes.float32)

    def double(self) -> Self:
        return self.to(dtypes.float64)

    def half(self) -> Self:
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        return self.to(dtypes.bfloat16)

    def cpu(self) -> Self:
        return self.to("cpu")

    def cuda(self, device: DeviceLike = None) -> Self:
        """`to` a CUDA device, the current one if not said. Raises DeviceError where there is none, and why."""
        return self._apply(lambda t: t.cuda(device))

    def share_memory(self) -> Self:
        """Move parameters and buffers to memory that other processes see: children, and those that they are sent to."""
        return self._apply(lambda t: t.share_memory_())

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module's forward in place, with `distcompile.compile`'s arguments. Copies are not compiled.

        Example:
            >>> model = nn.Linear(3, 2)
            >>> model.compile()
            >>> model(torch.ones(4, 3)).shape
            (4, 2)
        """
        from compiler_core.capture import compile as compile_

        plain = self.__dict__.get("_plain_forward", self.forward)
        setattr(self, "forward", compile_(plain, *args, **kwargs))  # noqa: B010  # a method, to a type checker
        self.__dict__["_plain_forward"] = plain

    # --- copying and printing -------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_tree_version", None)  # of this object
        if state.pop("_plain_forward", None) is not None:
            del state["forward"]  # compiled for this object
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        if "_stamp" in self.__dict__:
            self._stamp.bump()  # which may be replaced
        if "_stamp" not in state:  # of a module that torch pickled
            self._init_registries()
            self._init_hooks()
            self._init_state_hooks()
            state = self._take_hooks(self._take_registries(state))
        self.__dict__.update(state)
        self.__dict__["_tree_version"] = TreeVersion()
        self._stamp.bump()  # a copy, or a module from another process, is a new thing to any guard

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Override to print a layer's sizes and options."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): {indent(repr(child))}" for name, child in self._modules.items()]
        if len(extra_lines) == 1 and not child_lines:
            return f"{self._get_name()}({extra_lines[0]})"
        lines = extra_lines + child_lines
        body = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{self._get_name()}({body})"


def indent(text: str, spaces: int = 2) -> str:
    """Indent all lines but the first; blank lines stay empty."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line if line.strip() else "" for line in rest)])


def renumber(modules: Registry[str, Module | None]) -> None:
    """Give the modules of a list the keys "0", "1", ... in their order."""
    values = list(modules.values())
    modules.clear()
    modules.update((str(i), module) for i, module in enumerate(values))


def parse_to(*args: Any, **kwargs: Any) -> tuple[Device | None, DType | None, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of the arguments of a `to`. Raises RegistrationTypeError."""
    device, dtype, non_blocking = kwargs.get("device"), kwargs.get("dtype"), kwargs.get("non_blocking", False)
    for arg in (*args, *((kwargs["tensor"],) if "tensor" in kwargs else ())):
        if isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (str, Device)) or type(arg) is int:
            device = arg
        elif isinstance(arg, bool):
            non_blocking = arg
        elif arg in (float, int, complex, bool):
            dtype = arg
        elif arg is not None:
            raise RegistrationTypeError(f"to() received an invalid argument of type {type_name(arg)}")
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    return None if device is None else Device(device), dtype, non_blocking, kwargs.get("memory_format")


def _convert(tensor: Tensor, device: Device | None, dtype: DType | None) -> Tensor:
    if device is not None:
        tensor = tensor.to(device)
    return tensor.to(dtype) if dtype is not None and tensor.dtype.is_floating_point else tensor
