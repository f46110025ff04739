"""Two hundred small calls as strangers write them, of tensors of 8 x 8: the rows `tiny ...` of eager.py.

In: torch, or what stands for it. Out: name -> call, the name being the expression. All calls share their operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# x, y f[8, 8]; v f[8]; w f[8, 8], a leaf; lab f[8, 8] in 0..1; b, bb bool[8, 8]; i, L i64[8]; I i64[8, 8]; n i64[8, 8];
# x3 f[4, 8, 8]; img f[1, 3, 8, 8]; s f[]
_CALLS = """
    2*x | 2+x | 1/x | x3+v | n*x | (w+v).sum().backward() | x[b] | x[i] | x[:,i] | x[i,i] | x[0] | x[1:3] |
    x[...,None] | x[:,0] | x[-1,2] | x.__setitem__(0,1.0) | x.__setitem__(slice(1,3),y[1:3]) | x.__setitem__(b,0.0) |
    x.__setitem__(i,v) | x.topk(2) | x.sort() | x.argsort() | x.argmax() | x.argmax(1) | x.max(1) | x.max() |
    x.min() | x.amax(1) | b.any() | b.all() | x.cumsum(1) | x.cumprod(1) | x.sum() | x.sum(1) |
    x.sum(1,keepdim=True) | x.mean() | x.mean(1) | x.std() | x.var(1) | x.prod() | x.norm() | x.norm(dim=1) |
    x.logsumexp(1) | x.median() | i.unique() | b.nonzero() | torch.where(b,x,y) | torch.where(b,x,0.0) |
    x.clamp(0,1) | x.clamp(min=0) | x.abs() | x.exp() | lab.log() | lab.sqrt() | x.sin() | x.tanh() | x.sigmoid() |
    -x | x**2 | lab**y | x.round() | x.floor() | x.sign() | x.isnan() | x+y | x*2 | x+v | x/y | x-1 | 1-x | x>0 |
    x==y | x>y | b&bb | ~b | n%3 | n//3 | n+1 | i==3 | torch.maximum(x,y) | torch.lerp(x,y,0.5) |
    torch.addcmul(x,x,y) | x.add_(y) | x.mul_(1.0) | x.copy_(y) | torch.empty(8).zero_() | v.fill_(1.0) |
    x.clamp_(-3,3) | x@y | x@v | x3@x3 | v@v | torch.einsum('ij,jk->ik',x,y) | torch.outer(v,v) |
    torch.addmm(v,x,y) | x.T | x.transpose(0,1) | x3.permute(2,0,1) | x.view(64) | x.reshape(4,16) | x3.flatten(1) |
    x.unsqueeze(0) | img.squeeze(0) | v.expand(8,8) | x.T.contiguous() | v.repeat(2) | torch.cat([x,y]) |
    torch.stack([x,y]) | x.chunk(2) | x.split(4) | x.unbind() | x.flip(0) | x.roll(1,0) | x.tril() | x.diag() |
    x.gather(1,I) | x.scatter(1,I,y) | x.scatter_add(1,I,y) | x.index_select(0,i) | x.index_add(0,i,y) |
    x.masked_fill(b,0.0) | x.masked_select(b) | torch.take_along_dim(x,I,1) | torch.zeros(8,8) | torch.ones(8) |
    torch.empty(8) | torch.full((8,),2.0) | torch.arange(8) | torch.eye(8) | torch.linspace(0,1,8) |
    torch.tensor(1.0) | torch.tensor([1.0,2.0,3.0]) | torch.as_tensor([1,2,3]) | torch.zeros_like(x) |
    torch.ones_like(x) | torch.randn(8,8) | torch.rand(8) | torch.randint(0,8,(8,)) | torch.randperm(8) |
    torch.bernoulli(lab) | torch.multinomial(lab,1) | v.normal_() | s.item() | x.tolist() | float(s) |
    x.to(torch.float64) | x.long() | x.clone() | x.detach() | x.shape | x.size(0) | torch.allclose(x,y) |
    torch.equal(x,y) | bool(s>1) | len(x) | x.softmax(1) | F.log_softmax(x,1) | F.relu(x) | F.gelu(x) | F.silu(x) |
    F.leaky_relu(x) | F.elu(x) | F.softplus(x) | F.dropout(x,0.5) | F.layer_norm(x,(8,)) | F.linear(x,y,v) |
    F.mse_loss(x,y) | F.l1_loss(x,y) | F.smooth_l1_loss(x,y) | F.cross_entropy(x,L) |
    F.binary_cross_entropy(lab,b.float()) | F.binary_cross_entropy_with_logits(x,lab) | F.nll_loss(x,L) |
    F.kl_div(x,lab) | F.cosine_similarity(x,y) | F.normalize(x) | F.one_hot(L,8) | F.embedding(L,x) |
    F.pad(x,(1,1)) | F.max_pool2d(img,2) | F.avg_pool2d(img,2) | F.interpolate(img,scale_factor=2) |
    F.scaled_dot_product_attention(x3,x3,x3) | torch.cdist(x,y) | (w*2) | w.sum().backward() |
    (w@x).sum().backward() | F.relu(w).sum().backward() | w.softmax(1)[0].sum().backward() | w[0].sum().backward() |
    w[i].sum().backward() | w[b].sum().backward() | torch.cat([w,w]).sum().backward() |
    F.cross_entropy(w,L).backward() | F.mse_loss(w,y).backward() | w.gather(1,I).sum().backward() |
    w.max(1)[0].sum().backward() | w.clamp(0,1).sum().backward() | w.norm().backward() | w.exp().sum().backward() |
    torch.where(b,w,y).sum().backward() | w.mean().backward() | w.std().backward() | w.tanh().mean().backward() |
    w.logsumexp(1).sum().backward() | w.cumsum(0).sum().backward() | w.sort()[0].sum().backward() |
    w.topk(2)[0].sum().backward() | F.binary_cross_entropy_with_logits(w,lab).backward()
"""


def operands(torch: Any) -> dict[str, Any]:
    return {
        "x": torch.randn(8, 8),
        "y": torch.randn(8, 8),
        "v": torch.randn(8),
        "w": torch.randn(8, 8).requires_grad_(),
        "lab": torch.rand(8, 8),
        "b": torch.randn(8, 8) > 0,
        "bb": torch.rand(8, 8) > 0.5,
        "i": torch.randint(0, 8, (8,)),
        "L": torch.randint(0, 8, (8,)),
        "I": torch.randint(0, 8, (8, 8)),
        "n": torch.arange(64).reshape(8, 8),
        "x3": torch.randn(4, 8, 8),
        "img": torch.randn(1, 3, 8, 8),
        "s": torch.tensor(2.0),
    }


def tiny_calls(torch: Any) -> dict[str, Callable[[], Any]]:
    """Each expression as a function without arguments."""
    names = {"torch": torch, "F": torch.nn.functional, **operands(torch)}
    texts = [text.strip() for text in _CALLS.replace("\n", " ").split(" | ")]
    return {f"tiny {text}": eval(f"lambda: {text}", names) for text in texts if text}
