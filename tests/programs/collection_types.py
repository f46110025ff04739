"""Containers of the library: Counter, deque, defaultdict, OrderedDict, ChainMap, sets, subclasses of list and dict."""

from __future__ import annotations

import heapq
from collections import ChainMap, Counter, OrderedDict, UserList, defaultdict, deque

from tests.programs.harness import attempt, program


@program
def counter_of_calls(torch, compile):
    calls = Counter()

    @compile
    def run(x, name):
        calls[name] += 1
        calls.update("ab")
        return x * calls[name] + len(calls), calls.most_common(1)[0]

    for name in ("x", "y", "x", "a"):
        yield run(torch.ones(1), name)
    yield sorted(calls.items())


@program
def deque_as_window(torch, compile):
    class MovingAverage:
        def __init__(self, n):
            self.window = deque(maxlen=n)

        def __call__(self, x):
            self.window.append(x)
            return torch.stack(tuple(self.window)).mean(0)

    average = MovingAverage(3)
    f = compile(average)
    for k in range(5):
        yield f(torch.ones(2) * k)
    average.window.rotate(1)
    yield f(torch.zeros(2))
    yield len(average.window)


@program
def grouping_by_defaultdict(torch, compile):
    @compile
    def group(xs, labels):
        groups = defaultdict(list)
        for x, label in zip(xs, labels):
            groups[label].append(x)
        return {k: torch.stack(v).mean(0) for k, v in sorted(groups.items())}, len(groups), groups["missing"]

    xs = [torch.ones(2) * k for k in range(4)]
    yield group(xs, "abab")
    yield group(xs, "aaab")
    yield group(xs, "abab")


@program
def persistent_defaultdict(torch, compile):
    stats = defaultdict(lambda: [0, 0.0])

    @compile
    def run(x, name):
        entry = stats[name]
        entry[0] += 1
        entry[1] += x.shape[0] * 0.5
        return x / entry[0]

    for name, n in (("a", 2), ("b", 3), ("a", 2), ("a", 4)):
        yield run(torch.ones(n), name)
    yield {k: list(v) for k, v in stats.items()}


@program
def ordered_dict_and_state(torch, compile):
    @compile
    def ema(old, new, decay):
        out = OrderedDict()
        for (name, a), b in zip(old.items(), new.values()):
            out[name] = decay * a + (1 - decay) * b
        out.move_to_end(next(iter(out)))
        return out

    a = OrderedDict(w=torch.ones(2), b=torch.zeros(1))
    b = OrderedDict(w=torch.zeros(2), b=torch.ones(1))
    yield ema(a, b, 0.9)
    yield ema(a, b, 0.5)
    yield list(ema(b, a, 0.5))


@program
def chain_map_of_options(torch, compile):
    defaults = {"scale": 1.0, "shift": 0.0}
    local = {}
    options = ChainMap(local, defaults)

    @compile
    def run(x):
        return x * options["scale"] + options.get("shift")

    yield run(torch.ones(1))
    options["scale"] = 3.0
    yield run(torch.ones(1))
    defaults["shift"] = 0.5
    yield run(torch.ones(1))
    yield local, compile(lambda x: x * options.new_child({"scale": 9.0})["scale"])(torch.ones(1))


@program
def sets_of_names(torch, compile):
    frozen = {"b"}
    seen = set()

    @compile
    def run(params, skip):
        seen.update(params)
        active = set(params) - frozen - set(skip)
        total = sum(params[n].sum() for n in sorted(active))
        return total, sorted(active | {"z"}), active <= seen, frozenset(skip) & frozen

    params = {"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(4)}
    yield run(params, [])
    yield run(params, ["a"])
    frozen.discard("b")
    yield run(params, ["a"])
    yield run({"d": torch.ones(1)}, ())
    yield seen


@program
def heap_of_candidates(torch, compile):
    @compile
    def best(scores, n):
        heap = []
        for k, s in enumerate(scores):
            heapq.heappush(heap, (s, k))
            if len(heap) > n:
                heapq.heappop(heap)
        return sorted(k for _, k in heap), torch.tensor([s for s, _ in sorted(heap)])

    yield best([0.5, 0.1, 0.9, 0.7], 2)
    yield best([0.5, 0.1, 0.9, 0.7], 3)
    yield best([1.5, 2.5], 3)


@program
def list_subclass(torch, compile):
    class Stack(list):
        pushed = 0

        def push(self, x):
            self.pushed += 1
            self.append(x)
            return self

        def total(self):
            return sum(self)

    stack = Stack()

    @compile
    def run(x):
        stack.push(x).push(x * 2)
        top = stack.pop()
        return top + stack.total(), len(stack)

    for k in range(3):
        yield run(torch.ones(1) * k)
    yield stack.pushed, list(stack), type(stack).__name__


@program
def dict_subclass_with_missing(torch, compile):
    class Defaults(dict):
        def __missing__(self, key):
            self[key] = value = torch.zeros(len(key))
            return value

    d = Defaults()

    @compile
    def run(key, amount):
        d[key] = d[key] + amount
        return d[key] * 2

    for key, amount in (("ab", 1), ("abc", 2), ("ab", 3)):
        yield run(key, amount)
    yield dict(d)


@program
def user_list_and_slices(torch, compile):
    items = UserList([1.0, 2.0, 3.0])

    @compile
    def run(x):
        items.append(items[-1] * 2)
        items[0:2] = [sum(items[0:2])]
        return x * items[0], list(items[::-1])

    yield run(torch.ones(1))
    yield run(torch.ones(1))
    yield list(items)


@program
def list_methods(torch, compile):
    @compile
    def run(xs):
        ys = list(xs)
        ys.insert(1, xs[0] * 10)
        ys.extend(x + 1 for x in xs)
        ys.reverse()
        last = ys.pop()
        ys += [last, last]
        del ys[0]
        ys[1:3] = []
        zs = ys[:] * 2
        n = zs.count(last) if len(zs) == 0 else len(zs)
        return ys, n, [1, 2, 1].index(2), ys.copy() is ys

    yield run([torch.ones(1), torch.zeros(1)])
    yield run((torch.ones(1), torch.zeros(1), torch.ones(1) * 5))


@program
def dict_methods(torch, compile):
    @compile
    def run(d, extra):
        e = {**d, "x": 1} | extra
        popped = e.pop("x")
        e.setdefault("new", []).append(popped)
        e.setdefault("new", []).append("again")
        gone = e.pop("never", None)
        first = next(iter(e))
        e.update(zip("pq", d.values()))
        last = e.popitem()
        return e, first, gone, last, "a" in e, list(d.items() - {("b", 1)} if not extra else ())

    yield run({"a": torch.ones(1), "b": torch.zeros(1)}, {"c": 3})
    yield run({"b": 1}, {})
    yield attempt(run, {}, {})


@program
def nested_mutations_of_arguments(torch, compile):
    @compile
    def run(state):
        state["step"] += 1
        state["losses"].append(state["w"].sum())
        state["w"] = state["w"] * 0.5
        state.setdefault("history", {})[state["step"]] = state["w"]
        if state["step"] == 3:
            del state["losses"][0]
        return state

    state = {"step": 0, "w": torch.ones(2), "losses": []}
    for _ in range(4):
        state2 = run(state)
        yield state2 is state, state
