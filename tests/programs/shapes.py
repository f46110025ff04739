"""Code about shapes, as in einops and vision models: reshapes, patches, broadcasting, sizes in Python."""

from __future__ import annotations

import math

from tests.programs.harness import attempt, program


@program
def patches_of_images(torch, compile):
    def rearrange(x, ph, pw):
        b, c, h, w = x.shape
        assert h % ph == 0 and w % pw == 0, (h, w)
        x = x.reshape(b, c, h // ph, ph, w // pw, pw)
        return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

    f = compile(rearrange)
    yield f(torch.arange(32.0).reshape(1, 2, 4, 4), 2, 2)
    yield f(torch.arange(32.0).reshape(1, 2, 4, 4), 2, 4)
    yield attempt(f, torch.ones(1, 1, 3, 4), 2, 2)


@program
def pattern_language(torch, compile):
    def parse(side):
        return side.split()

    @compile
    def rearrange(x, pattern):
        left, right = (parse(s) for s in pattern.split("->"))
        if sorted(left) != sorted(right):
            raise ValueError(f"{left} is not {right}")
        sizes = dict(zip(left, x.shape))
        return x.permute([left.index(n) for n in right]), sizes

    x = torch.arange(24.0).reshape(2, 3, 4)
    yield rearrange(x, "b h w -> w b h")
    yield rearrange(x, "b h w -> h w b")
    yield attempt(rearrange, x, "b h w -> h w c")


@program
def heads_split_and_merged(torch, compile):
    class Heads:
        def __init__(self, n):
            self.n = n

        def split(self, x):
            *batch, t, d = x.shape
            return x.view(*batch, t, self.n, d // self.n).transpose(-3, -2)

        def merge(self, x):
            x = x.transpose(-3, -2)
            return x.reshape(*x.shape[:-2], -1)

    heads = Heads(2)

    @compile
    def run(x):
        y = heads.split(x)
        return heads.merge(y * torch.arange(1.0, 3.0).view(2, 1, 1)), tuple(y.shape), y.stride()

    yield run(torch.arange(12.0).reshape(1, 3, 4))
    yield run(torch.arange(8.0).reshape(2, 4))
    heads.n = 1
    yield attempt(run, torch.ones(1, 2, 4))


@program
def sizes_as_numbers(torch, compile):
    @compile
    def run(x):
        n, d = x.size()
        scale = 1 / math.sqrt(d)
        steps = math.ceil(n / 2)
        parts = [x[k * 2 : k * 2 + 2].sum() for k in range(steps)]
        return torch.stack(parts) * scale, x.numel(), x.size(-1), x.ndim, len(x), list(x.shape)

    yield run(torch.ones(5, 4))
    yield run(torch.ones(3, 9))
    yield run(torch.ones(5, 4))


@program
def broadcast_shapes_by_hand(torch, compile):
    def broadcast(a, b):
        n = max(len(a), len(b))
        a, b = (1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)
        if any(p != q and 1 not in (p, q) for p, q in zip(a, b)):
            raise ValueError(f"{a} and {b}")
        return tuple(max(p, q) for p, q in zip(a, b))

    @compile
    def run(x, y):
        shape = broadcast(x.shape, y.shape)
        return (x.expand(shape) * y.expand(*shape)).shape == torch.Size(shape), x + y

    yield run(torch.ones(2, 1), torch.ones(3))
    yield run(torch.ones(1), torch.ones(2, 2))
    yield attempt(run, torch.ones(2), torch.ones(3))


@program
def positions_and_grids(torch, compile):
    @compile
    def grid(h, w, device="cpu", dtype=None):
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        coords = torch.stack([ys, xs], dim=-1)
        return coords.to(dtype) if dtype else coords, torch.arange(h * w, device=device).view(h, w)

    yield grid(2, 3)
    yield grid(2, 2, dtype=torch.float64)
    yield grid(2, 3)


@program
def sinusoidal_embedding(torch, compile):
    @compile
    def embed(t, dim, base=100.0):
        half = dim // 2
        freqs = torch.exp(-math.log(base) * torch.arange(half) / half)
        args = t[:, None].float() * freqs[None]
        out = torch.cat([args.cos(), args.sin()], dim=-1)
        if dim % 2:
            out = torch.cat([out, torch.zeros_like(out[:, :1])], dim=-1)
        return out

    yield embed(torch.tensor([0, 1, 5]), 4)
    yield embed(torch.tensor([2]), 5)
    yield embed(torch.tensor([2, 3]), 5, base=10.0)


@program
def padding_to_multiples(torch, compile):
    F = torch.nn.functional

    @compile
    def windows(x, size):
        length = x.shape[-1]
        missing = -length % size
        if missing:
            x = F.pad(x, (0, missing))
        x = x.unflatten(-1, (-1, size))
        y = x.roll(1, dims=-1).flatten(-2)
        return y[..., :length], missing

    yield windows(torch.arange(5.0), 2)
    yield windows(torch.arange(6.0), 3)
    yield windows(torch.arange(5.0), 4)
    yield windows(torch.arange(5.0)[None], 2)


@program
def convolution_sizes(torch, compile):
    nn = torch.nn

    class Stem(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3, stride=2)
            nn.init.constant_(self.conv.weight, 0.1)
            nn.init.zeros_(self.conv.bias)

        def forward(self, x):
            h, w = x.shape[-2:]
            pads = [max((math.ceil(n / 2) - 1) * 2 + 3 - n, 0) for n in (w, h)]
            x = nn.functional.pad(x, [pads[0] // 2, pads[0] - pads[0] // 2, pads[1] // 2, pads[1] - pads[1] // 2])
            return self.conv(x)

    f = compile(Stem())
    yield f(torch.ones(1, 1, 5, 6))
    yield f(torch.ones(1, 1, 4, 4))


@program
def adaptive_concatenation(torch, compile):
    @compile
    def merge(features, dim=1):
        target = max(f.shape[-1] for f in features)
        out = []
        for f in features:
            if f.shape[-1] < target:
                f = f.repeat_interleave(target // f.shape[-1], dim=-1)
            out.append(f)
        cat = torch.cat(out, dim=dim)
        return cat, [c.shape[dim] for c in cat.split([f.shape[dim] for f in features], dim)]

    yield merge([torch.arange(2.0).view(1, 1, 2), torch.arange(4.0).view(1, 1, 4)])
    yield merge([torch.ones(1, 2, 3)])
    yield merge([torch.ones(1, 2, 1), torch.zeros(1, 1, 1)], dim=-2)


@program
def squeeze_and_ellipsis(torch, compile):
    @compile
    def run(x, axis):
        x = x[None, ..., None]
        y = x.squeeze(axis)
        z = y[..., 0] if y.shape[-1] == 1 else y[..., -1, :]
        return y.shape, z, x[:, :, ::2].shape, y.movedim(0, -1).shape

    yield run(torch.arange(6.0).reshape(2, 3), 0)
    yield run(torch.arange(6.0).reshape(2, 3), -1)
    yield run(torch.arange(4.0).reshape(2, 2), 0)


@program
def einsum_with_built_equations(torch, compile):
    @compile
    def contract(x, w, axes):
        letters = "abcdefgh"[: x.ndim]
        new = {k: "xyz"[i] for i, k in enumerate(axes)}
        out = "".join(new.get(k, c) for k, c in enumerate(letters))
        kept = "".join(letters[k] for k in axes)
        equation = f"{letters},{kept}{''.join(new.values())}->{out}"
        return torch.einsum(equation, x, w), equation

    yield contract(torch.ones(2, 3), torch.ones(3, 4), [1])
    yield contract(torch.ones(2, 3), torch.full((2, 2), 2.0), [0])
    yield contract(torch.ones(2, 3, 2), torch.ones(3, 1), [1])
