"""Where Python takes over a backward: `gradient_boundary` (an identity with a hook) and `opaque_backward` (a rule).

In: Tensors and a Python function. Out: the same values, behind the boundary: in every backward, when their gradients
are ready, the function gets these as real Tensors and says which gradients flow on.
    gradient_boundary(tensors, fn)                      fn(*cotangents) -> replacements, or None to change nothing
    opaque_backward(outputs, inputs, backward, saved)   backward(saved, *cotangents) -> a gradient for each of `inputs`
Module hooks and tensor hooks are boundaries of the first kind; a rule that cannot be traced is one of the second.
Eager: one tape node (`tensor/autograd/boundaries.py`). Captured: each tensor passes through an op whose attributes name
the boundary and the tensor's slot in it; the trace keeps the functions. The joint stops there (`stops.py`): the
compiled backward is cut, and the function runs between two segments. It is never traced, so it may do what it likes.
Invariants: the calls of one boundary stand together in the graph; a cotangent that never came is None. A hook runs
whenever the backward passes, as in torch, also if none came; a rule if one did. The functions of a call are its own:
who replays a captured call makes them anew, with what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from compiler_core.aot.custom_gradient import gradient_operands
from compiler_core.dtype import COMPLEX, FLOATING
from compiler_core.errors import AutogradError
from compiler_core.graph.ir import Call, Node
from compiler_core.late import Late
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array, Op, Sample, Value, bind, current_trace, meta_of, register
from compiler_core.ops.rules import Decomposed, Indexed

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

Gradients: TypeAlias = "Sequence[Tensor | None]"
Hook: TypeAlias = "Callable[..., Gradients | None]"


@runtime_checkable
class BoundaryTrace(Protocol):
    """A trace that keeps the functions of the boundaries it records, by number."""

    boundaries: dict[int, Hook]


# -- the ops: (value, *sources, *saved) -> value; gradients flow to the sources. slot: of `width` values, which


def _infer(x: TensorMeta, *others: TensorMeta, boundary: int, slot: int, width: int, sources: int) -> TensorMeta:
    return x


def _eager(xp: Any, x: Array, *others: Array, boundary: int, slot: int, width: int, sources: int) -> Array:
    return x


def _vjp(g: Value, out: Value, x: Value, *others: Value, **attrs: Any) -> tuple[Any, ...]:
    return (g, *(None for _ in others))


def _emit(e: Any, index: Any, read: Any, metas: Any, **attrs: Any) -> Any:
    return read[0](index)


def _op(name: str, doc: str) -> Op:
    attrs = {"boundary": 0, "slot": 0, "width": 1, "sources": 0}
    return Op(
        name,
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        lower=Indexed(_emit),
        samples=(Sample(((2, 3),), attrs), Sample(((), (2,)), {**attrs, "sources": 1})),
        dtypes=FLOATING + COMPLEX,
        only_for_autograd=True,
        doc=doc,
        engines=Decomposed(lambda x, *others, **attrs: x),
    )


GRADIENT_BOUNDARY = register(_op("gradient_boundary", "identity of sources[slot]; a hook sees the gradients of all"))
OPAQUE_BACKWARD = register(_op("opaque_backward", "identity; its gradient goes to a Python rule, then to the sources"))


def is_boundary(node: Node) -> bool:
    """Whether gradients stop at `node`, a call."""
    return isinstance(node, Call) and (node.op is GRADIENT_BOUNDARY or node.op is OPAQUE_BACKWARD)


def sources_of(call: Call) -> tuple[Node, ...]:
    """Where gradients go from a boundary."""
    return call.args[1 : 1 + call.attrs["sources"]]


def saved_of(call: Call) -> tuple[Node, ...]:
    """The forward values that a boundary's rule reads."""
    return call.args[1 + call.attrs["sources"] :]


def passes_gradients(call: Call, flows: set[Node]) -> bool:
    """Whether a gradient of `call` reaches one of `flows`."""
    if call.op is GRADIENT_BOUNDARY:
        return call.args[0] in flows
    return any(arg in flows for arg in (sources_of(call) if is_boundary(call) else gradient_operands(call)))


def boundary_groups(calls: Sequence[Call]) -> dict[Call, list[Call]]:
    """First call of each boundary -> all its calls, in order of place."""
    groups: dict[int, list[Call]] = {}
    for call in calls:
        if is_boundary(call):
            groups.setdefault(call.attrs["boundary"], []).append(call)
    return {group[0]: group for group in groups.values()}


