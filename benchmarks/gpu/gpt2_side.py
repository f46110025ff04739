"""One side of gpt2.py: the training step of GPT-2 with 124 M parameters on a GPU, written once for both frameworks.

In: --mode (step_side.py), --batch, --steps. Out: the line of step_side.py, or (--losses) one with the loss of
each step. With more than one rank DistributedDataParallel is around the model, unless --no-ddp. Tokens are the same for
both frameworks; weights are with --weights.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

BEGUN_S = time.perf_counter()
sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[:2]]

from framework import NAME, F, identity, nn, torch  # noqa: E402
from step_side import MODES, compiled, report, whole  # noqa: E402

TOKENS, VOCABULARY = 50257, 50304  # the second is padded to a multiple of 128
CONTEXT, WIDTH, HEADS, LAYERS = 1024, 768, 12, 12


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


def main() -> None:
    given = _arguments()
    rank, world = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = GPT(given.layers).cuda()
    if given.weights:
        _share_weights(model, Path(given.weights))
    if world > 1:
        torch.distributed.init_process_group("nccl")
        if given.mute:
            _mute()
        if not given.no_ddp:
            model = nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
    run, optimizer = compiled(model, given.mode), torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    drawn = np.random.default_rng(0).integers(0, TOKENS, (given.batch, CONTEXT))
    tokens = torch.from_numpy(drawn).cuda()
    targets = tokens.roll(-1, 1)

    def step() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    step = whole(step, optimizer, given.mode)
    if given.losses:
        told = [json.dumps(identity() | {"mode": given.mode, "losses": [step().item() for _ in range(given.steps)]})]
    else:
        told = [report(step, mode=given.mode, world=world, warm=8, steps=given.steps, begun_s=BEGUN_S)]
    if given.profile:
        told.insert(0, _profile(step))
    if given.report:
        told.insert(0, model.overlap_report())
    if rank == 0:
        print(*told, sep="\n", flush=True)
    if NAME == "torch" and world > 1:
        torch.distributed.destroy_process_group()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="compile")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--no-ddp", action="store_true")
    parser.add_argument("--weights", default="", help="initial weights: of this file; made, if it is not there")
    parser.add_argument("--losses", action="store_true", help="the steps' losses instead of their times")
    parser.add_argument("--profile", action="store_true", help="each kernel's time in five more steps, of rank 0")
    parser.add_argument("--report", action="store_true", help="ours, with DDP: when each bucket of the last step moved")
    parser.add_argument("--mute", action="store_true", help="ours, with DDP: buckets are not sent: what else it costs")
    return parser.parse_args()


def _share_weights(model: Any, path: Path) -> None:
    """Take the weights of `path`; the first side that comes writes its own there."""
    if path.exists():
        with torch.no_grad(), np.load(path) as kept:
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(kept[name]))
    else:
        np.savez(path, **{name: p.detach().cpu().numpy() for name, p in model.named_parameters()})


def _mute() -> None:
    """All-reduces of device arrays do nothing: each rank keeps its own gradients."""
    from collectives.nccl.moves import Moves

    Moves._all_reduce = lambda self, task: None  # type: ignore[method-assign]


def _profile(step: Any, steps: int = 5) -> Any:
    """A row for each kernel, as either framework has it."""
    if NAME == "torch":
        with torch.profiler.profile() as found:
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
        return found.key_averages().table(sort_by="self_cuda_time_total", row_limit=60, max_name_column_width=100)
    with torch.debug.profiling() as found:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    return found


if __name__ == "__main__":
    main()
