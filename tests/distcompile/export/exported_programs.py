"""Programs as users write them: a module, example arguments, which sizes may change, and more calls.

In: nothing. Out: `PROGRAMS`: name -> `Program`. Each is made anew where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import distcompile as torch
import distcompile.nn.functional as F
from distcompile import nn
from distcompile.export import Dim

AUTO = Dim.AUTO


@dataclass
class Program:
    """more: (args, kwargs) of further calls."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    more: list[tuple[Any, ...]] = field(default_factory=list)


PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


class Of(nn.Module):
    """A module whose forward is a function of it, and that has these attributes."""

    def __init__(self, run: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)
        self.run = run

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)


def example(run: Callable[..., Any], *args: Any, **attributes: Any) -> Program:
    """A program without sizes that change."""
    return Program(Of(run, **attributes), args)


@program
def perceptron_batch_of_one() -> Program:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return Program(net, (torch.randn(3, 4),), {}, ({0: Dim("b")},), [(torch.randn(1, 4),), (torch.randn(7, 4),)])


@program
def convolutions_in_eval() -> Program:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    return Program(net.eval(), (torch.randn(3, 3, 8, 8),), {}, ({0: Dim("b")},), [(torch.randn(1, 3, 8, 8),)])


@program
def images_of_any_size() -> Program:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    dims = ({0: AUTO, 2: AUTO, 3: AUTO},)
    return Program(net.eval(), (torch.randn(2, 3, 16, 16),), {}, dims, [(torch.randn(1, 3, 20, 12),)])


@program
def batch_norm_in_training() -> Program:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    return Program(net, (torch.randn(3, 4),), {}, ({0: Dim("b")},), [(torch.randn(5, 4),)])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(tokens))


@program
def tied_weights() -> Program:
    tokens = torch.randint(0, 10, (2, 3))
    return Program(Tied(), (tokens,), {}, ({0: Dim("b"), 1: Dim("t")},), [(torch.randint(0, 10, (4, 1)),)])


class Nested(nn.Module):
    def forward(self, x: Any, *, mask: Any = None, extra: Any) -> Any:
        return {"a": x + extra["k"][0], "b": [(x * 2, None), 3, "s"], "m": mask}


@program
def nested_arguments_and_results() -> Program:
    return Program(Nested(), (torch.randn(2),), {"extra": {"k": (torch.ones(2),)}, "mask": None})


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("sums", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        self.seen += 1
        self.sums.mul_(2).add_(x.sum(0))
        return x + self.seen, self.sums


@program
def buffers_written() -> Program:
    return Program(Counting(), (torch.randn(3, 2),))


@program
def arguments_written() -> Program:
    def run(self: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        y[0] = x.sum()
        return x * 2, x

    return example(run, torch.randn(3, 2), torch.zeros(4))


@program
def one_tensor_twice() -> Program:
    same = torch.randn(3)
    return Program(Of(lambda self, x, y: x - 2 * y), (same, same), more=[(torch.randn(3), torch.randn(3))])


@program
def arguments_that_are_views() -> Program:
    whole = torch.randn(3, 3)
    made = Of(lambda self, x, y: (x @ y, x.t(), y[0]))
    return Program(made, (whole.t(), whole[:, :2]))


@program
def sizes_that_are_equal() -> Program:
    dim = Dim("d")
    shapes = {"x": {0: dim}, "y": {0: dim}}

    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    return Program(Sum(), (torch.randn(8), torch.randn(8)), {}, shapes, [(torch.randn(3), torch.randn(3))])


@program
def a_size_that_follows_from_another() -> Program:
    dim = Dim("d")

    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y[1:]

    return Program(
        Shifted(), (torch.randn(8), torch.randn(9)), {}, ({0: dim}, {0: dim + 1}), [(torch.randn(3), torch.randn(4))]
    )


@program
def control_flow_on_sizes() -> Program:
    class Longer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cumsum(0) if x.shape[0] > 4 else x.mean(0)

    return Program(Longer(), (torch.randn(8, 2),), {}, ({0: Dim("n", min=5)},), [(torch.randn(6, 2),)])


@program
def a_size_returned() -> Program:
    class Sized(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2, x.shape[0], 2 * x.shape[0] + 1

    return Program(Sized(), (torch.randn(8, 2),), {}, ({0: Dim("n")},), [(torch.randn(6, 2),)])


@program
def a_tensor_that_is_no_buffer() -> Program:
    return example(lambda self, x: x + self.table, torch.randn(20), table=torch.arange(20.0))


@program
def dropout_of_nothing() -> Program:
    return Program(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)), (torch.randn(2, 3),))


@program
def dropout_in_eval() -> Program:
    return Program(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval(), (torch.randn(2, 3),))


@program
def transformer() -> Program:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), 2)
    dims = ({0: Dim("b"), 1: Dim("t")},)
    return Program(net, (torch.randn(2, 5, 8),), {}, dims, [(torch.randn(3, 9, 8),), (torch.randn(1, 1, 8),)])


