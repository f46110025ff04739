"""Mixtures of experts, beam search, pipelines of decisions made in Python around tensors."""

from __future__ import annotations

from tests.programs.harness import program


def linear(torch, n_in, n_out, value):
    layer = torch.nn.Linear(n_in, n_out, bias=False)
    torch.nn.init.constant_(layer.weight, value)
    return layer


@program
def experts_chosen_by_name(torch, compile):
    experts = torch.nn.ModuleDict({n: linear(torch, 2, 2, v) for n, v in (("math", 1.0), ("code", 2.0))})
    used = {}

    @compile
    def route(x, task):
        names = [n for n in experts if n in task.split()]
        for n in names:
            used[n] = used.get(n, 0) + 1
        outs = [experts[n](x) for n in names]
        return sum(outs) / len(outs) if outs else x

    for task in ("math", "code math", "poems", "code"):
        yield route(torch.ones(1, 2), task)
    yield used


@program
def dense_gating(torch, compile):
    nn = torch.nn

    class Mixture(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.experts = nn.ModuleList(linear(torch, 2, 2, 0.5 * k) for k in range(n))
            self.gate = linear(torch, 2, n, 0.1)
            self.load = [0.0] * n

        def forward(self, x):
            weights = self.gate(x).softmax(-1)
            return sum(weights[:, k, None] * e(x) for k, e in enumerate(self.experts))

    net = Mixture(3)
    f = compile(net)
    for k in range(2):
        net.zero_grad()
        y = f(torch.ones(2, 2) * k)
        y.sum().backward()
        yield y, net


@program
def top_one_routing_with_masks(torch, compile):
    experts = [linear(torch, 2, 2, v) for v in (1.0, -1.0, 0.5)]

    @compile
    def run(x, scores):
        choice = scores.argmax(-1)
        out = torch.zeros_like(x)
        for k, expert in enumerate(experts):
            mask = (choice == k)[:, None]
            out = out + expert(x) * mask
        return out, choice

    yield run(torch.ones(3, 2), torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 2.0, 0]]))
    yield run(torch.ones(3, 2), torch.tensor([[0.0, 0, 1], [0, 0, 1], [3.0, 2.0, 0]]))


@program
def routing_by_index_selection(torch, compile):
    experts = [linear(torch, 2, 2, v) for v in (1.0, -1.0)]

    @compile
    def run(x, choice):
        out = torch.zeros_like(x)
        for k, expert in enumerate(experts):
            rows = (choice == k).nonzero().flatten()
            if len(rows):
                out[rows] = expert(x[rows])
        return out

    x = torch.arange(6.0).view(3, 2)
    for choice in ([0, 1, 1], [0, 0, 0], [1, 0, 1]):
        yield run(x, torch.tensor(choice))


@program
def beam_search(torch, compile):
    table = torch.log_softmax(torch.arange(16.0).view(4, 4).cos() * 2, -1)

    @compile
    def expand(scores, last):
        total = scores[:, None] + table[last]
        values, flat = total.flatten().topk(2)
        return values, flat // 4, flat % 4

    beams = [[0], [1]]
    scores, last = torch.zeros(2), torch.tensor([0, 1])
    for _ in range(4):
        scores, parents, last = expand(scores, last)
        beams = [beams[p] + [t] for p, t in zip(parents.tolist(), last.tolist())]
        yield scores, beams


@program
def beam_search_compiled_whole(torch, compile):
    table = torch.log_softmax(torch.arange(16.0).view(4, 4).sin() * 2, -1)

    @compile
    def search(start, width, steps, eos=3):
        beams = [((start,), torch.zeros(()))]
        done = []
        for _ in range(steps):
            grown = []
            for tokens, score in beams:
                values, ids = table[tokens[-1]].topk(width)
                for v, t in zip(values, ids.tolist()):
                    target = done if t == eos else grown
                    target.append(((*tokens, t), score + v))
            beams = sorted(grown, key=lambda b: -b[1].item())[:width]
        return [(t, s) for t, s in sorted(done + beams, key=lambda b: -b[1].item())[:width]]

    yield search(0, 2, 2)
    yield search(1, 2, 3)
    yield search(0, 2, 2)


@program
def viterbi_decoding(torch, compile):
    @compile
    def viterbi(emissions, transitions):
        score = emissions[0]
        back = []
        for e in emissions[1:]:
            best, arg = (score[:, None] + transitions).max(0)
            back.append(arg)
            score = best + e
        last = score.argmax()
        path = [last]
        for arg in reversed(back):
            path.append(arg[path[-1]])
        return torch.stack(path[::-1]), score.max()

    transitions = torch.tensor([[0.0, -1.0], [-1.0, 0.5]])
    for k in range(2):
        yield viterbi(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, float(k)]]), transitions)


@program
def game_tree(torch, compile):
    @compile
    def negamax(values, moves, depth):
        def search(node, depth, sign):
            children = moves.get(node)
            if not children or depth == 0:
                return sign * values[node], [node]
            best = None
            for child in children:
                value, line = search(child, depth - 1, -sign)
                if best is None or len(line) > len(best[1]):
                    best = (-value, [node, *line])
            return best

        return search(0, depth, 1)

    values = torch.arange(5.0)
    for depth in (0, 1, 2):
        yield negamax(values, {0: [1, 2], 1: [3], 2: [4]}, depth)


@program
def scheduling_of_tasks(torch, compile):
    @compile
    def run(graph, inputs):
        done, order = dict(inputs), []
        pending = [n for n in graph if n not in done]
        while pending:
            ready = [n for n in pending if all(d in done for d in graph[n][1])]
            if not ready:
                raise RuntimeError(f"cycle in {pending}")
            for n in ready:
                fn, needs = graph[n]
                done[n] = fn(*(done[d] for d in needs))
                order.append(n)
                pending.remove(n)
        return done[order[-1]], order

    graph = {"c": (torch.mul, ("a", "b")), "a": (torch.neg, ("x",)), "b": (torch.exp, ("x",))}
    for k in range(2):
        yield run(graph, {"x": torch.ones(2) * k})


@program
def ensemble_and_votes(torch, compile):
    from collections import Counter

    models = [linear(torch, 2, 3, v) for v in (0.1, -0.2, 0.3)]

    @compile
    def vote(x):
        import math

        logits = [m(x) for m in models]
        mean = torch.stack(logits).mean(0) * math.sqrt(4)
        return mean, [tuple(v.shape) for v in logits]

    for k in range(2):
        mean, shapes = vote(torch.ones(2, 2) * k)
        yield mean, Counter(shapes).most_common(1)
