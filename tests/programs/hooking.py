"""Hooks of modules and tensors: traced in order, added and removed between calls."""

from __future__ import annotations

from tests.programs.harness import leaf_tensor, program


def linear(torch, n_in, n_out, value=0.5):
    layer = torch.nn.Linear(n_in, n_out)
    torch.nn.init.constant_(layer.weight, value)
    torch.nn.init.zeros_(layer.bias)
    return layer


@program
def forward_hook_changes_the_output(torch, compile):
    net = linear(torch, 2, 2)
    log = []

    def double(module, args, output):
        log.append((type(module).__name__, len(args)))
        return output * 2

    f = compile(net)
    x = torch.ones(1, 2)
    yield f(x)
    handle = net.register_forward_hook(double)
    yield f(x)
    yield f(x)
    handle.remove()
    yield f(x)
    yield log


@program
def pre_hooks_in_order(torch, compile):
    net = linear(torch, 2, 1)
    log = []

    def named(name, scale):
        def hook(module, args):
            log.append(name)
            return (args[0] * scale,)

        return hook

    net.register_forward_pre_hook(named("a", 2.0))
    net.register_forward_pre_hook(named("b", 3.0))
    net.register_forward_pre_hook(named("first", 1.0), prepend=True)
    f = compile(net)
    for k in range(2):
        yield f(torch.ones(1, 2) * k)
        yield log


@program
def hook_with_keywords(torch, compile):
    class Net(torch.nn.Module):
        def forward(self, x, *, scale=1.0):
            return x * scale

    net = Net()

    def pre(module, args, kwargs):
        return args, {**kwargs, "scale": kwargs.get("scale", 1.0) + 1}

    def post(module, args, kwargs, output):
        return output, kwargs["scale"]

    net.register_forward_pre_hook(pre, with_kwargs=True)
    net.register_forward_hook(post, with_kwargs=True)
    f = compile(net)
    yield f(torch.ones(2))
    yield f(torch.ones(2), scale=4.0)
    yield f(torch.zeros(2), scale=4.0)


@program
def features_collected_by_hooks(torch, compile):
    nn = torch.nn
    net = nn.Sequential(linear(torch, 2, 2), nn.ReLU(), linear(torch, 2, 1))
    features = {}
    for name, module in net.named_children():
        module.register_forward_hook(lambda m, i, o, name=name: features.__setitem__(name, o.mean()))
    f = compile(net)
    for k in range(3):
        yield f(torch.ones(1, 2) * k)
        yield features


@program
def tensor_hook_scales_the_gradient(torch, compile):
    @compile
    def run(w, x):
        h = w * x
        h.register_hook(lambda g: g * 10)
        return (h * h).sum()

    w = leaf_tensor(torch, [1.0, 2.0])
    for k in (1.0, 2.0):
        w.grad = None
        loss = run(w, torch.full((2,), k))
        loss.backward()
        yield loss, w


@program
def parameter_hooks(torch, compile):
    net = linear(torch, 2, 1)
    norms, sizes = [], []
    net.weight.register_hook(lambda g: norms.append(float(g.norm())) or g.clamp(max=1.0))
    net.bias.register_post_accumulate_grad_hook(lambda p: sizes.append(p.grad.shape[0]))
    f = compile(net)
    for k in range(2):
        net.zero_grad()
        f(torch.ones(3, 2) * (k + 1)).sum().backward()
        yield net
        yield norms, sizes


@program
def full_backward_hook(torch, compile):
    nn = torch.nn
    net = nn.Sequential(linear(torch, 2, 2), nn.Tanh(), linear(torch, 2, 1))
    seen = []
    net[0].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].detach().clone()))
    f = compile(net)
    for k in (1.0, 0.5):
        f(torch.ones(1, 2) * k).sum().backward()
        yield seen
    yield net


@program
def hook_removes_itself(torch, compile):
    net = linear(torch, 1, 1)
    handles = []

    def once(module, args, output):
        handles.pop().remove()
        return output + 100

    handles.append(net.register_forward_hook(once))
    f = compile(net)
    for _ in range(3):
        yield f(torch.ones(1, 1))
    yield len(net._forward_hooks)


@program
def state_dict_round_trip(torch, compile):
    a, b = linear(torch, 2, 2, 0.1), linear(torch, 2, 2, 0.9)
    fa, fb = compile(a), compile(b)
    x = torch.ones(1, 2)
    yield fa(x), fb(x)
    b.load_state_dict(a.state_dict())
    yield fa(x), fb(x)
    with torch.no_grad():
        a.weight.add_(1)
    yield fa(x), fb(x)


@program
def spectral_like_reparametrisation(torch, compile):
    class Unit(torch.nn.Module):
        def forward(self, w):
            return w / w.norm()

    net = linear(torch, 2, 2)
    torch.nn.utils.parametrize.register_parametrization(net, "weight", Unit())
    f = compile(net)
    for k in range(2):
        y = f(torch.ones(1, 2) * (k + 1))
        y.sum().backward()
        yield y
    yield net.parametrizations.weight.original
    torch.nn.utils.parametrize.remove_parametrizations(net, "weight")
    yield f(torch.ones(1, 2))