@program
def transformer_in_eval() -> Program:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    return Program(net, (torch.randn(2, 5, 8),), {}, ({0: Dim("b"), 1: Dim("t")},), [(torch.randn(3, 9, 8),)])


@program
def recurrent() -> Program:
    net = nn.LSTM(3, 4, batch_first=True)
    return Program(net, (torch.randn(2, 5, 3),), {}, ({0: Dim("b")},), [(torch.randn(1, 5, 3),)])


@program
def numbers_and_flags() -> Program:
    class Repeated(nn.Module):
        def forward(self, x: torch.Tensor, n: int, flag: bool = True) -> torch.Tensor:
            return x.repeat(n, 1) if flag else x

    return Program(Repeated(), (torch.randn(3), 2))


@program
def named_results() -> Program:
    return example(lambda self, x: x.max(0), torch.randn(3, 4))


@program
def branches() -> Program:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    return Program(Of(run), (torch.randn(3),), more=[(torch.ones(3),), (-torch.ones(3),)])


@program
def positions() -> Program:
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(10, 4), nn.Embedding(16, 4)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))

    return Program(
        Text(), (torch.randint(0, 10, (2, 5)),), {}, ({1: Dim("t", max=16)},), [(torch.randint(0, 10, (2, 16)),)]
    )


@program
def a_part_of_a_mask() -> Program:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.ones(16, 16).tril().bool())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            t = x.shape[1]
            return x.masked_fill(~self.mask[:t, :t], 0.0)

    dim = Dim("t", max=16)
    more = [(torch.randn(2, 16, 16),), (torch.randn(2, 1, 1),)]
    return Program(Causal(), (torch.randn(2, 5, 5),), {}, ({1: dim, 2: dim},), more)


@program
def parameters_and_views_returned() -> Program:
    def run(self: Any, x: torch.Tensor) -> Any:
        return self.weight, self.weight[0], x, x.t(), x[1:]

    return example(run, torch.randn(3, 2), weight=nn.Parameter(torch.ones(3, 2)))


@program
def many_dtypes() -> Program:
    def run(self: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.to(torch.bfloat16).float() + y, y > 0, y.to(torch.complex64), y // 2

    return example(run, torch.randn(3, dtype=torch.float64), torch.arange(3))


@program
def no_grad_inside() -> Program:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scaled = x * self.weight
        return scaled + self.weight

    return example(run, torch.randn(3), weight=nn.Parameter(torch.ones(3)))


@program
def groups_and_pixels() -> Program:
    net = nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.GroupNorm(2, 8), nn.GELU(), nn.PixelShuffle(2))
    return Program(net, (torch.randn(2, 4, 6, 6),), {}, ({0: AUTO, 2: AUTO},), [(torch.randn(1, 4, 8, 6),)])


@program
def losses() -> Program:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            logits = self.net(x)
            return {"loss": F.cross_entropy(logits, y), "logits": logits}

    batch = Dim("batch")
    more = [(torch.randn(2, 4), torch.tensor([0, 2]))]
    return Program(
        Trained(), (torch.randn(3, 4), torch.tensor([0, 1, 2])), {}, {"x": {0: batch}, "y": {0: batch}}, more
    )


@program
def a_mask_of_heads() -> Program:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            rows = torch.arange(x.shape[0])[:, None]
            places = torch.arange(x.shape[2])[None, :]
            allowed = mask[rows, places].bool()[:, None, None, :]
            return F.scaled_dot_product_attention(x, x, x, attn_mask=allowed)

    batch, length = Dim("batch"), Dim("length")
    x, mask = torch.randn(2, 2, 5, 4), torch.ones(2, 5)
    shapes = {"x": {0: batch, 2: length}, "mask": {0: batch, 1: length}}
    more = [(torch.randn(b, 2, t, 4), torch.ones(b, t)) for b, t in ((1, 7), (3, 1))]
    return Program(Masked(), (x, mask), {}, shapes, more)


