"""Bisection of a difference: to the stage, to the graph (the forward, or a backward segment), to the op and its line.

In: a `Case` whose compiled gradients failed, and the backend. Out: a `Finding`, or None if it does not show here.
Method: the backends eager, aot_eager and the one that failed each run one stage more; the first that is off names the
stage. If that is the backend itself, every graph is run again on the inputs it had, against its own values computed op
by op (in float64, with float32 op by op as the yardstick), which names the graph; parts of it that end at one node are
then compiled alone, by bisection over the node's ancestors, which names the first op whose compiled value is off. A
fault that only shows in company is minified instead (graph/minify.py): what is printed is off when it runs alone.
A wrong backward rule is no difference between stages: `rules.py` finds it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from compiler_core.backend import Backend, GraphCompiler
from compiler_core.capture import compile
from compiler_core.graph.extract import extract
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.graph.minify import minify
from compiler_core.graph.print import print_graph
from compiler_core.ops.registry import Array
from distcompile.parity.case import LOSS, Case, Wrap, gradients, in_float64
from distcompile.parity.judge import Tolerance, judge
from distcompile.parity.recording import RecordingBackend, Run, values_of
from distcompile.parity.report import Finding, Gradients, compare

STAGES = {
    "eager": "capture: the captured graph is not what the eager call computes",
    "aot_eager": "differentiation: the joint graph, its partition or its segments are wrong",
}


def bisect(
    case: Case,
    backend: str | Backend | GraphCompiler,
    tolerance: Tolerance,
    *,
    wrap: Wrap | None = None,
    limit_s: float = 60.0,
) -> Finding | None:
    """Find the first stage, graph and op that is off. wrap: what is put around the module before it is compiled.

    Collective if `wrap` is; every rank then runs the same stages, whatever it finds.
    """
    around: Wrap = wrap or (lambda module: module)
    reference = gradients(in_float64(case), lambda module: module) if wrap is None else gradients(case, around)
    eager = gradients(case, around)
    stages = {name: gradients(case, lambda m, b=name: compile(around(m), backend=b)) for name in STAGES}  # type: ignore[misc]
    recorder = RecordingBackend(backend)
    stages["backend"] = gradients(case, lambda module: compile(around(module), backend=recorder))
    for name, found in stages.items():
        wrong = _first_wrong(reference, eager, found, tolerance)
        if wrong and name in STAGES:
            return Finding(name, STAGES[name], "", "", f"with backend {name!r} {wrong}")
        if wrong:
            return _in_backend(recorder, wrong, tolerance, time.perf_counter() + limit_s)
    return None


def _first_wrong(reference: Gradients, eager: Gradients, found: Gradients, tolerance: Tolerance) -> str:
    for name in reference:
        failure = compare("loss" if name == LOSS else "gradient", name, reference, eager, found, tolerance).failure
        if failure:
            return f"{name} is off ({failure})"
    return ""


def _in_backend(recorder: RecordingBackend, wrong: str, tolerance: Tolerance, until_s: float) -> Finding:
    """The graph and the op. recorder: has seen the failing run."""
    for run in recorder.runs:
        search = _Search(recorder.inner, run, tolerance, until_s)
        node = search.first_wrong_output()
        if node is not None:
            return search.finding(node)
    text = f"{wrong}, but every graph alone gives what its ops give: look at what is around them (reducer, hooks)"
    return Finding("backend", f"{recorder.inner.name}: no graph is at fault", "", "", text)


class _Search:
    """One graph, the inputs it had, and what each of its nodes should be."""

    def __init__(self, backend: Backend, run: Run, tolerance: Tolerance, until_s: float) -> None:
        self.backend, self.run, self.tolerance, self.until_s = backend, run, tolerance, until_s
        self.narrow = values_of(run.graph, run.inputs)
        self.wide = values_of(run.graph, run.inputs, wide=True)
        self.place = {node: k for k, node in enumerate(run.graph.nodes)}
        self.named = {node.name: node for node in run.graph.nodes}

    def is_off(self, node: Node, value: Array) -> str:
        """What is wrong with the value of `node`; empty if nothing."""
        if value.dtype.kind not in "f" and value.dtype.name != "bfloat16":
            return "" if (value == self.narrow[node]).all() else "another value"
        return judge("value", self.wide[node], self.narrow[node], value, self.tolerance).failure

    def first_wrong_output(self) -> Node | None:
        pairs = zip(self.run.graph.outputs, self.run.outputs, strict=True)
        return next((node for node, value in pairs if self.is_off(node, value)), None)

    def finding(self, output: Node) -> Finding:
        """The op. output: a node whose value was off in the run."""
        guilty = self._first_alone(output)
        stage = f"{self.backend.name}: graph {self.run.graph.name}"
        if guilty is not None:
            what = self._compiled_is_off(guilty)
            alone = self._operands_given(guilty)
            if self._fails(alone):
                return Finding(
                    "backend", stage, guilty.op.name, guilty.location, f"{what}, also alone", print_graph(alone)
                )
            whole = _read_only(extract(self.run.graph, f"to_{guilty.name}", [guilty], self.run.graph.inputs))
            return self._in_company(stage, whole, f"{what}, together with the ops before it")
        return self._in_company(stage, self.run.graph, "off only in this company")

    def _in_company(self, stage: str, whole: Graph, what: str) -> Finding:
        """The smallest part of `whole` that is off alone; `whole` itself, where that is said to be off and is not."""
        fails = self._fails(whole)
        small = minify(whole, self._fails) if fails else whole
        calls = [node for node in small.outputs if isinstance(node, Call)] or list(small.calls[-1:])
        op, place = (calls[0].op.name, calls[0].location) if calls else ("", "")
        text = what if fails else f"{what}, which this graph alone does not show"
        return Finding("backend", stage, op, place, text, print_graph(small))

    def _first_alone(self, output: Node) -> Call | None:
        """The first node, in the graph's order, that is off when the graph ends there; None if the fault goes away."""
        node = output
        if not isinstance(node, Call) or not self._compiled_is_off(node):
            return None
        while True:
            before = [n for n in self._ancestors(node) if isinstance(n, Call)]
            low, high = 0, len(before)  # before[high:] are taken as off, before[:low] as right
            while low < high and time.perf_counter() < self.until_s:
                middle = (low + high) // 2
                if self._compiled_is_off(before[middle]):
                    high = middle
                else:
                    low = middle + 1
            if low >= len(before) or time.perf_counter() >= self.until_s:
                return node
            node = before[low]

    def _ancestors(self, node: Node) -> list[Node]:
        found: set[Node] = set()
        todo = list(node.operands)
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo.extend(one.operands)
        return sorted(found, key=self.place.__getitem__)

    def _compiled_is_off(self, node: Call) -> str:
        """What is wrong with `node`'s value when the graph ends there."""
        part = extract(self.run.graph, f"to_{node.name}", [node], self.run.graph.inputs)
        return self.is_off(node, self._run(_read_only(part))[0])

    def _operands_given(self, node: Call) -> Graph:
        """The one op, its operands as inputs."""
        given: Mapping[Node, Placeholder] = {
            arg: Placeholder(arg.name, arg.meta, "input", arg.name) for arg in node.args if isinstance(arg, Call)
        }
        return _read_only(extract(self.run.graph, f"only_{node.name}", [node], self.run.graph.inputs, replaced=given))

    def _fails(self, graph: Graph) -> bool:
        """Whether some output of `graph`, whose nodes have the names of ours, is off."""
        if time.perf_counter() > self.until_s:
            return False
        values = zip(graph.outputs, self._run(graph), strict=True)
        return any(self.is_off(self.named[node.name], value) for node, value in values)

    def _run(self, graph: Graph) -> Sequence[Array]:
        inputs = [self.narrow[self.named[node.name]] for node in graph.inputs]
        return self.backend.compile([graph], graph.name)[0](inputs)


def _read_only(graph: Graph) -> Graph:
    """The graph without inputs that nothing reads."""
    read = {arg for call in graph.calls for arg in call.args} | set(graph.outputs)
    return graph.with_nodes(n for n in graph.nodes if not isinstance(n, Placeholder) or n in read)
