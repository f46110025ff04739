"""Saved values that wait for the backward in the host's memory: which, and the two halves that say so.

In: the halves of a joint graph, and which part of the saved bytes is to go. Out: the halves, in which these values are
outputs of the forward and inputs of the backward in the host's memory (`Graph.hosted`, role "hosted"). Which: those
that the policy of a checkpointed function sends there; and of what else only the backward reads, large ones, evenly
spread over the forward but for its end: so there is something to compute while each travels, and few are under way at a
time. When they travel the backend says (schedule/hosting.py).
What is computed is the same, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler_core import cuda, log
from compiler_core.aot.joint import Joint
from compiler_core.aot.partition import Partition
from compiler_core.backend import Backend, Executable
from compiler_core.events import Events
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.graph.kept import Keep, keep_of
from compiler_core.ops.registry import Array

LEAST_NBYTES = 1 << 20  # of a value that is worth a copy
LAST = 8  # the part, an eighth, of the values that stay if they may: they would be fetched back at once


def offloaded(parts: Partition, joint: Joint, part: float, backend: Backend) -> Partition:
    """The halves, with up to `part` of the saved bytes in the host's memory, and what policies name; why they are as
    before is said once."""
    name = parts.forward.name
    if not part and not any(_is_sent(parts.forward.outputs[i]) for i in parts.saved):
        return parts
    if not joint.graph.on_gpu:
        if part:
            log.warn_once("offload cpu", f"offload has no effect on {name}: it is the CPU's, and so is what it saves")
    elif not getattr(backend, "hosts", False):
        log.warn_once(f"offload {backend.name}", f"offload has no effect: backend {backend.name!r} sends nothing away")
    elif joint.stops:
        log.warn_once(f"offload {name}", f"offload has no effect on {name}: hooks run in the course of its backward")
    else:
        return _offloaded(parts, joint.outputs, part)
    return parts


def _offloaded(parts: Partition, results: int, part: float) -> Partition:
    """results: the forward's first outputs, that others read, too."""
    outputs = parts.forward.outputs
    room = part * sum(outputs[place].meta.nbytes for place in parts.saved)
    first = _first_reads(parts.backward)
    names = {node.name for node in outputs[:results]}
    only = [i for i in parts.saved if i >= results and outputs[i].name not in names and outputs[i].name in first]
    hosted = {i for i in only if _is_sent(outputs[i])}
    room -= sum(outputs[i].meta.nbytes for i in hosted)
    ordered = [i for i in only if i not in hosted and _may_go(outputs[i])]
    ordered.sort(key=lambda i: (-first[outputs[i].name], i))  # as they are made: what is read last was made first
    for i in (*_spread(ordered, [outputs[i].meta.nbytes for i in ordered], room), *ordered):
        if outputs[i].meta.nbytes <= room and i not in hosted:
            room -= outputs[i].meta.nbytes
            hosted.add(i)
    if not hosted:
        return parts
    gone = sum(outputs[i].meta.nbytes for i in hosted)
    log.emit("aot", f"{parts.forward.name}: {len(hosted)} saved values, {gone} bytes, go to the host's memory")
    backward = _in_host(parts.backward, {outputs[i].name for i in hosted})
    return replace(parts, forward=replace(parts.forward, hosted=tuple(sorted(hosted))), backward=backward)


def _spread(values: Sequence[int], sizes: Sequence[int], room: float) -> Iterator[int]:
    """Values of about `room` bytes in all, evenly from all but the last."""
    early = len(values) - len(values) // LAST
    share, credit = min(room / max(sum(sizes[:early]), 1), 1.0), 0.0
    for value, nbytes in zip(values[:early], sizes):
        credit += share * nbytes
        if credit >= nbytes:
            credit -= nbytes
            yield value


def brought(run: Executable, graph: Graph) -> Executable:
    """What runs a graph whose saved values come in the host's memory. An executable that does not take them there is
    given them on the device: a backward whose compilation failed runs op by op."""
    places = [k for k, node in enumerate(graph.inputs) if node.role == "hosted"]
    return run if not places or getattr(run, "hosts", False) else _Brought(run, places, graph.device)


class _Brought:
    """See `brought`."""

    def __init__(self, run: Executable, places: Sequence[int], device: str) -> None:
        self.run, self.places = run, places
        self.number = int(device.partition(":")[2] or cuda.current())

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        from compiler_core.runtime.cuda import host_memory

        given = list(inputs)
        for k in self.places:
            if cuda.is_pinned(given[k]):
                with cuda.on(self.number):
                    given[k] = host_memory.on_device(given[k])
        return self.run(given, outs, events)


def _may_go(node: Node) -> bool:
    return isinstance(node, Call) and not node.op.effect and node.meta.nbytes >= LEAST_NBYTES


def _is_sent(node: Node) -> bool:
    """Whether the policy of its checkpointed function sends a value to the host's memory."""
    keep = keep_of(node.region) if isinstance(node, Call) and not node.op.effect else Keep.AGAIN
    return keep is Keep.HOST or (keep is Keep.HOST_IF_LARGE and node.meta.nbytes >= LEAST_NBYTES)


def _first_reads(backward: Graph) -> dict[str, int]:
    """Input -> the first call that reads it."""
    found: dict[str, int] = {}
    for place, call in enumerate(backward.calls):
        for arg in call.args:
            if isinstance(arg, Placeholder):
                found.setdefault(arg.name, place)
    return found


def _in_host(graph: Graph, names: set[str]) -> Graph:
    """The graph whose inputs of these names are handed over in the host's memory."""
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if isinstance(node, Placeholder) and node.name in names:
            new[node] = replace(node, role="hosted")
        elif isinstance(node, Call) and any(new[arg] is not arg for arg in node.args):
            new[node] = node.changed(node.name, tuple(new[arg] for arg in node.args))
        else:
            new[node] = node
    return replace(graph, nodes=tuple(new.values()), outputs=tuple(new[node] for node in graph.outputs))