@program
def upsampled() -> Program:
    net = nn.Sequential(nn.ConvTranspose2d(2, 3, 2, stride=2), nn.ReLU(), nn.Conv2d(3, 1, 3, padding=1))
    return Program(net, (torch.randn(2, 2, 4, 4),), {}, ({0: AUTO, 2: AUTO},), [(torch.randn(1, 2, 6, 4),)])


@program
def solved() -> Program:
    return example(lambda self, a, b: torch.linalg.solve(a + 4 * torch.eye(3), b), torch.randn(3, 3), torch.randn(3, 2))


@program
def keys_and_values_in_a_buffer() -> Program:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 2, 8, 4))
            self.project = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            q = self.project(x).view(1, -1, 2, 4).transpose(1, 2)
            self.keys.index_copy_(2, places, q)
            mask = torch.arange(8)[None, None, None, :] <= places[None, None, :, None]
            return F.scaled_dot_product_attention(q, self.keys, self.keys, attn_mask=mask)

    return Program(Cached(), (torch.randn(1, 3, 8), torch.arange(3)))


@program
def keys_and_values_that_grow() -> Program:
    class Grown(nn.Module):
        def forward(self, x: torch.Tensor, past: Any) -> Any:
            keys, values = torch.cat([past[0], x], 1), torch.cat([past[1], x * 2], 1)
            return F.softmax(x @ keys.transpose(1, 2), -1) @ values, (keys, values)

    def args(t: int) -> tuple[Any, ...]:
        return torch.randn(1, 1, 4), (torch.randn(1, t, 4), torch.randn(1, t, 4))

    return Program(Grown(), args(5), {}, ({}, ({1: Dim("past")}, {1: Dim("past")})), [args(7), args(1)])


@program
def rotary_positions() -> Program:
    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("inverse", 1 / (10000 ** (torch.arange(0, 4, 2).float() / 4)), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            angles = torch.outer(torch.arange(x.shape[1]).float(), self.inverse)
            both = torch.cat([angles, angles], -1)
            first, second = x.chunk(2, -1)
            return x * both.cos() + torch.cat([-second, first], -1) * both.sin()

    return Program(Rotary(), (torch.randn(2, 5, 4),), {}, ({0: Dim("b"), 1: Dim("t")},), [(torch.randn(1, 9, 4),)])


@program
def mixture_of_experts() -> Program:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(4, 3)
            self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, chosen = F.softmax(self.gate(x), -1).topk(2, -1)
            out = torch.zeros_like(x)
            for k, expert in enumerate(self.experts):
                out = out + expert(x) * ((chosen == k) * weights).sum(-1, keepdim=True)
            return out

    return Program(Mixture(), (torch.randn(5, 4),), {}, ({0: Dim("b")},), [(torch.randn(2, 4),)])


@program
def moving_averages() -> Program:
    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(2))
            self.register_buffer("count", torch.tensor(0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return x - self.mean / (1 - 0.9 ** self.count.float())

    return Program(Averaged(), (torch.randn(3, 2),), {}, ({0: Dim("b")},), [(torch.randn(5, 2),)])


@program
def windows_of_images() -> Program:
    class Windows(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, h, w, c = x.shape
            x = x.view(b, h // 2, 2, w // 2, 2, c).transpose(2, 3).reshape(-1, 4, c)
            attended = F.softmax(x @ x.transpose(1, 2), -1) @ x
            return attended.view(b, h // 2, w // 2, 2, 2, c).transpose(2, 3).reshape(b, h, w, c)

    return Program(Windows(), (torch.randn(2, 4, 4, 3),), {}, ({0: Dim("b")},), [(torch.randn(1, 4, 4, 3),)])


@program
def positions_that_are_resized() -> Program:
    class Resized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Parameter(torch.randn(1, 4, 3, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + F.interpolate(self.places, size=x.shape[-2:], mode="bilinear", align_corners=False)

    return Program(Resized(), (torch.randn(1, 4, 6, 6),), {}, ({2: AUTO, 3: AUTO},), [(torch.randn(1, 4, 8, 8),)])


@program
def a_loop_over_time() -> Program:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(3, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state, states = torch.zeros(x.shape[1], 4), []
            for t in range(x.shape[0]):
                state = self.cell(x[t], state)
                states.append(state)
            return torch.stack(states)

    return Program(Loop(), (torch.randn(5, 2, 3),), {}, ({1: Dim("b")},), [(torch.randn(5, 4, 3),)])
