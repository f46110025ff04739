"""One side of gpt2.py: the training step of GPT-2 with 124 M parameters on a GPU, written once for both frameworks.

In: --mode eager, compile or graphs, --batch, --steps. Out: one line of JSON: the first step's time and the median
step's, in ms, from the host's clock around a synchronised step; losses; peak memory in GiB; the time from the process's
start to the first loss. With more than one rank DistributedDataParallel is around the model, unless --no-ddp.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

BEGUN_S = time.perf_counter()
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from framework import NAME, F, identity, nn, torch  # noqa: E402

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 50304, 1024, 768, 12, 12


class Block(nn.Module):
    """x: f32[B, T, C] -> f32[B, T, C]: causal attention, then an MLP, each on a normalised x, added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        qkv = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, nh, T, hs)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Tokens i64[B, T] and targets i64[B, T] -> the mean loss. The head's weight is the token embedding's."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block(WIDTH, HEADS) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Any, targets: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1).float(), targets.flatten())


def compiled(model: Any, mode: str) -> Any:
    """`model` as it is called in the step. graphs: launches replayed from CUDA graphs."""
    if mode == "eager":
        return model
    return torch.compile(model, mode="reduce-overhead" if mode == "graphs" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["eager", "compile", "graphs"], default="compile")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--no-ddp", action="store_true")
    given = parser.parse_args()
    rank, world = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = GPT(given.layers).cuda()
    if world > 1:
        torch.distributed.init_process_group("nccl")
        if not given.no_ddp:
            model = nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
    run, optimizer = compiled(model, given.mode), torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(0, 50257, (given.batch, CONTEXT), device="cuda")
    targets = tokens.roll(-1, 1)

    def step() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    begun = time.perf_counter()
    first = step().item()
    torch.cuda.synchronize()
    first_s, since_start_s = time.perf_counter() - begun, time.perf_counter() - BEGUN_S
    for _ in range(8):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(given.steps):
        began = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
    if rank == 0:
        print(
            json.dumps(
                identity()
                | {
                    "mode": given.mode,
                    "world": world,
                    "step_ms": round(statistics.median(times), 2),
                    "first_step_s": round(first_s, 2),
                    "start_to_loss_s": round(since_start_s, 2),
                    "losses": [round(first, 4), round(loss.item(), 4)],
                    "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                }
            ),
            flush=True,
        )
    if NAME == "torch" and world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