# -- making boundaries


class OnTape(NamedTuple):
    """What eager code makes of `gradient_boundary` and `opaque_backward`."""

    hook: Callable[[tuple[Tensor, ...], Hook], tuple[Tensor, ...]]
    backward: Callable[[tuple[Tensor, ...], tuple[Tensor, ...], Hook, tuple[Tensor, ...]], tuple[Tensor, ...]]


ON_TAPE: Late[OnTape] = Late("boundaries: on the tape")


def gradient_boundary(tensors: tuple[Tensor, ...], fn: Hook) -> tuple[Tensor, ...]:
    """`tensors`, such that in backward fn(*cotangents) may replace their gradients.

    fn receives one Tensor (or None) a tensor and returns as many replacements, or None to change nothing.
    Tensors that need no gradient pass through untouched; their cotangent is None.
    """
    trace = current_trace()
    if trace is None:
        return ON_TAPE.get().hook(tensors, fn)
    flowing = [i for i, t in enumerate(tensors) if t.requires_grad]
    if not isinstance(trace, BoundaryTrace) or not flowing:
        return tensors  # inside a backward that is being traced: there is nothing behind it to differentiate
    key = _add(trace, Spread.over(fn, len(tensors), flowing))
    sources = [tensors[i] for i in flowing]
    attrs = {"boundary": key, "width": len(sources), "sources": len(sources)}
    passed = {i: bind(GRADIENT_BOUNDARY, tensors[i], *sources, slot=k, **attrs) for k, i in enumerate(flowing)}
    return tuple(passed.get(i, t) for i, t in enumerate(tensors))


def opaque_backward(
    outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], backward: Hook, saved: tuple[Tensor, ...] = ()
) -> tuple[Tensor, ...]:
    """`outputs`, computed without recording from `inputs`, such that their gradients are what `backward` says.

    backward(saved, *cotangents) receives `saved` as Tensors, and one Tensor (or None) an output; it returns one Tensor
    (of that input's shape and dtype, else AutogradError) or None for each of `inputs`. Only inputs that require a
    gradient get theirs; outputs must be of floating or complex dtype. Without such an input, `outputs` as they are.
    """
    trace = current_trace()
    if not any(t.requires_grad for t in inputs):
        return outputs
    if trace is None:
        return ON_TAPE.get().backward(outputs, inputs, backward, saved)
    if not isinstance(trace, BoundaryTrace):
        return outputs
    key = _add(trace, backward)
    attrs = {"boundary": key, "width": len(outputs), "sources": len(inputs)}
    return tuple(bind(OPAQUE_BACKWARD, t, *inputs, *saved, slot=k, **attrs) for k, t in enumerate(outputs))


def _add(trace: BoundaryTrace, function: Hook) -> int:
    key = len(trace.boundaries)
    trace.boundaries[key] = function
    return key


class Spread:
    """A hook on `width` tensors; those at `places` have gradients."""

    def __init__(self, fn: Hook, width: int, places: Sequence[int]) -> None:
        self.fn, self.width, self.places = fn, width, places

    @staticmethod
    def over(fn: Hook, width: int, places: Sequence[int]) -> Hook:
        """`fn` itself, if all have."""
        return fn if len(places) == width else Spread(fn, width, places)

    def __call__(self, *cotangents: Tensor | None) -> Gradients | None:
        spread: list[Tensor | None] = [None] * self.width
        for place, cotangent in zip(self.places, cotangents):
            spread[place] = cotangent
        replaced = self.fn(*spread)
        if replaced is None or len(replaced) != self.width:
            return replaced
        return [replaced[place] for place in self.places]


# -- running them


def run_hook(fn: Hook, cotangents: Gradients, metas: Sequence[TensorMeta]) -> Gradients:
    """The cotangents after the hook. Raises AutogradError if it returns what does not fit `metas`, one a cotangent."""
    replaced = fn(*cotangents)
    return cotangents if replaced is None else checked(replaced, metas, "a backward hook")


def checked(gradients: Gradients, metas: Sequence[TensorMeta], who: str) -> Gradients:
    """`gradients`, if they fit. Raises AutogradError."""
    if len(gradients) != len(metas) or any(g is not None and meta_of(g) != m for g, m in zip(gradients, metas)):
        raise AutogradError(
            f"{who} returned gradients that do not fit",
            expected=", ".join(map(str, metas)),
            got=", ".join("None" if g is None else str(meta_of(g)) for g in gradients),
        )
    return gradients
