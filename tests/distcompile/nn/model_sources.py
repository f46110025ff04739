"""Model files as people write them for torch, as text; `load` runs one with torch or with its imports swapped for ours.

In: a source and a package name. Out: the names that the source defines.
"""

from __future__ import annotations

import re
from types import SimpleNamespace


def swap_imports(source: str) -> str:
    """`import torch...` and `from torch... import` turned into imports of distcompile."""
    source = re.sub(r"^import torch$", "import distcompile as torch", source, flags=re.M)
    return re.sub(r"^(import|from) torch\b", r"\1 distcompile", source, flags=re.M)


def load(source: str, package: str) -> SimpleNamespace:
    """The source's namespace, run with `package` ("torch" or "distcompile")."""
    text = swap_imports(source) if package == "distcompile" else source
    namespace: dict[str, object] = {"__name__": __name__}  # dataclasses look their module up
    exec(compile(text, "model_file.py", "exec", dont_inherit=True), namespace)
    return SimpleNamespace(**namespace)


MLP = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(s):
        super().__init__()
        s.l1 = nn.Linear(12, 16)
        s.l2 = nn.Linear(16, 16)
        s.l3 = nn.Linear(16, 5)

    def forward(s, x, y):
        return F.cross_entropy(s.l3(F.relu(s.l2(F.relu(s.l1(x))))), y)


def make():
    return Model(), (torch.randn(7, 12), torch.randint(0, 5, (7,)))
"""

GPT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.n1 = nn.LayerNorm(d)
        s.qkv = nn.Linear(d, 3 * d)
        s.o = nn.Linear(d, d)
        s.n2 = nn.LayerNorm(d)
        s.f1 = nn.Linear(d, 4 * d)
        s.f2 = nn.Linear(4 * d, d)

    def forward(s, x):
        B, T, D = x.shape
        q, k, v = s.qkv(s.n1(x)).split(D, dim=2)
        q, k, v = (t.view(B, T, s.h, D // s.h).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + s.o(a.transpose(1, 2).reshape(B, T, D))
        return x + s.f2(F.gelu(s.f1(s.n2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(s, L, d, h, T, V):
        super().__init__()
        s.te = nn.Embedding(V, d)
        s.pe = nn.Parameter(torch.randn(T, d) * 0.02)
        s.bl = nn.ModuleList([Block(d, h) for _ in range(L)])
        s.nf = nn.LayerNorm(d)
        s.hd = nn.Linear(d, V, bias=False)
        s.V = V

    def forward(s, x, y):
        h = s.te(x) + s.pe
        for b in s.bl:
            h = b(h)
        return F.cross_entropy(s.hd(s.nf(h)).view(-1, s.V), y.view(-1))


def make():
    return GPT(2, 16, 4, 8, 11), (torch.randint(0, 11, (3, 8)), torch.randint(0, 11, (3, 8)))
"""

