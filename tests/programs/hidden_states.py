"""Lists of hidden states, recurrent loops, and sequences built step by step."""

from __future__ import annotations

from tests.programs.harness import program


def fill(torch, module, value=0.1):
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.fill_(value * (k + 1))
    return module


@program(codegen=True)
def rnn_over_time(torch, compile):
    cell = fill(torch, torch.nn.RNNCell(2, 3))

    @compile
    def encode(xs):
        h = torch.zeros(xs.shape[1], 3)
        states = []
        for x in xs:
            h = cell(x, h)
            states.append(h)
        return torch.stack(states), h

    for length in (2, 3, 2):
        yield encode(torch.ones(length, 1, 2))


@program
def lstm_with_state_between_calls(torch, compile):
    cell = fill(torch, torch.nn.LSTMCell(2, 2))
    state = None

    @compile
    def step(x):
        nonlocal state
        state = cell(x, state)
        return state[0].sum()

    for k in range(4):
        yield step(torch.full((1, 2), 0.5 * k))
    yield state


@program
def gru_packed_in_a_class(torch, compile):
    class Decoder:
        def __init__(self):
            self.cell = fill(torch, torch.nn.GRUCell(3, 3), 0.05)
            self.h = torch.zeros(1, 3)
            self.emitted = []

        def step(self, x):
            self.h = self.cell(x, self.h)
            self.emitted.append(self.h)
            return self.h

    decoder = Decoder()
    step = compile(decoder.step)
    x = torch.ones(1, 3)
    for _ in range(3):
        x = step(x)
        yield x
    yield len(decoder.emitted), decoder.emitted[-1]


@program
def skip_connections_by_list(torch, compile):
    nn = torch.nn
    down = nn.ModuleList(fill(torch, nn.Linear(4, 4), 0.01) for _ in range(3))
    up = nn.ModuleList(fill(torch, nn.Linear(8, 4), 0.02) for _ in range(3))

    @compile
    def unet(x):
        skips = []
        for layer in down:
            x = layer(x).relu()
            skips.append(x)
        for layer in up:
            x = layer(torch.cat([x, skips.pop()], dim=-1))
        assert not skips
        return x

    for k in range(3):
        yield unet(torch.ones(1, 4) * k)


@program
def gradient_through_time(torch, compile):
    w = torch.nn.Parameter(torch.eye(2) * 0.5)

    @compile
    def loss(xs):
        h = torch.zeros(2)
        for x in xs.unbind(0):
            h = torch.tanh(w @ h + x)
        return (h**2).sum()

    for k in range(3):
        w.grad = None
        value = loss(torch.ones(3, 2) * k)
        value.backward()
        yield value, w


@program
def truncated_backpropagation(torch, compile):
    w = torch.nn.Parameter(torch.ones(2))

    @compile
    def chunk(h, xs):
        h = h.detach()
        total = 0.0
        for x in xs:
            h = torch.sigmoid(h * w + x)
            total = total + h.mean()
        return h, total

    h = torch.zeros(2)
    for k in range(3):
        h, total = chunk(h, torch.ones(2, 2) * k)
        total.backward()
        yield h, total
    yield w


@program
def bidirectional_by_reversed(torch, compile):
    @compile
    def both(xs):
        forward, backward = [], []
        h = g = torch.zeros(2)
        for x in xs:
            h = h * 0.5 + x
            forward.append(h)
        for x in reversed(list(xs)):
            g = g * 0.5 + x
            backward.insert(0, g)
        return [torch.cat(pair) for pair in zip(forward, backward, strict=True)]

    yield both(torch.arange(6.0).reshape(3, 2))
    yield both([torch.ones(2), torch.zeros(2)])


@program
def states_of_all_layers(torch, compile):
    nn = torch.nn

    class Encoder(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.blocks = nn.ModuleList(fill(torch, nn.Linear(2, 2), 0.1 * k + 0.1) for k in range(layers))

        def forward(self, x, output_hidden_states=False, exit_at=None):
            states = () if output_hidden_states else None
            for k, block in enumerate(self.blocks):
                if states is not None:
                    states += (x,)
                x = block(x).tanh()
                if exit_at is not None and k >= exit_at:
                    break
            else:
                x = x * 2
            return {"last": x, "states": states} if output_hidden_states else (x,)

    f = compile(Encoder(3))
    x = torch.ones(1, 2)
    yield f(x)
    yield f(x, output_hidden_states=True)
    yield f(x, True, exit_at=1)
    yield f(x, exit_at=5)


@program
def sequence_padded_to_the_longest(torch, compile):
    @compile
    def pad(seqs, value=0.0):
        longest = max(s.shape[0] for s in seqs)
        rows, mask = [], []
        for s in seqs:
            n = s.shape[0]
            rows.append(torch.nn.functional.pad(s, (0, longest - n), value=value))
            mask.append([1] * n + [0] * (longest - n))
        return torch.stack(rows), torch.tensor(mask, dtype=torch.bool)

    yield pad([torch.ones(2), torch.ones(4), torch.ones(1)])
    yield pad([torch.ones(3)], value=-1.0)
    yield pad([torch.ones(2), torch.ones(4), torch.ones(1)])


@program
def greedy_generation(torch, compile):
    emb = torch.arange(20.0).reshape(5, 4).cos()

    @compile
    def next_logits(tokens):
        h = emb[tokens].cumsum(0)
        return h[-1] @ emb.t()

    tokens = torch.tensor([1])
    for _ in range(4):
        nxt = next_logits(tokens).argmax()
        tokens = torch.cat([tokens, nxt[None]])
        yield tokens


@program
def generation_compiled_whole(torch, compile):
    emb = torch.arange(20.0).reshape(5, 4).sin()

    @compile
    def generate(first, n):
        tokens = [first]
        for _ in range(n):
            logits = emb[torch.stack(tokens)].mean(0) @ emb.t()
            tokens.append(logits.argmax())
        return torch.stack(tokens)

    yield generate(torch.tensor(2), 3)
    yield generate(torch.tensor(0), 3)
    yield generate(torch.tensor(2), 1)
