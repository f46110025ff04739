"""Small models through engines: forward and a training step, equal to eager code.

A ResNet of four stages, a GPT, an LSTM and a vision transformer. TVM compiles each for a minute: with --long.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import distcompile as dc
from compiler_core.backend import find_backend
from compiler_core.errors import MissingPackageError
from distcompile import nn
from distcompile.nn import functional as F

ENGINES = ("onnxrt", "openxla", "openvino", pytest.param("tvm", marks=pytest.mark.long))


class Residual(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.beside = nn.Conv2d(inside, out, 1, stride, bias=False)

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.beside(x))


def resnet() -> tuple[nn.Module, dc.Tensor]:
    stages = [Residual(a, b, s) for a, b, s in ((16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2))]
    stem = [nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), dc.randn(
        2, 3, 32, 32
    )


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norms[0](x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(y)
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.blocks, self.norm = nn.Sequential(Block(32, 4), Block(32, 4)), nn.LayerNorm(32)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: dc.Tensor) -> dc.Tensor:
        x = self.tokens(tokens) + self.places(dc.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.out = nn.LSTM(8, 16, 2, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        return self.out(self.layers(x)[0][:, -1])


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, 32, 4, 4), nn.Parameter(dc.zeros(1, 1, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, 5)

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = dc.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        return self.head(self.encoder(x)[:, 0])


MODELS: dict[str, Callable[[], tuple[nn.Module, dc.Tensor]]] = {
    "resnet": resnet,
    "gpt": lambda: (GPT(), dc.randint(0, 50, (2, 12))),
    "lstm": lambda: (LSTM(), dc.randn(4, 10, 8)),
    "vit": lambda: (ViT(), dc.randn(2, 3, 16, 16)),
}


def trained(backend: str | None, name: str) -> tuple[dc.Tensor, list[dc.Tensor]]:
    """The outputs of a forward, and the parameters and buffers after two steps of SGD."""
    dc.manual_seed(0)
    net, x = MODELS[name]()
    run = net if backend is None else dc.compile(net, backend=backend, fullgraph=True)
    optimizer = dc.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    outputs = []
    for _ in range(2):
        optimizer.zero_grad()
        y = run(x)
        (y * y).mean().backward()
        optimizer.step()
        outputs.append(y.detach())
    return dc.stack(outputs), [*(p.detach() for p in net.parameters()), *net.buffers()]


@pytest.mark.filterwarnings("ignore:.*is run by our own code")
@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_as_eager(name: str, backend: str) -> None:
    try:
        find_backend(backend)
    except MissingPackageError as error:
        pytest.skip(str(error))
    (outputs, state), (expected, wanted) = trained(backend, name), trained(None, name)
    assert dc.allclose(outputs, expected, rtol=1e-3, atol=1e-5)
    for ours, theirs in zip(state, wanted, strict=True):
        assert dc.allclose(ours, theirs, rtol=1e-3, atol=1e-5)
