"""Caches: dicts and lists that keep tensors or numbers from call to call."""

from __future__ import annotations

import functools
from collections import OrderedDict, deque

from tests.programs.harness import attempt, program


@program
def mask_cache_by_size(torch, compile):
    cache = {}

    def causal(n):
        if n not in cache:
            cache[n] = torch.ones(n, n).tril()
        return cache[n]

    @compile
    def attend(x):
        return x @ causal(x.shape[1])

    for n in (2, 3, 2, 3):
        yield attend(torch.ones(1, n))
    yield sorted(cache)
    yield cache


@program
def cache_on_a_module(torch, compile):
    class Rotary(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self._cache = {}
            self.hits = 0

        def forward(self, x):
            key = x.shape[-1]
            if key in self._cache:
                self.hits += 1
            else:
                self._cache[key] = torch.arange(float(key)).cos()
            return x * self._cache[key]

    m = Rotary()
    f = compile(m)
    for n in (3, 3, 4, 3):
        yield f(torch.ones(2, n))
        yield m.hits
    yield m._cache


@program
def lru_cache_of_tensors(torch, compile):
    made = []

    @functools.cache
    def table(n, scale=1.0):
        made.append(n)
        return torch.arange(float(n)) * scale

    @compile
    def run(x, n):
        return x + table(n) + table(n, scale=2.0)

    for n in (3, 3, 3):
        yield run(torch.ones(n), n)
    yield run(torch.ones(4), 4)
    yield made
    yield table.cache_info().currsize
    yield table(3)


@program
def cached_property_tensor(torch, compile):
    class Grid:
        def __init__(self, n):
            self.n, self.computed = n, 0

        @functools.cached_property
        def points(self):
            self.computed += 1
            return torch.linspace(0, 1, self.n)

    @compile
    def run(grid, x):
        return grid.points * x + grid.points.sum()

    grid = Grid(3)
    for k in range(3):
        yield run(grid, torch.full((3,), float(k)))
        yield grid.computed
    yield "points" in vars(grid), grid.points
    yield run(Grid(4), torch.ones(4))


@program
def append_to_a_list_of_results(torch, compile):
    history = []

    @compile
    def step(x):
        y = x * 2
        history.append(y)
        if len(history) > 3:
            history.pop(0)
        return y + len(history)

    for k in range(5):
        yield step(torch.full((2,), float(k)))
    yield history


@program
def history_that_is_read(torch, compile):
    history = deque(maxlen=3)

    @compile
    def smooth(x):
        history.append(x)
        return sum(history) / len(history)

    for k in range(5):
        yield smooth(torch.full((2,), float(k)))
    yield list(history)


@program
def least_recently_used(torch, compile):
    class Cache:
        def __init__(self, room):
            self.room, self.items = room, OrderedDict()

        def get(self, key, make):
            if key in self.items:
                self.items.move_to_end(key)
            else:
                self.items[key] = make()
                if len(self.items) > self.room:
                    self.items.popitem(last=False)
            return self.items[key]

    cache = Cache(2)

    @compile
    def run(x, key):
        return x + cache.get(key, lambda: torch.full((2,), float(len(key))))

    for key in ("a", "bb", "a", "ccc", "a", "bb"):
        yield run(torch.zeros(2), key)
        yield list(cache.items)


@program
def memoised_recursion(torch, compile):
    memo = {}

    @compile
    def binomial(x, n, k):
        def choose(n, k):
            if k in (0, n):
                return 1
            if (n, k) not in memo:
                memo[n, k] = choose(n - 1, k - 1) + choose(n - 1, k)
            return memo[n, k]

        return x * choose(n, k)

    yield binomial(torch.ones(2), 5, 2)
    yield binomial(torch.ones(2), 6, 3)
    yield memo
    memo.clear()
    yield binomial(torch.ones(2), 5, 2)
    yield sorted(memo)


@program
def weights_in_a_dict_argument(torch, compile):
    @compile
    def forward(params, x):
        h = (x @ params["w1"] + params["b1"]).relu()
        params["seen"] = params.get("seen", 0) + 1
        return h @ params["w2"]

    params = {"w1": torch.ones(3, 4), "b1": torch.zeros(4), "w2": torch.full((4, 2), 0.5)}
    for k in range(3):
        yield forward(params, torch.ones(2, 3) * k)
        yield params["seen"]
    params["b1"] = torch.ones(4)
    yield forward(params, torch.ones(2, 3))
    del params["w2"]
    yield attempt(forward, params, torch.ones(2, 3))


@program
def keys_of_many_kinds(torch, compile):
    table = {torch.float32: 1, torch.float64: 2, (2, "x"): 3, None: 4, 1.5: 5}

    @compile
    def run(x, key):
        return x * table[x.dtype] + table.get(key, -1)

    yield run(torch.ones(2), (2, "x"))
    yield run(torch.ones(2, dtype=torch.float64), None)
    yield run(torch.ones(2), 1.5)
    yield run(torch.ones(2), "nothing")
    table["nothing"] = 100
    yield run(torch.ones(2), "nothing")


@program
def cache_keyed_by_module(torch, compile):
    nn = torch.nn
    uses = {}
    layers = [nn.Identity(), nn.ReLU(), nn.Tanh()]

    @compile
    def run(x, k):
        layer = layers[k]
        uses[layer] = uses.get(layer, 0) + 1
        return layer(x)

    for k in (0, 1, 1, 2, 1):
        yield run(torch.tensor([-1.0, 1.0]), k)
    yield [uses[layer] for layer in layers]


@program
def buffer_of_replay(torch, compile):
    class Replay:
        def __init__(self, room):
            self.data, self.room, self.at = [], room, 0

        def push(self, item):
            if len(self.data) < self.room:
                self.data.append(item)
            else:
                self.data[self.at] = item
            self.at = (self.at + 1) % self.room

        def batch(self):
            xs, rewards = zip(*self.data)
            return torch.stack(xs), torch.tensor(rewards)

    replay = Replay(3)

    @compile
    def act(x, reward):
        replay.push((x * 2, reward))
        xs, rewards = replay.batch()
        return (xs * rewards[:, None]).sum(0)

    for k in range(5):
        yield act(torch.ones(2) * k, 0.5 * k)
    yield replay.at
