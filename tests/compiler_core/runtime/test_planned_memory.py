"""What a compiled call is planned to take, and what it takes: within 10 % of each other, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

import distcompile as dc
from compiler_core.aot.memory import MemoryPlan

PROGRAM = """
import distcompile as torch
from distcompile import nn
import distcompile.nn.functional as F
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(256), nn.Linear(256, 768), nn.Linear(256, 256)
    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 64)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

def conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())

NETS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)), (512, 1024)),
    "attention": (lambda: nn.Sequential(Block(), Block(), Block()), (4, 256, 256)),
    "convolutions": (lambda: nn.Sequential(conv(3, 32), conv(32, 32), conv(32, 32)), (16, 3, 48, 48)),
    "deep": (lambda: nn.Sequential(*(nn.Sequential(nn.Linear(300, 300), nn.Tanh()) for _ in range(8))), (2000, 300)),
}
make, shape = NETS[NAME]
net = make()
x = torch.randn(*shape)
compiled = torch.compile(lambda x: net(x).square().mean(), memory_budget=BUDGET)

def drop():
    for p in net.parameters():
        p.grad = None

def step():
    drop()
    compiled(x).backward()

step()
measured = torch.debug.peak_memory(step, drop)
(entry,) = compiled.explain().entries
assert str(entry.memory) in str(compiled.explain())
print(measured, entry.memory.peak)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("name", "budget"), [("mlp", 1.0), ("attention", 1.0), ("attention", 0.7), ("convolutions", 1.0), ("deep", 1.0)]
)
def test_the_peak_is_within_a_tenth_of_what_was_planned(name: str, budget: float) -> None:
    text = PROGRAM.replace("NAME", repr(name)).replace("BUDGET", repr(budget))
    subprocess.run(
        [sys.executable, "-c", text], capture_output=True, timeout=120, check=True
    )  # without a compiler then
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    measured, planned = map(int, done.stdout.split())
    assert 0.9 * planned <= measured <= 1.1 * planned, f"{measured / 2**20:.1f} MiB of {planned / 2**20:.1f} planned"


def test_what_is_not_planned_is_none() -> None:
    compiled = dc.compile(lambda x: x.sin().sum(), backend="aot_eager")
    compiled(dc.ones(3))
    assert compiled.explain().entries[0].memory is None


def test_a_plan_in_words() -> None:
    plan = MemoryPlan(0, 3 << 20, 1 << 20, 1 << 19)
    assert (
        str(plan) == "memory planned: 4.5 MiB at most (saved for the backward 3.0, gradients 1.0, working memory 0.5)"
    )
