"""What engines that take ONNX models have in common.

In: a `load(graph, model, quick=...)` and what the engine refuses beyond ONNX's table. Out: an `Engine`.
Whether the engine has a kernel of an op for these dtypes is asked of the engine itself: a model of that call alone is
loaded, once per op, dtypes, numbers of dims, and attributes that are no sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from compiler_core.engines.engine import Program, require_package
from compiler_core.errors import BackendError
from compiler_core.graph.ir import Call, Graph
from compiler_core.ops.rules import Scatter

if TYPE_CHECKING:
    from compiler_core.engines.onnx.emitter import Rule

_BY_INDEX = "it would be elements put at indices; our own routine needs none"


class OnnxEngine(ABC):
    """See the head of this file. title: the engine as people call it.

    corrections: rules in place of ONNX's where the engine's operator is not what the specification says; None: without.
    takes_nothing: whether its operators are right of arrays without elements. checks_indices: whether an index that is
    out of range is an error of its, and not another element, or a crash.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    devices: ClassVar[frozenset[bool]] = frozenset((False,))
    any_sizes: ClassVar[bool] = False
    takes_nothing: ClassVar[bool] = True
    whole: ClassVar[Mapping[str, str]] = {
        "convolution_weight": "its convolution of transposed images is slow; our own routine is not",
        "window_max_put": _BY_INDEX,
        "windows_add": _BY_INDEX,
        "windows_put": _BY_INDEX,
    }
    checks_indices: ClassVar[bool] = True

    def corrections(self) -> Mapping[str, Rule | None]:
        return {}

    def __init__(self) -> None:
        require_package("onnx", self.name)
        from compiler_core.engines.onnx.model import TABLE

        changed = {**TABLE, **self.corrections()}
        self._table = {name: rule for name, rule in changed.items() if rule is not None}
        self._refusals: dict[tuple[Any, ...], str] = {}

    def refuses_kind(self, call: Call) -> str:
        """Why the engine takes no such call, though ONNX has it; "" if it may."""
        return ""

    @abstractmethod
    def load(self, graph: Graph, model: Any, *, quick: bool = False) -> Program:
        """A program of a ModelProto. quick: it is to be made soon, and may run slowly."""

    def refuses(self, call: Call) -> str:
        from compiler_core.engines.onnx.model import kernel_of, refused

        why = (
            self.whole.get(call.op.name)
            or refused(call, self._table)
            or self._refuses_data(call)
            or self.refuses_kind(call)
        )
        if why:
            return why
        key = kernel_of(call)
        if key not in self._refusals:
            self._refusals[key] = self._tried(call)
        return self._refusals[key]

    def _refuses_data(self, call: Call) -> str:
        """Why not of these sizes, or of all that operands may hold."""
        if not self.takes_nothing and any(0 in node.shape for node in (*call.args, call)):
            return f"{self.title} is not right of arrays without elements"
        if not self.checks_indices and (call.op.raises or isinstance(call.op.lower, Scatter)):
            return f"{self.title} does not see an index that is out of range"
        return ""

    def _tried(self, call: Call) -> str:
        from compiler_core.engines.onnx.model import alone, to_model

        graph = alone(call)
        try:
            self.load(graph, to_model(graph, table=self._table), quick=True)
        except Exception as error:  # noqa: BLE001 - the engine's own: several classes, known by their texts
            return f"{self.title}: {_first_line(error)}"
        return ""

    def build(self, graph: Graph) -> Program:
        from compiler_core.engines.onnx.model import to_model

        try:
            return self.load(graph, to_model(graph, table=self._table))
        except BackendError:
            raise
        except Exception as error:
            raise BackendError(f"{self.title} does not take {graph.name}: {error}") from error


def _first_line(error: Exception) -> str:
    """What the engine says, without its error codes."""
    text = str(error).strip() or type(error).__name__
    *_, said = text.splitlines()[0].split(" : ")
    return said[:200]
