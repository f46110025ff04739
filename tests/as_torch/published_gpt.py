"""A script as people publish them: a small GPT, trained on the characters of a text, from which it then writes.

    published_gpt.py [--iterations N] [--double]

Sizes are those that are advised for a laptop. Out: a line `loss L` an iteration, and characters that were sampled.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.resid_dropout = nn.Dropout(dropout)
        self.heads, self.dropout = heads, dropout

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in self.c_attn(x).split(C, 2))
        p = self.dropout if self.training else 0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=p, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, dropout)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.dropout(self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, vocabulary, block_size, layers, heads, width, dropout):
        super().__init__()
        self.block_size = block_size
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(block_size, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * layers))

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.size(1))))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits[:, [-1], :], None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, count, temperature=0.8, top_k=10):
        for _ in range(count):
            logits = self(idx[:, -self.block_size :])[0][:, -1, :] / temperature
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()
    if args.double:
        torch.set_default_dtype(torch.float64)
    torch.manual_seed(1337)
    words = ["thou", "art", "a", "villain", "and", "so", "is", "thy", "master", "good", "morrow", "sir"]
    text = " ".join(words[i] for i in torch.randint(len(words), (4000,)).tolist())
    characters = sorted(set(text))
    data = torch.tensor([characters.index(c) for c in text])
    block_size, batch = 64, 12
    model = GPT(len(characters), block_size, layers=4, heads=4, width=128, dropout=0.2)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 1e-1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    for iteration in range(args.iterations):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (iteration + 1) / 10)
        ix = torch.randint(len(data) - block_size, (batch,))
        x = torch.stack([data[i : i + block_size] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
        _, loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"iteration {iteration} loss {loss.item():.6f}")
    model.eval()
    written = model.generate(torch.zeros(1, 1, dtype=torch.long), 40)[0].tolist()
    print("".join(characters[i] for i in written))


if __name__ == "__main__":
    main()