NANO_GPT = '''
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


class LayerNorm(nn.Module):
    """LayerNorm but with an optional bias."""

    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout
        self.flash = hasattr(torch.nn.functional, "scaled_dot_product_attention") and config.flash
        if not self.flash:
            mask = torch.tril(torch.ones(config.block_size, config.block_size))
            self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.flash:
            p = self.dropout if self.training else 0
            y = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=None, dropout_p=p, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            att = self.attn_dropout(att)
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


@dataclass
class GPTConfig:
    block_size: int = 8
    vocab_size: int = 13
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 16
    dropout: float = 0.0
    bias: bool = True
    flash: bool = True


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd),
            wpe=nn.Embedding(config.block_size, config.n_embd),
            drop=nn.Dropout(config.dropout),
            h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
            ln_f=LayerNorm(config.n_embd, bias=config.bias),
        ))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        for pn, p in self.named_parameters():
            if pn.endswith("c_proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

    def get_num_params(self, non_embedding=True):
        n_params = sum(p.numel() for p in self.parameters())
        if non_embedding:
            n_params -= self.transformer.wpe.weight.numel()
        return n_params

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        device = idx.device
        b, t = idx.size()
        assert t <= self.config.block_size
        pos = torch.arange(0, t, dtype=torch.long, device=device)
        tok_emb = self.transformer.wte(idx)
        pos_emb = self.transformer.wpe(pos)
        x = self.transformer.drop(tok_emb + pos_emb)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        else:
            logits = self.lm_head(x[:, [-1], :])
            loss = None
        return logits, loss

    def configure_optimizers(self, weight_decay, learning_rate, betas, **options):
        param_dict = {pn: p for pn, p in self.named_parameters() if p.requires_grad}
        decay_params = [p for n, p in param_dict.items() if p.dim() >= 2]
        nodecay_params = [p for n, p in param_dict.items() if p.dim() < 2]
        optim_groups = [
            {"params": decay_params, "weight_decay": weight_decay},
            {"params": nodecay_params, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(optim_groups, lr=learning_rate, betas=betas, **options)

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            size = self.config.block_size
            idx_cond = idx if idx.size(1) <= size else idx[:, -size:]
            logits, _ = self(idx_cond)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            probs = F.softmax(logits, dim=-1)
            idx_next = torch.multinomial(probs, num_samples=1)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return self.model(x, y)[1]


def make(flash=True):
    model = Loss(GPT(GPTConfig(flash=flash)))
    targets = torch.randint(0, 13, (3, 8))
    targets[0, 2] = -1
    return model, (torch.randint(0, 13, (3, 8)), targets)
'''

NANO_GPT_MASKED = NANO_GPT.replace("def make(flash=True)", "def make(flash=False)")

CLASSIFIER = """
import torch
from torch import nn
from torch.nn import LayerNorm, TransformerEncoder, TransformerEncoderLayer


class Classifier(nn.Module):
    def __init__(self, vocab, d, classes):
        super().__init__()
        self.embed = nn.Embedding(vocab, d, padding_idx=0)
        layer = TransformerEncoderLayer(d, 4, dim_feedforward=32, dropout=0.0, batch_first=True, activation="gelu")
        self.encoder = TransformerEncoder(layer, num_layers=2, norm=LayerNorm(d), enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, classes))
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def forward(self, tokens, labels):
        padding = tokens == 0
        h = self.encoder(self.embed(tokens) * 4.0, src_key_padding_mask=padding)
        keep = (~padding).float().unsqueeze(-1)
        pooled = (h * keep).sum(1) / keep.sum(1)
        return self.loss(self.head(pooled), labels)


def make():
    tokens = torch.randint(1, 9, (4, 6))
    tokens[:, 4:] = 0
    return Classifier(9, 16, 3), (tokens, torch.randint(0, 3, (4,)))
"""

GATED = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.RMSNorm(d, eps=1e-6)
        self.gate, self.up = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.down = nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Mixture(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.experts = nn.ModuleList(Expert(d) for _ in range(n))
        self.router = nn.Linear(d, n)
        self.scales = nn.ParameterList([torch.full((1,), 1.0 + i) for i in range(n)])
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x, y):
        weights = torch.softmax(self.router(x), dim=-1)
        parts = [e(x) * w for e, w in zip(self.experts, weights.unbind(-1)[0:0] or weights.split(1, dim=-1))]
        out = torch.stack([p * s for p, s in zip(parts, self.scales)]).sum(0)
        return F.mse_loss(F.elu(out), y) + 0.01 * (weights ** 2).sum(-1).mean()


def make():
    return Mixture(6, 3), (torch.randn(5, 6), torch.randn(5, 6))
"""

SOURCES = {
    "mlp": MLP,
    "gpt": GPT,
    "nano_gpt": NANO_GPT,
    "nano_gpt_masked": NANO_GPT_MASKED,
    "classifier": CLASSIFIER,
    "gated": GATED,
}
