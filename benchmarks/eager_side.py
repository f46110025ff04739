"""One side of eager.py: the rows, written once for both frameworks, and a loop that times one on demand.

In: a line of JSON a question: {"do": "list"}, {"do": "start", "row": name}, {"do": "sample"}. Out: a line of JSON each.
"fb": forward and backward, gradients dropped before. Small: 8x8 and the like, where only overhead counts.
BENCH_DEVICE=cuda: tensors are of that device, and times are the clock's, until the device has done it all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from eager_rows import tiny_calls
from framework import F, identity, nn, torch
from models import GPT

Call = Callable[[], Any]
SAMPLE_S = 0.02
DEVICE = os.environ.get("BENCH_DEVICE", "cpu")


def leaf(*shape: int) -> Any:
    return torch.randn(*shape).requires_grad_()


def there_and_back(function: Callable[..., Any], *leaves: Any) -> Call:
    """Forward and backward of `function` of some leaves, with a gradient of ones given."""
    ones = torch.ones(tuple(function(*leaves).shape))

    def call() -> None:
        for one in leaves:
            one.grad = None
        function(*leaves).backward(ones)

    return call


def of_module(module: Any, *inputs: Any) -> Call:
    """Forward and backward of a module whose result is a tensor."""
    ones = torch.ones(tuple(module(*inputs).shape))

    def call() -> None:
        module.zero_grad()
        module(*inputs).backward(ones)

    return call


def of_gpt(layers: int, width: int, heads: int, length: int, vocabulary: int, batch: int) -> Call:
    model = GPT(layers, width, heads, length, vocabulary)
    x, y = (torch.randint(0, vocabulary, (batch, length)) for _ in "xy")
    return of_module(model, x, y)


def small_calls() -> dict[str, Call]:
    a, b, la, lb = torch.randn(8, 8), torch.randn(8, 8), leaf(8, 8), leaf(8, 8)
    w, labels, q = torch.randn(8), torch.randint(0, 8, (8,)), torch.randn(2, 2, 8, 8)
    linear, conv, image = nn.Linear(8, 8), nn.Conv2d(3, 8, 3, padding=1), torch.randn(1, 3, 8, 8)
    return {
        "add small": lambda: a + b,
        "add small, recorded": lambda: la + lb,
        "add small, a number": lambda: a + 1.5,
        "add small fb": there_and_back(lambda x, y: x + y, la, lb),
        "mul small": lambda: a * b,
        "mul small, recorded": lambda: la * lb,
        "sum small": lambda: a.sum(),
        "matmul small": lambda: a @ b,
        "view small": lambda: a.view(4, 16),
        "transpose small, recorded": lambda: la.transpose(0, 1),
        "getitem small": lambda: a[1:3],
        "relu small": lambda: F.relu(a),
        "softmax small": lambda: F.softmax(a, -1),
        "layer_norm small": lambda: F.layer_norm(a, (8,), w, w),
        "layer_norm small fb": there_and_back(lambda x: F.layer_norm(x, (8,), w, w), la),
        "cross_entropy small": lambda: F.cross_entropy(a, labels),
        "cross_entropy small fb": there_and_back(lambda x: F.cross_entropy(x, labels), la),
        "attention small": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "linear small": lambda: linear(a),
        "linear small fb": of_module(linear, a),
        "conv2d small": lambda: conv(image),
        "conv2d small fb": of_module(conv, image),
        "embedding small": lambda: F.embedding(labels, a),
    }


def large_calls() -> dict[str, Call]:
    x, w, b = leaf(8, 128, 256), leaf(256), leaf(256)
    logits, labels = leaf(1024, 512), torch.randint(0, 512, (1024,))
    heads = [leaf(8, 4, 128, 64) for _ in range(3)]
    image, conv = torch.randn(8, 16, 32, 32), nn.Conv2d(16, 32, 3, padding=1)
    normed = nn.BatchNorm2d(16)
    return {
        "add 8x128x256": lambda: x.detach() + x.detach(),
        "softmax 8x128x256 fb": there_and_back(lambda x: F.softmax(x, -1), x),
        "layer_norm 8x128x256": lambda: F.layer_norm(x.detach(), (256,), w.detach(), b.detach()),
        "layer_norm 8x128x256 fb": there_and_back(lambda x, w, b: F.layer_norm(x, (256,), w, b), x, w, b),
        "gelu 8x128x256 fb": there_and_back(lambda x: F.gelu(x), x),
        "gelu tanh 8x128x256 fb": there_and_back(lambda x: F.gelu(x, approximate="tanh"), x),
        "dropout 8x128x256 fb": there_and_back(lambda x: F.dropout(x, 0.1), x),
        "cross_entropy 1024x512 fb": there_and_back(lambda x: F.cross_entropy(x, labels), logits),
        "attention 8x4x128x64 fb": there_and_back(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *heads
        ),
        "linear 1024x256 to 1024 fb": of_module(nn.Linear(256, 1024), torch.randn(1024, 256)),
        "conv2d 8x16x32x32 fb": of_module(conv, image),
        "batch_norm 8x16x32x32 fb": of_module(normed, image),
    }


def model_calls() -> dict[str, Call]:
    lstm, steps = nn.LSTM(64, 64, 2), torch.randn(32, 8, 64)
    trained = GPT(4, 64, 4, 32, 128)
    optimizer = torch.optim.AdamW(trained.parameters())
    trained(*(torch.randint(0, 128, (2, 32)) for _ in "xy")).backward()
    return {
        "gpt, 4 layers of 32, 2x16, fb": of_gpt(4, 32, 2, 16, 64, 2),
        "gpt, 4 layers of 64, 2x32, fb": of_gpt(4, 64, 4, 32, 128, 2),
        "gpt, 4 layers of 256, 8x128, fb": of_gpt(4, 256, 4, 128, 512, 8),
        "lstm, 2 layers of 64, 32x8, fb": there_and_back(lambda x: lstm(x)[0], steps.requires_grad_()),
        "AdamW step, 54 tensors": optimizer.step,
    }


def now() -> float:
    """Seconds: CPU time, or of a device's work the clock's."""
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def sample(call: Call, count: int) -> tuple[float, int]:
    """(seconds a call, calls for the next sample)."""
    begun = now()
    for _ in range(count):
        call()
    took = now() - begun
    return took / count, count if took >= SAMPLE_S else max(2 * count, int(1.2 * count * SAMPLE_S / max(took, 1e-4)))


def main() -> None:
    print(json.dumps(identity()), flush=True)
    torch.manual_seed(0)
    with torch.device(DEVICE):  # not as the default of the calls: torch's would be slower
        rows = {**small_calls(), **large_calls(), **model_calls(), **tiny_calls(torch)}
    call, count = next(iter(rows.values())), 1
    for question in map(json.loads, sys.stdin):
        answer: dict[str, Any] = {"rows": list(rows)}
        if question["do"] == "start":
            call, count = rows[question["row"]], 1
            for _ in range(8):
                _, count = sample(call, count)
            answer = {"started": question["row"]}
        elif question["do"] == "sample":
            taken, count = sample(call, count)
            answer = {"seconds": taken}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
