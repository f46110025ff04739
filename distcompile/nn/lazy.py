"""Parameters and modules whose sizes the first input tells: UninitializedParameter, LazyModuleMixin. torch's names.

In: a first forward, or a state dict with sizes. Out: ordinary parameters; the module becomes the class that it stands
for. Invariants: an uninitialised tensor has a dtype and nothing else: its shape, and any op on it, is an error that
says so; the state dict holds it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from compiler_core.dtype import DType
from compiler_core.ops.registry import Attrs, Op, Value
from compiler_core.overrides.state import disabled
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import DeviceLike, empty
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Size, Tensor
from distcompile.errors import ArgumentError, StateDictError
from distcompile.nn.parameter import Parameter

if TYPE_CHECKING:
    from distcompile.nn.module import Module


class _Nothing(Cell):
    """The cell of what has no sizes: nobody reads it."""

    __slots__ = ()

    def current(self) -> NoReturn:
        raise ArgumentError(
            "Attempted to use an uninitialized parameter",
            remedy="call forward of its module with a first batch, which tells the sizes",
        )


def _without_sizes(cls: Any, like: Tensor, requires_grad: bool) -> Any:
    made = Tensor._make_subclass(cls, like, requires_grad)
    made._cell = _Nothing(like._cell.raw)
    return made


class UninitializedTensorMixin:
    """What both kinds share: a dtype, and `materialize`."""

    __bind_priority__ = Tensor.__bind_priority__ + 1
    __torch_function__: Any = disabled
    cls_to_become: ClassVar[type[Tensor]] = Tensor

    def materialize(self, shape: Sequence[int], device: DeviceLike = None, dtype: DType | None = None) -> None:
        """Become an ordinary parameter (or buffer) of this shape, with values that mean nothing yet."""
        tensor = cast("Tensor", self)
        place = tensor.device if device is None else device
        tensor.data = empty(*shape, device=place, dtype=tensor.dtype if dtype is None else dtype)
        tensor.__class__ = self.cls_to_become

    @property
    def shape(self) -> Size:
        """There is none yet. Raises StateDictError."""
        raise StateDictError(
            "Can't access the shape of an uninitialized parameter or buffer.",
            remedy="call forward with a first batch, or load a state dict with sizes",
        )

    @staticmethod
    def __bind__(op: Op, values: tuple[Value, ...], attrs: Attrs) -> NoReturn:
        raise ArgumentError(
            f"Attempted to use an uninitialized parameter in {op.name}",
            remedy="call forward of its module with a first batch, which tells the sizes",
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<{type(self).__name__}>"


def is_lazy(param: object) -> bool:
    """Whether a tensor has no sizes yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc] # mypy on __repr__'s names
    """A parameter without a shape yet, as in a lazy layer before its first call. `materialize(shape)` gives it one.

    Example:
        >>> weight = nn.UninitializedParameter()
        >>> weight.materialize((2, 3))
        >>> type(weight).__name__, weight.shape
        ('Parameter', (2, 3))
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: DeviceLike = None, dtype: DType | None = None) -> Any:
        return _without_sizes(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedParameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return cast("UninitializedParameter", memo[id(self)])

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, self.device, self.dtype)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # type: ignore[misc]
    """A buffer without a shape yet. `materialize(shape)` makes it a tensor.

    Example:
        >>> mean = nn.UninitializedBuffer()
        >>> mean.materialize((3,))
        >>> mean.shape
        (3,)
    """

    persistent: bool

    def __new__(
        cls,
        requires_grad: bool = False,
        device: DeviceLike = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> Any:
        made = _without_sizes(cls, empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedBuffer:
        if id(self) not in memo:
            memo[id(self)] = type(self)(device=self.device, dtype=self.dtype, persistent=self.persistent)
        return cast("UninitializedBuffer", memo[id(self)])

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self), (False, self.device, self.dtype, self.persistent)


class LazyModuleMixin:
    """A module some of whose parameters have no sizes until `initialize_parameters`, which a first call makes.

    cls_to_become: the class that the module then has; None: it stays. Comes before Module among the bases.
    """

    cls_to_become: ClassVar[type[Any] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        module = cast("Module", self)
        self._load_hook = module._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = module.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give every uninitialised parameter its sizes, from the forward's arguments. Subclasses define it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module has no sizes yet."""
        module = cast("Module", self)
        return any(is_lazy(t) for t in (*module._parameters.values(), *module._buffers.values()))

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Before a state dict is loaded: take sizes from it."""
        module = cast("Module", self)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(tensor) and given is not None and not is_lazy(given):
                with no_grad():
                    cast("UninitializedTensorMixin", tensor).materialize(tuple(given.shape))

    def _load_one(self, name: str, key: str, own: Tensor, given: Any, local_metadata: dict[str, Any]) -> str:
        if is_lazy(own) and is_lazy(given):
            return ""
        return super()._load_one(name, key, own, given, local_metadata)  # type: ignore[no-any-return, misc]

    def _infer_parameters(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before the first forward: find the sizes, then be an ordinary module."""
        with no_grad():
            self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise StateDictError(f"module {type(self).__name__} has not been fully initialized")
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook, self._load_hook
        if self.cls_to_become is not None:
            module.__class__ = self.cls_to_become
        module._stamp.bump()
