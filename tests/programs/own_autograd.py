"""custom autograd.Function, detach, retain_grad, gradients of gradients, checkpointing."""

from __future__ import annotations

from tests.programs.harness import leaf_tensor, program


@program
def straight_through_estimator(torch, compile):
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return grad

    @compile
    def quantised(w, x, bits):
        scale = 2**bits - 1
        return (Round.apply(w * scale) / scale * x).sum()

    for bits in (1, 2, 2):
        w = leaf_tensor(torch, [0.3, 0.8])
        loss = quantised(w, torch.ones(2), bits)
        loss.backward()
        yield loss, w


@program
def saved_tensors_and_constants(torch, compile):
    class ScaledExp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            y = (x * scale).exp()
            ctx.save_for_backward(y)
            ctx.scale = scale
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y * ctx.scale * 2, None

    @compile
    def run(x, scale):
        return ScaledExp.apply(x, scale).sum()

    for scale in (1.0, 0.5, 1.0):
        x = leaf_tensor(torch, [0.0, 1.0])
        loss = run(x, scale)
        loss.backward()
        yield loss, x


@program
def gradient_reversal(torch, compile):
    nn = torch.nn

    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, strength):
            ctx.strength = strength
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return -ctx.strength * grad, None

    class Domain(nn.Module):
        def __init__(self):
            super().__init__()
            self.strength = 0.0
            self.w = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return (Reverse.apply(x * self.w, self.strength) ** 2).sum()

    net = Domain()
    f = compile(net)
    for k in range(3):
        net.strength = 0.5 * k
        net.w.grad = None
        f(torch.arange(2.0)).backward()
        yield net


@program
def retain_grad_and_inspect(torch, compile):
    @compile
    def run(w):
        h = w * 3
        h.retain_grad()
        return (h**2).sum(), h

    for k in (1.0, 2.0):
        w = leaf_tensor(torch, [k, 1.0])
        loss, h = run(w)
        loss.backward()
        yield loss, w, h.grad


@program
def detach_parts_of_a_loss(torch, compile):
    @compile
    def run(a, b, stop):
        target = b.detach() if stop else b
        return ((a - target) ** 2).sum() + (a.detach() * b).sum()

    for stop in (True, False, True):
        a, b = leaf_tensor(torch, [1.0, 2.0]), leaf_tensor(torch, [0.5, -1.0])
        loss = run(a, b, stop)
        loss.backward()
        yield loss, a, b


@program
def gradient_penalty_eager_outside(torch, compile):
    @compile
    def critic(x, w):
        return torch.tanh(x @ w).sum()

    w = leaf_tensor(torch, [[0.5], [1.0]])
    for k in range(2):
        x = leaf_tensor(torch, [[1.0, 0.5 * k]])
        value = critic(x, w)
        (gx,) = torch.autograd.grad(value, x)
        yield value, gx, w.grad


@program
def activation_checkpointing(torch, compile):
    checkpoint = torch.utils.checkpoint.checkpoint
    calls = []

    def block(x, w):
        calls.append("block")
        return torch.tanh(x * w) * x

    @compile
    def run(x, w):
        return checkpoint(lambda h: (h * w).sin() * h, x, use_reentrant=False).sum()

    yield block(torch.ones(1), 2.0)
    for k in (1.0, 2.0):
        w = leaf_tensor(torch, [k, 1.0])
        loss = run(torch.ones(2), w)
        loss.backward()
        yield loss, w
    yield calls


@program
def several_backwards_through_one_forward(torch, compile):
    @compile
    def run(w):
        return (w**2).sum(), (w**3).sum()

    w = leaf_tensor(torch, [1.0, 2.0])
    a, b = run(w)
    a.backward(retain_graph=True)
    yield w
    b.backward()
    yield w
    a, b = run(w)
    (a + b).backward()
    yield w


@program
def requires_grad_changes(torch, compile):
    @compile
    def run(x, y):
        return (x * y).sum()

    x, y = torch.ones(2), leaf_tensor(torch, [1.0, 3.0])
    yield run(x, y)
    x.requires_grad_(True)
    loss = run(x, y)
    loss.backward()
    yield loss, x, y
    y.requires_grad_(False)
    yield run(x, y), run(x.detach(), y)


@program
def intermediate_gradients_by_autograd_grad(torch, compile):
    @compile
    def hidden(x, w):
        return torch.tanh(x * w)

    w = leaf_tensor(torch, [0.5, 1.0])
    for k in (1.0, 2.0):
        h = hidden(torch.full((2,), k), w)
        loss = (h**2).sum()
        yield torch.autograd.grad(loss, [h, w])


@program
def function_with_two_outputs(torch, compile):
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            positive = x > 0
            ctx.save_for_backward(positive)
            return x.clamp(min=0), x.clamp(max=0)

        @staticmethod
        def backward(ctx, up, down):
            (positive,) = ctx.saved_tensors
            return torch.where(positive, up * 2, down * 3)

    @compile
    def run(x):
        up, down = Split.apply(x)
        return up.sum() + (down * down).sum()

    for sign in (1.0, -1.0):
        x = leaf_tensor(torch, [sign, -2.0 * sign])
        loss = run(x)
        loss.backward()
        yield loss, x
