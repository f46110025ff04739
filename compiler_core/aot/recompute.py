"""What it costs to keep a forward value for the backward, and which values may be computed again instead.

In: a joint graph. Out: `CostModel`: `may_recompute(node) -> Yes | No(why)`, `recompute_cost(node)` and
`keep_cost(node)`, both in bytes moved.
The model is memory traffic, as in AOTAutograd's min-cut partitioner (Chen et al. 2016, "Training Deep Nets with
Sublinear Memory Cost", for the idea; Jain et al. 2020, "Checkmate", for costs of nodes). A value that a kernel writes
anyway costs its bytes once (it is read back); one that fusion would keep in registers costs them twice. Besides, it is
held until the backward: each byte counts as `HELD` bytes moved. Inputs are alive anyway and cost nothing.
Computing again costs what could have been moved meanwhile: of elementwise functions by their work an element, and if a
library routine reads the value, the bytes that are written again. What a routine reads in a network of convolutions on
a GPU is kept: its activations are small beside the device's memory, and each is a write and a third of a sweep less.
Never computed twice: matrix products, reductions, random bits, gathers, functions of which one takes too long, and
those behind a value that is compared for equality: a vector form of exp and the scalar one differ in the last bit, and
a value that comes out otherwise than its maximum did would not be found among those that attain it.
What the forward does not need at all is no recomputation: the backward may compute it, whatever it is.
Under a memory budget (`budget.py`) a byte held is worth more (`held`), and matrix products, reductions and the like may
be computed again too, for what they take: not random bits, nor what is compared for equality.
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler_core.aot.min_cut import INFINITE
from compiler_core.aot.regions import Regions
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.ops.routine import Routine
from compiler_core.ops.rules import (
    Composed,
    Expansion,
    Indexed,
    IndexedReduction,
    Movement,
    Reduction,
    is_elementwise,
)
from compiler_core.records import dataclass

HELD = 2  # bytes moved that a byte of memory is worth
CHEAP_WORK = 1  # bytes moved in the time of one cheap operation on an f32 element
LONG_WORK = 200  # of a function whose work is not told: far too much, but under a budget
GPU_FASTER = 16  # times as many operations a byte moved does a GPU make
ROUTINE_FLOPS = 16  # operations of a library routine in the time of a byte moved


@dataclass(frozen=True, slots=True)
class Yes:
    """May be computed again."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class No:
    """Must be kept, and why."""

    why: str

    def __bool__(self) -> bool:
        return False


