"""SparseTensor: the class of Tensors whose layout is not strided.

In: a pattern and values (`value.py`). Out: handles that are Tensors to `isinstance`, and have a history, a `.grad`,
hooks and versions as others have. No code of dense tensors runs on them: calls of public functions come to `rules.py`
(`compiler_core/overrides/calls.py` sends them), and a primitive that meets one all the same is refused by name.
Programs without sparse tensors pay nothing: functions look at their arguments from the first one on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from compiler_core.device import Device
from compiler_core.errors import LayoutError
from compiler_core.ops.registry import Attrs, Op, Value, current_trace
from compiler_core.overrides.state import other_layouts
from compiler_core.overrides.switch import turn_on
from compiler_core.sparse.value import Pattern, SparseCell, SparseValue, refuse_trace
from compiler_core.tensor.autograd.tape import GradNode
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor


class SparseTensor(Tensor):
    """A tensor that holds its pattern and its values. Made by `wrap`."""

    __slots__ = ()
    if TYPE_CHECKING:  # what their rules give
        detach: Callable[[], SparseTensor]
        t: Callable[[], SparseTensor]
        transpose: Callable[[int, int], SparseTensor]  # type: ignore[assignment]
        conj: Callable[[], SparseTensor]
        to: Callable[..., SparseTensor]
        _require: Callable[..., SparseTensor]
    __bind_priority__ = 4  # before Tensors, and what stands for values that are gone

    @staticmethod
    def _from_cell(cell: Cell, node: GradNode | None = None) -> SparseTensor:
        self: Any = object.__new__(SparseTensor)
        self._cell, self._node, self._view = cell, node, None
        self._grad = self._hooks = None
        self._requires_grad = False
        turn_on()
        return self  # type: ignore[no-any-return]

    @property
    def sparse(self) -> SparseValue:
        """The pattern and the values."""
        return self._cell.raw  # type: ignore[no-any-return]

    @property
    def pattern(self) -> Pattern:
        """Where its elements are."""
        return self._cell.raw.pattern  # type: ignore[no-any-return]

    @property
    def device(self) -> Device:
        """Where the data lives."""
        return self._cell.raw.values.device  # type: ignore[no-any-return]

    @property
    def is_meta(self) -> bool:
        """Whether its values have no data."""
        return self._cell.raw.values.is_meta  # type: ignore[no-any-return]

    def _read(self) -> Value:
        """Itself: gradients that are sparse travel as handles."""
        if current_trace() is not None:
            refuse_trace("a sparse tensor is used")
        return self

    def _array(self, what: str) -> NoReturn:
        self._own_array(what)

    def _own_array(self, what: str) -> NoReturn:
        if current_trace() is not None:
            refuse_trace(f"{what} of a sparse tensor")
        raise LayoutError(f"{what} is not there for sparse tensors", remedy="call .to_dense() first")

    @staticmethod
    def __bind__(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Tensor:
        from compiler_core.sparse.rules import primitive

        return primitive(op, values, attrs)  # type: ignore[no-any-return]

    @staticmethod
    def __whole__(composite: Any, operands: tuple[Value, ...], attrs: Attrs) -> None:
        return None


def wrap(pattern: Pattern, values: Tensor) -> SparseTensor:
    """A leaf with this pattern and these values, whose memory it shares."""
    return SparseTensor._from_cell(SparseCell(SparseValue(pattern, values)))


def _computed(entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from compiler_core.sparse.rules import computed

    return computed(entry, args, kwargs)


other_layouts[SparseTensor] = _computed
