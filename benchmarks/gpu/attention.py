"""Attention on a GPU: our kernels and torch.compile's attention, forward and backward, both as CUDA graphs, in one run.

    python benchmarks/gpu/attention.py [--rows dropout,window] [--each]

In: a machine with a CUDA device and torch (its allocator, its graph capture and its Triton driver serve both sides).
Out: a line a row on stdout: ms of both, forward alone and with the backward, and the largest difference of results.
--each: the time of every launch.
Method: medians of replays, every replay between two events. Before anything is timed, results and gradients are
compared with products and a softmax of float32 by torch; of a dropout with what the op philox draws, on the host.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from kernels import difference, graphed, milliseconds, torch_dtype

from compiler_core import dtype as dt
from compiler_core.codegen.triton.handwritten import Handwritten, join, print_call
from compiler_core.codegen.triton.load import load
from compiler_core.codegen.triton.module import TritonModule
from compiler_core.meta import TensorMeta
from compiler_core.ops.attention.op import ATTENTION, ATTENTION_BACKWARD
from compiler_core.ops.attention.sizes import AttentionSizes
from compiler_core.ops.random.op import least_kept, philox
from compiler_core.ops.routine import Strided, contiguous

KEY, STREAM = np.array([7, 3, 0], np.uint64), 5
Tensor = torch.Tensor


@dataclass(frozen=True)
class Row:
    """kind: "" (no mask), "causal", or a mask of truth values: "window" (256 keys before), "random" (nine of ten)."""

    name: str
    batch: int
    heads: int
    length: int
    width: int
    kind: str = "causal"
    dropout: float = 0.0
    dtype: dt.DType = field(default=dt.bfloat16)

    @property
    def sizes(self) -> AttentionSizes:
        return AttentionSizes(self.batch, self.heads, self.heads, self.length, self.length, self.width, self.width,
                              self.kind == "causal")  # fmt: skip

    @property
    def attrs(self) -> dict[str, Any]:
        drawn = {"dropout": self.dropout, "stream": STREAM} if self.dropout else {}
        return {"scale": self.width**-0.5, "causal": self.kind == "causal", **drawn}


ROWS = [
    Row("nanoGPT 64x6x256x64 causal", 64, 6, 256, 64),
    Row("nanoGPT 64x6x256x64 causal dropout 0.2", 64, 6, 256, 64, dropout=0.2),
    Row("GPT-2 16x12x1024x64 causal", 16, 12, 1024, 64),
    Row("GPT-2 16x12x1024x64 causal dropout 0.1", 16, 12, 1024, 64, dropout=0.1),
    Row("BERT 32x12x512x64 dropout 0.1", 32, 12, 512, 64, "", 0.1),
    Row("mask, window 4x12x2048x64", 4, 12, 2048, 64, "window"),
    Row("mask, random 4x12x2048x64", 4, 12, 2048, 64, "random"),
    *(Row(f"heads 8x12x1024x{n} causal", 8, 12, 1024, n) for n in (40, 80, 96, 128)),
    Row("float32 8x12x512x64 causal", 8, 12, 512, 64, dtype=dt.float32),
]


def calls(row: Row) -> list[Handwritten]:
    """The launches of the forward and of the backward."""
    sizes, dtype = row.sizes, row.dtype
    one = contiguous(TensorMeta((row.batch, row.heads, row.length, row.width), dtype))
    more: list[Strided] = [contiguous(TensorMeta(sizes.scores, dt.bool_))] if row.kind in ("window", "random") else []
    more = [Strided(x.dtype, x.shape, (0, 0, row.length, 1)) for x in more]
    more += [contiguous(TensorMeta((3,), dt.uint64))] if row.dropout else []
    g, g_lse = (contiguous(TensorMeta(shape, dtype)) for shape in sizes.result)
    packed = contiguous(TensorMeta((_numel(sizes.packed(dtype)),), dtype))
    forward = print_call(
        ATTENTION.lower, (one, one, one, *more), dtype, row.attrs | {"strict": False, "learned": False}
    )
    back = (g, g_lse, packed, one, one, one, *more)
    return [forward, print_call(ATTENTION_BACKWARD.lower, back, dtype, row.attrs | {"summed": False})]


def _numel(shapes: Sequence[tuple[int, ...]]) -> int:
    return sum(map(math.prod, shapes))


def bound(made: Handwritten, arrays: Sequence[Tensor]) -> list[tuple[str, Callable[[], Any]]]:
    """Each launch on these arrays, the result last."""
    functions = load(join(TritonModule("", {}, ()), {"call": made}), interpret=False)
    scratch = [torch.empty(s.numel, dtype=torch_dtype(s.dtype), device="cuda") for s in made.launches[0].common]
    return [
        (one.function, partial(_run, functions[one.function][(one.programs,)], (*arrays, *scratch, *one.numbers), one))
        for one in made.launches
    ]


def _run(function: Any, arguments: Sequence[Any], launch: Any) -> None:
    function(*arguments, num_warps=launch.warps, num_stages=launch.stages, enable_fp_fusion=launch.contracts)


def mask_of(row: Row) -> Tensor | None:
    if row.kind not in ("window", "random"):
        return None
    places = torch.arange(row.length, device="cuda")
    apart = places[:, None] - places
    return (apart >= 0) & (apart < 256) if row.kind == "window" else torch.rand_like(apart.float()) < 0.9


def written_out(row: Row, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """In float32, with our draws."""
    scores = q.float() @ k.float().mT * row.width**-0.5
    if row.kind == "causal":
        mask = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    weights = (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1)
    if row.dropout:
        kept = philox(np, KEY, row.sizes.scores, STREAM) >= np.uint32(least_kept(row.dropout))
        weights = weights * torch.from_numpy(kept).cuda() / (1 - row.dropout)
    return weights @ v.float()


def run_row(row: Row, each: bool) -> None:
    torch.manual_seed(0)
    leaves = [
        torch.randn(row.batch, row.heads, row.length, row.width, device="cuda", dtype=torch_dtype(row.dtype))
        for _ in range(3)
    ]
    mask, q = mask_of(row), leaves[0]
    g = torch.randn(row.batch, row.length, row.heads, row.width, device="cuda", dtype=q.dtype)
    out, grads = (
        torch.empty(_numel(row.sizes.packed(row.dtype)), device="cuda", dtype=q.dtype),
        torch.empty(3 * q.numel(), device="cuda", dtype=q.dtype),
    )
    more = [] if mask is None else [mask.to(torch.int8)]
    more += [torch.from_numpy(KEY.view(np.int64)).cuda().view(torch.uint64)] if row.dropout else []
    forward, backward = calls(row)
    zeros = torch.zeros(row.sizes.result[1], device="cuda", dtype=q.dtype)
    first = bound(forward, [*leaves, *more, out])
    second = bound(backward, [g, zeros, out, *leaves, *more, grads])
    for _, run in (*first, *second):
        run()
    wanted = [leaf.requires_grad_() for leaf in leaves]
    exact = written_out(row, *wanted, mask)
    exact_grads = torch.autograd.grad(exact, wanted, g.transpose(1, 2).float())
    found = [out[: q.numel()].view(g.shape).transpose(1, 2)]
    if row.sizes.has_gradients_beside(row.dtype):
        found += [part.transpose(1, 2) for part in grads.view(row.sizes.beside).split(row.heads, 2)]
    else:
        found += [part.view(g.shape).transpose(1, 2) for part in grads.chunk(3)]
    differs = max(map(difference, found, [exact, *exact_grads]))
    del exact, exact_grads

    def ours(launches: Sequence[tuple[str, Callable[[], Any]]]) -> None:
        for _, run in launches:
            run()

    compiled = torch.compile(
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, mask, dropout_p=row.dropout, is_causal=row.kind == "causal"
        )
    )

    def theirs() -> None:
        torch.autograd.grad(compiled(*wanted), wanted, g.transpose(1, 2))

    def theirs_forward() -> None:
        with torch.no_grad():
            compiled(*wanted)

    for _ in range(3):
        theirs()
        theirs_forward()
    times = [
        milliseconds(graphed(run))
        for run in (lambda: ours(first), theirs_forward, lambda: ours([*first, *second]), theirs)
    ]
    print(
        f"{row.name:42} forward {times[0]:7.4f} ms, torch {times[1]:7.4f}; with backward {times[2]:7.4f}, torch "
        f"{times[3]:7.4f}: ours is {times[3] / times[2]:.2f} times as fast; differs {differs:.1e}",
        flush=True,
    )
    for name, run in (*first, *second) if each else ():
        print(f"    {name:40} {milliseconds(graphed(run), 10):7.4f} ms", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="parts of row names, separated by commas")
    parser.add_argument("--each", action="store_true", help="times of single launches")
    options = parser.parse_args()
    wanted = [name for name in options.rows.split(",") if name]
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    failed = 0
    for row in ROWS:
        if wanted and not any(name in row.name for name in wanted):
            continue
        try:
            run_row(row, options.each)
        except Exception as error:  # noqa: BLE001, one row's failure must not hide the others
            failed += 1
            print(f"{row.name:42} FAILED {type(error).__name__}: {str(error)[:600]}", flush=True)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