class CostModel:
    """Costs of the nodes of one joint graph. results: the forward's outputs, written in any case.

    regions: what its user checkpointed; these decide before any cost does. on_gpu: there conversions between dtypes are
    elementwise like others, and operations cost next to nothing beside the memory's traffic.
    """

    def __init__(
        self,
        graph: Graph,
        results: Iterable[Node],
        regions: Regions | None = None,
        *,
        on_gpu: bool = False,
        held: int = HELD,
    ) -> None:
        self.on_gpu, self.held = on_gpu, held
        self.place = {node: k for k, node in enumerate(graph.nodes)}
        results = list(results)
        self.inner = regions.inner if regions else set()
        self.leaving = regions.leaving if regions else set()
        self.kept = regions.kept if regions else set()
        products = [call for call in graph.calls if is_library(call)]
        self.keeps_operands = on_gpu and any(call.op.name.startswith("convolution") for call in products)
        self.results = set(results)  # held by whoever asked for them
        self.in_forward = needed_for(graph, results)
        self.library_operands = set(_behind_views(arg for call in products for arg in call.args))
        self.compared = _behind_equality(graph)
        self.crossing = _across_products(graph, self.in_forward)
        self.written = {
            *self.library_operands,
            *_behind_views(results),
            *self.crossing,
            *products,
        }

    def may_recompute(self, node: Node) -> Yes | No:
        """Whether the backward may compute `node` again from its operands."""
        if isinstance(node, Placeholder):
            return No("an input")
        if node in self.inner:
            return Yes()
        if node in self.leaving:
            return No("read outside of the checkpoint that computes it")
        if node in self.kept:
            return No("the policy of its checkpoint keeps it")
        if not isinstance(node, Call) or not node.args or is_view(node) or node not in self.in_forward:
            return Yes()
        if node.op.random:
            return No("random bits")
        if self.held > HELD:
            return self._may_at_a_price(node)
        if isinstance(node.op.lower, Reduction | IndexedReduction):
            return No("a reduction")
        if not self._is_elementwise(node):
            return No(f"{node.op.name} is not elementwise")
        is_cast = node.op.name == "cast"
        if not node.op.cheap and not is_cast and (not node.op.work or node.dtype.is_complex):
            return No(f"{node.op.name} costs many times a read")
        if not node.op.cheap and node in self.compared:
            return No(f"{node.op.name} may differ in the last bit, and it is compared for equality")
        return Yes()

    def _may_at_a_price(self, call: Call) -> Yes | No:
        if call in self.compared and not (call.op.cheap and is_elementwise(call.op.lower)):
            return No(f"{call.op.name} may differ in the last bit, and it is compared for equality")
        rule = call.op.lower
        is_ours = isinstance(rule, Movement | Indexed | Reduction | IndexedReduction | Expansion | Composed)
        if is_ours or is_elementwise(rule) or (isinstance(rule, Routine) and rule.native is not None):
            return Yes()
        return No(f"{call.op.name} is not known to give the same again")

    def _is_elementwise(self, call: Call) -> bool:
        """Whether a kernel computes it on the way, for an operation or a few an element."""
        return is_elementwise(call.op.lower) or (self.on_gpu and call.op.name == "cast")

    def recompute_cost(self, node: Node) -> int:
        """Bytes that could be moved while the backward computes `node` again from its operands."""
        if not self.may_recompute(node):
            return INFINITE
        if node in self.inner or not isinstance(node, Call) or node not in self.in_forward:
            return 0
        if is_view(node) or not node.args:
            return 0
        again = node.meta.nbytes if node in self.library_operands else 0
        if not self._is_elementwise(node):
            read = sum(arg.meta.nbytes for arg in node.args)
            return (
                again + read + node.meta.nbytes + _flops(node) // (ROUTINE_FLOPS * (GPU_FASTER if self.on_gpu else 1))
            )
        is_short = node.op.cheap or not is_elementwise(node.op.lower)  # the latter: a conversion, on a GPU
        work = CHEAP_WORK if is_short else node.op.work or LONG_WORK
        if self.on_gpu:
            # what no kernel keeps in registers anyway (a residual stream, an operand) costs reading what it is made of
            again += 2 * node.meta.nbytes if node in self.crossing or node in self.library_operands else 0
            return again + node.meta.nbytes * work // (4 * GPU_FASTER)
        return again + node.meta.numel * work * max(node.dtype.itemsize, 4) // 4

    def _worth(self, node: Node) -> int:
        """Of a byte of a value that is held. Under a budget up to twice as much for what is held longest, so that of
        layers that are alike some can be computed again."""
        if self.held == HELD:
            return HELD
        return self.held + self.held * (len(self.place) - self.place[node]) // len(self.place)

    def keep_cost(self, node: Node) -> int:
        """Bytes moved, or not available to others, if `node` is kept from forward to backward."""
        if isinstance(node, Placeholder):
            return 0
        if node in self.inner:
            return INFINITE
        kept_anyway = self.held == HELD and self.keeps_operands and node in self.library_operands
        held = 0 if node in self.results or kept_anyway else self._worth(node)
        moved = node.meta.nbytes * (held + (1 if node in self.written else 2))
        return moved + (1 if node in self.in_forward else node.meta.nbytes // 4 + 2)  # of equals, what forward has


def _flops(call: Call) -> int:
    """Of a library routine; an operation an element that is read of others."""
    rule = call.op.lower
    if isinstance(rule, Expansion | Routine):
        return rule.flops(*(arg.meta for arg in call.args), **call.attrs)
    return sum(arg.meta.numel for arg in call.args)


def needed_for(graph: Graph, outputs: Iterable[Node]) -> set[Node]:
    """The nodes that `outputs` depend on, those included."""
    needed = set(outputs)
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.operands)
    return needed


def _across_products(graph: Graph, in_forward: set[Node]) -> set[Node]:
    """Values that the forward reads both before and after a library routine runs: no fusion keeps them in registers.

    (A residual stream is one.) The phase of a node is how many library routines, one after the other, come before it.
    """
    phase: dict[Node, int] = {}
    found: set[Node] = set()
    for node in graph.nodes:
        phase[node] = max(
            (phase[arg] + (isinstance(arg, Call) and is_library(arg)) for arg in node.operands), default=0
        )
        if node not in in_forward or is_view(node):
            continue
        for source in _behind_views(node.operands):
            if not is_view(source) and not (isinstance(source, Call) and is_library(source)):
                found.update((source,) if phase[node] > phase[source] else ())
    return found


def _behind_equality(graph: Graph) -> set[Node]:
    """What a test for equality with more than a constant is computed from, elementwise."""
    found: set[Node] = set()
    for call in reversed(graph.calls):
        is_test = call.op.name in ("eq", "ne") and not any(map(_is_constant, call.args))
        if is_test or (call in found and (is_elementwise(call.op.lower) or is_view(call))):
            found.update(call.args)
    return found


def _is_constant(node: Node) -> bool:
    *_, source = _behind_views([node])
    return not isinstance(source, Placeholder) and not source.operands


def is_library(call: Call) -> bool:
    """Whether a library routine computes `call`, or what it expands into."""
    return isinstance(call.op.lower, Expansion | Routine)


def is_view(node: Node) -> bool:
    """Whether `node` shows its one operand's elements in another arrangement."""
    return isinstance(node, Call) and isinstance(node.op.lower, Movement)


def _behind_views(nodes: Iterable[Node]) -> Iterable[Node]:
    """Each node, and what it is a view of, down to something computed."""
    for node in nodes:
        yield node
        while is_view(node):
            node = node.operands[0]
            yield node
