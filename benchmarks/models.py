"""The models that are measured: an MLP, GPTs and LSTM language models of two sizes, ResNets, two of small layers.

They are written once for both frameworks.

In: a name. Out: `make(name)` -> Case(model, batch, optimizer factory); `chain` for the pointwise case.
The sizes are those of the project's recorded torch numbers. A model called on its batch returns its loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from framework import F, nn, torch
from resnet import resnet18, resnet50


class MLP(nn.Module):
    """784-1024-1024-10, or of other widths, with ReLU and cross entropy."""

    def __init__(self, inputs: int = 784, width: int = 1024, classes: int = 10) -> None:
        super().__init__()
        self.l1 = nn.Linear(inputs, width)
        self.l2 = nn.Linear(width, width)
        self.l3 = nn.Linear(width, classes)

    def forward(self, x: Any, y: Any) -> Any:
        h = F.relu(self.l1(x))  # (N, width)
        h = F.relu(self.l2(h))  # (N, width)
        return F.cross_entropy(self.l3(h), y)


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.n2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, time, width = x.shape
        parts = self.qkv(self.n1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for t in parts)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, heads, T, width / heads)
        x = x + self.out(a.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Decoder-only transformer with learned positions; the loss is the mean cross entropy of the next token."""

    def __init__(self, layers: int, width: int, heads: int, time: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(time, width) * 0.02)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.vocabulary = vocabulary

    def forward(self, x: Any, y: Any) -> Any:
        h = self.tokens(x) + self.positions  # (B, T, width)
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).view(-1, self.vocabulary), y.view(-1))


class Normed(nn.Module):
    """20 x (Linear 64 + BatchNorm): many small parameters and buffers."""

    def __init__(self) -> None:
        super().__init__()
        pairs = [nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)) for _ in range(20)]
        self.layers = nn.Sequential(*pairs)

    def forward(self, x: Any, y: Any) -> Any:
        return F.mse_loss(self.layers(x), y)


class Narrow(nn.Module):
    """6 x Linear(64): with a bucket a parameter, 12 buckets of at most 16 KiB."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x: Any, y: Any) -> Any:
        return F.mse_loss(self.layers(x), y)


class LanguageModel(nn.Module):
    """Embedding, two LSTM layers, a decoder; as PyTorch's word_language_model example. Tokens: (T, B)."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, 2)
        self.decoder = nn.Linear(width, vocabulary)
        self.vocabulary = vocabulary

    def forward(self, x: Any, y: Any) -> Any:
        hidden, _ = self.rnn(self.encoder(x))  # (T, B, width)
        return F.cross_entropy(self.decoder(hidden).view(-1, self.vocabulary), y.view(-1))


@dataclass(frozen=True)
class Case:
    """A training step's ingredients. clip: the norm that gradients are clipped to, if not None."""

    model: Any
    batch: tuple[Any, Any]
    optimizer: Callable[[Any], Any]
    clip: float | None = None

    @property
    def gradient_nbytes(self) -> int:
        return 4 * sum(p.numel() for p in self.model.parameters())


def _adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=3e-4)


def _sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)


def _plain_sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=1.0)


def _tokens(batch: int, time: int, vocabulary: int) -> tuple[Any, Any]:
    return torch.randint(0, vocabulary, (batch, time)), torch.randint(0, vocabulary, (batch, time))


def make(name: str) -> Case:
    """The case called `name`: mlp, tiny (an MLP of width 64), gpt (3.4 M parameters), gptbig (21 M), resnet, resnet50,

    lstm (width 200), lstmbig (650), normed, narrow; gpt12 and the like: so many layers of d=64. Raises SystemExit for
    others.
    """
    torch.manual_seed(0)
    if name == "mlp":
        return Case(MLP(), (torch.randn(128, 784), torch.randint(0, 10, (128,))), _sgd)
    if name == "tiny":
        return Case(MLP(32, 64, 8), (torch.randn(16, 32), torch.randint(0, 8, (16,))), _adamw)
    if name == "gpt":
        return Case(GPT(4, 256, 4, 128, 512), _tokens(8, 128, 512), _adamw)
    if name.removeprefix("gpt").isdigit():
        return Case(GPT(int(name.removeprefix("gpt")), 64, 4, 64, 256), _tokens(2, 64, 256), _adamw)
    if name == "gptbig":
        return Case(GPT(6, 512, 8, 128, 2048), _tokens(4, 128, 2048), _adamw)
    if name == "resnet":
        return Case(resnet18(), (torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))), _sgd)
    if name == "resnet50":
        return Case(resnet50(), (torch.randn(32, 3, 64, 64), torch.randint(0, 10, (32,))), _sgd)
    if name in ("lstm", "lstmbig"):
        model = LanguageModel(200 if name == "lstm" else 650, 10_000)
        return Case(model, _tokens(35, 20, 10_000), _plain_sgd, clip=0.25)
    if name in ("normed", "narrow"):
        model = Normed() if name == "normed" else Narrow()
        return Case(model, (torch.randn(32, 64), torch.randn(32, 64)), _sgd)
    raise SystemExit(f"no model {name!r}: mlp, tiny, gpt, gptbig, resnet, resnet50, lstm, lstmbig, normed or narrow")


def chain(x: Any) -> Any:
    """The pointwise case."""
    return torch.sin(torch.cos(x))
