"""README's worked example: a small model, two ranks, gradients averaged while the backward runs, and the proof.

distcompile-run -n 2 examples/quickstart.py
"""

import distcompile as torch
import distcompile.distributed as dist
import distcompile.nn as nn
import distcompile.nn.functional as F
from distcompile import parity
from distcompile.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(32, 256), nn.LayerNorm(256), nn.Linear(256, 4)

    def forward(self, x, y):
        return F.cross_entropy(self.down(F.gelu(self.norm(self.up(x)))), y)


dist.init_process_group()
torch.manual_seed(0)
model = DistributedDataParallel(Net(), bucket_cap_mb=0.005)  # tiny buckets, to see several
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

torch.manual_seed(1 + dist.get_rank())  # every rank has data of its own
x = torch.randn(512, 32)
y = x[:, :4].argmax(dim=1)

for step in range(1, 31):
    optimizer.zero_grad()
    loss = compiled(x, y)
    loss.backward()  # bucket k is reduced while segment k+1 computes
    optimizer.step()
    if step % 10 == 0 and dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.3f}")

proof = parity.check(Net(), x, y)  # compiled against eager and float64, on every rank
if dist.get_rank() == 0:
    for row in model.overlap_report().rows:
        print(f"bucket {row.bucket}: {row.parameters} gradients, {row.nbytes} bytes, after segment {row.segment}")
    print(proof.verdict())
