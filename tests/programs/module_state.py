"""Modules whose forward changes them: counters, flags, buffers, running statistics, lists of states."""

from __future__ import annotations

from tests.programs.harness import attempt, program


@program
def counter_attribute(torch, compile):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def forward(self, x):
            self.count += 1
            return x * self.count

    m = Counting()
    f = compile(m)
    for _ in range(5):
        yield f(torch.ones(2))
    yield m.count
    m.count = 100
    yield f(torch.ones(2))
    yield m.count


@program
def warm_up_flag(torch, compile):
    class ActNorm(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.ready = False
            self.scale = torch.nn.Parameter(torch.ones(n))

        def forward(self, x):
            if not self.ready:
                self.scale.data = 1 / (x.detach().std(0) + 1e-3)
                self.ready = True
            return x * self.scale

    m = ActNorm(2)
    f = compile(m)
    for k in range(3):
        yield f(torch.tensor([[1.0, 2.0], [3.0, 7.0]]) + k)
    yield m.ready, m.scale


@program(codegen=True)
def running_mean_buffer(torch, compile):
    class Centre(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.register_buffer("mean", torch.zeros(n))
            self.register_buffer("seen", torch.tensor(0))

        def forward(self, x):
            if self.training:
                self.seen += 1
                self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return x - self.mean

    m = Centre(3)
    f = compile(m)
    x = torch.arange(6.0).reshape(2, 3)
    for k in range(3):
        yield f(x * k)
    m.eval()
    yield f(x)
    m.train()
    yield f(x)
    yield m


@program
def buffer_assigned_anew(torch, compile):
    class Tracker(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(2))
            self.register_buffer("best", None)

        def forward(self, x):
            delta = x - self.last
            self.last = x.detach().clone()
            self.best = x if self.best is None else torch.maximum(self.best, x)
            return delta

    m = Tracker()
    f = compile(m)
    for k in (1.0, 3.0, 2.0):
        yield f(torch.full((2,), k))
        yield m.last, m.best
    yield sorted(m.state_dict())


@program
def batch_norm_trains_and_evaluates(torch, compile):
    nn = torch.nn
    m = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())
    f = compile(m)
    x = torch.arange(12.0).reshape(4, 3)
    for k in range(3):
        yield f(x * (k + 1))
    m.eval()
    yield f(x)
    yield m[0].num_batches_tracked
    yield m


@program
def intermediate_activations_kept(torch, compile):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
            for k, layer in enumerate(self.layers):
                nn.init.constant_(layer.weight, 0.5 + k)
                nn.init.zeros_(layer.bias)
            self.activations = []

        def forward(self, x):
            self.activations.clear()
            for layer in self.layers:
                x = layer(x)
                self.activations.append(x.mean())
            return x

    m = Net()
    f = compile(m)
    for k in range(3):
        yield f(torch.ones(1, 2) * k)
        yield m.activations
    with torch.no_grad():
        yield f(torch.ones(1, 2))
    yield m.activations


@program
def mode_attribute_switched(torch, compile):
    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mode = "sum"

        def forward(self, x):
            return getattr(x, self.mode)(dim=0)

    m = Head()
    f = compile(m)
    x = torch.arange(6.0).reshape(3, 2)
    yield f(x)
    m.mode = "mean"
    yield f(x)
    m.mode = "nothing"
    yield attempt(f, x)
    m.mode = "sum"
    yield f(x)


@program
def layer_replaced_and_appended(torch, compile):
    nn = torch.nn
    net = nn.Sequential(nn.ReLU(), nn.Identity())
    f = compile(net)
    x = torch.tensor([-2.0, 0.5])
    yield f(x)
    net[1] = nn.Tanh()
    yield f(x)
    net.append(nn.Softplus())
    yield f(x)
    del net[0]
    yield f(x)
    yield len(net)


@program
def parameter_replaced(torch, compile):
    nn = torch.nn
    lin = nn.Linear(2, 1, bias=False)
    lin.weight = nn.Parameter(torch.ones(1, 2))
    f = compile(lin)
    x = torch.tensor([[1.0, 2.0]])
    yield f(x)
    lin.weight = nn.Parameter(torch.full((1, 2), 3.0))
    yield f(x)
    lin.weight.data = torch.full((1, 2), -1.0)
    yield f(x)
    with torch.no_grad():
        lin.weight.mul_(2)
    yield f(x)
    lin.weight.requires_grad_(False)
    y = f(x)
    yield y, y.requires_grad


@program
def moving_target_network(torch, compile):
    nn = torch.nn
    online, target = nn.Linear(2, 2), nn.Linear(2, 2)
    for net, value in ((online, 1.0), (target, 0.0)):
        for p in net.parameters():
            nn.init.constant_(p, value)

    @compile
    def update(tau):
        with torch.no_grad():
            for t, p in zip(target.parameters(), online.parameters()):
                t.lerp_(p, tau)

    for tau in (0.1, 0.1, 0.5):
        update(tau)
        yield target.weight, target.bias
    yield target(torch.ones(1, 2))


@program
def state_carried_in_an_attribute(torch, compile):
    class Cell(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.n, self.hidden = n, None

        def reset(self):
            self.hidden = None

        def forward(self, x):
            if self.hidden is None:
                self.hidden = torch.zeros(x.shape[0], self.n)
            self.hidden = torch.tanh(0.5 * self.hidden + x)
            return self.hidden

    cell = Cell(2)
    f = compile(cell)
    for _ in range(2):
        for k in range(3):
            yield f(torch.ones(1, 2) * k)
        cell.reset()
    yield cell.hidden


@program
def modules_in_plain_containers(torch, compile):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"a": nn.Tanh(), "b": nn.ReLU()})
            self.plain = [torch.sigmoid, torch.abs]
            self.order = ("a", "b")

        def forward(self, x, name=None):
            names = self.order if name is None else (name,)
            out = {n: self.heads[n](x) for n in names}
            for fn in self.plain:
                out[fn.__name__] = fn(x)
            return out

    m = Net()
    f = compile(m)
    x = torch.tensor([-1.0, 1.0])
    yield f(x)
    yield f(x, "b")
    m.plain.append(torch.exp)
    yield f(x)
    m.order = ("b",)
    yield f(x, name=None)


@program
def attributes_through_getattr(torch, compile):
    class Wrapper(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

        def forward(self, x):
            return self.inner(x) * self.out_features + self.in_features

    inner = torch.nn.Linear(3, 2)
    torch.nn.init.ones_(inner.weight)
    torch.nn.init.zeros_(inner.bias)
    f = compile(Wrapper(inner))
    yield f(torch.ones(1, 3))
    yield attempt(lambda: f.missing)
    yield f(torch.zeros(1, 3))
