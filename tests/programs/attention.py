"""Attention and transformers: masks, key-value caches, rotary embeddings, config switches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.programs.harness import program


def filled(torch, module, scale=0.3):
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(torch.linspace(-scale, scale + 0.05 * k, p.numel()).view(p.shape))
    return module


@program(codegen=True)
def causal_self_attention(torch, compile):
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.h = h
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.register_buffer("mask", torch.ones(8, 8).tril().view(1, 1, 8, 8), persistent=False)

        def forward(self, x):
            b, t, d = x.size()
            q, k, v = (y.view(b, t, self.h, d // self.h).transpose(1, 2) for y in self.qkv(x).split(d, dim=2))
            att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
            att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
            return self.proj(y.transpose(1, 2).contiguous().view(b, t, d))

    net = filled(torch, Attention(4, 2))
    f = compile(net)
    for t in (3, 2, 3):
        net.zero_grad()
        y = f(torch.arange(4.0 * t).view(1, t, 4) / 10)
        y.sum().backward()
        yield y, net.proj.weight.grad


@program
def key_value_cache_list(torch, compile):
    F = torch.nn.functional
    w = torch.linspace(-1, 1, 16).view(4, 4)

    @compile
    def step(x, past):
        k, v = x @ w, x @ w.t()
        if past is not None:
            k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
        y = F.scaled_dot_product_attention(x, k, v)
        return y, (k, v)

    past = None
    for t in range(4):
        y, past = step(torch.full((1, 1, 4), 0.1 * t), past)
        yield y, past[0].shape


@program
def static_cache_written_in_place(torch, compile):
    class Cache:
        def __init__(self, n, d):
            self.k, self.v = torch.zeros(1, n, d), torch.zeros(1, n, d)
            self.position = 0

        def update(self, k, v):
            n = k.shape[1]
            self.k[:, self.position : self.position + n] = k
            self.v[:, self.position : self.position + n] = v
            self.position += n
            return self.k[:, : self.position], self.v[:, : self.position]

    cache = Cache(6, 2)

    @compile
    def attend(x):
        k, v = cache.update(x * 0.5, x + 1)
        return (x @ k.transpose(1, 2)).softmax(-1) @ v

    yield attend(torch.ones(1, 2, 2))
    for t in range(3):
        yield attend(torch.full((1, 1, 2), float(t)))
    yield cache.position, cache.k


@program
def cache_dict_per_layer(torch, compile):
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self, index):
            super().__init__()
            self.index = index
            self.proj = filled(torch, nn.Linear(2, 2))

        def forward(self, x, cache=None):
            if cache is not None:
                past = cache.get(self.index)
                keys = x if past is None else torch.cat([past, x], 1)
                cache[self.index] = keys
            else:
                keys = x
            return self.proj((x @ keys.transpose(1, 2)).softmax(-1) @ keys)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer(k) for k in range(2))

        def forward(self, x, use_cache=False, cache=None):
            cache = {} if use_cache and cache is None else cache
            for layer in self.layers:
                x = x + layer(x, cache)
            return x, cache

    f = compile(Model())
    yield f(torch.ones(1, 2, 2))
    cache = None
    for t in range(3):
        y, cache = f(torch.full((1, 1, 2), 0.2 * t), use_cache=True, cache=cache)
        yield y, sorted(cache), cache[1].shape


@program
def rotary_embedding_cached(torch, compile):
    class Rotary:
        def __init__(self, dim, base=100.0):
            self.inv = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
            self.length, self.cos, self.sin = 0, None, None

        def tables(self, t):
            if t > self.length:
                self.length = t
                angles = torch.outer(torch.arange(t).float(), self.inv)
                self.cos, self.sin = angles.cos(), angles.sin()
            return self.cos[:t], self.sin[:t]

        def __call__(self, x):
            cos, sin = self.tables(x.shape[-2])
            a, b = x.chunk(2, dim=-1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    rotary = Rotary(4)
    f = compile(rotary)
    for t in (2, 3, 2, 4):
        yield f(torch.ones(1, t, 4))
        yield rotary.length


@program
def transformer_block_by_config(torch, compile):
    nn = torch.nn

    @dataclass
    class Config:
        d: int = 4
        norm: str = "layer"
        activation: str = "gelu"
        prenorm: bool = True
        bias: bool = True

    class Block(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.cfg = cfg
            self.norm = nn.LayerNorm(cfg.d) if cfg.norm == "layer" else nn.RMSNorm(cfg.d)
            self.up = nn.Linear(cfg.d, 2 * cfg.d, bias=cfg.bias)
            self.down = nn.Linear(2 * cfg.d, cfg.d, bias=cfg.bias)

        def mlp(self, x):
            return self.down(getattr(nn.functional, self.cfg.activation)(self.up(x)))

        def forward(self, x):
            if self.cfg.prenorm:
                return x + self.mlp(self.norm(x))
            return self.norm(x + self.mlp(x))

    x = torch.arange(8.0).view(2, 4) / 8
    for cfg in (Config(), Config(norm="rms", activation="silu"), Config(prenorm=False, bias=False)):
        net = filled(torch, Block(cfg))
        f = compile(net)
        yield f(x)
        cfg.activation = "relu"
        y = f(x)
        y.sum().backward()
        yield y, net.up.weight.grad


@program
def attention_weights_recorded(torch, compile):
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.maps, self.record = [], False

        def forward(self, x, bias=None):
            scores = x @ x.transpose(-2, -1)
            if bias is not None:
                scores = scores + bias
            weights = scores.softmax(-1)
            if self.record:
                self.maps.append(weights.detach())
            return weights @ x

    net = Attention()
    f = compile(net)
    x = torch.arange(4.0).view(1, 2, 2) / 4
    yield f(x)
    net.record = True
    yield f(x), f(x, torch.tensor([[0.0, -10.0], [0.0, 0.0]]))
    yield net.maps
    net.record = False
    yield f(x), len(net.maps)


@program
def encoder_layer_of_the_library(torch, compile):
    nn = torch.nn
    layer = filled(torch, nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True))
    f = compile(layer)
    mask = torch.triu(torch.full((3, 3), float("-inf")), diagonal=1)
    for k in range(2):
        x = torch.arange(12.0).view(1, 3, 4) * 0.1 + k
        yield f(x)
        yield f(x, src_mask=mask)


@program
def tied_embeddings(torch, compile):
    nn = torch.nn

    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.emb.weight

        def forward(self, ids, targets=None):
            logits = self.head(self.emb(ids).cumsum(1))
            if targets is None:
                return logits[:, [-1]], None
            loss = nn.functional.cross_entropy(logits.view(-1, 5), targets.view(-1), ignore_index=-1)
            return logits, loss

    net = filled(torch, Tiny())
    f = compile(net)
    ids = torch.tensor([[0, 3, 2]])
    yield f(ids)
    for _ in range(2):
        net.zero_grad()
        logits, loss = f(ids, torch.tensor([[3, -1, 1]]))
        loss.backward()
        yield logits, loss, net.emb.weight.grad


@program
def relative_position_buckets(torch, compile):
    @compile
    def buckets(n, m, count=8, far=16):
        rel = torch.arange(m)[None, :] - torch.arange(n)[:, None]
        half = count // 2
        side = (rel > 0).long() * half
        dist = rel.abs()
        exact = half // 2
        large = exact + ((dist.float() / exact).clamp(min=1).log() / math.log(far / exact) * (half - exact)).long()
        return side + torch.where(dist < exact, dist, large.clamp(max=half - 1))

    yield buckets(3, 4)
    yield buckets(6, 6)
    yield buckets(3, 4, count=4)
