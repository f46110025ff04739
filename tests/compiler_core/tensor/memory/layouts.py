"""Operands that lie in memory in many ways, and functions whose results are asked how they lie.

In: a library, under torch's names. Out: `LAYOUTS` (name -> an operand of a shape), and `UNARY`, `BINARY`, `MATRICES`,
`IMAGES`: expressions over x and y, the last two of two and of four dims. Left out, where torch's strides follow from
how its kernel goes about it: stack of channels last, rms_norm, huber_loss, ldexp, fmod, pixel_unshuffle by 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def _full(t: Any, *shape: int) -> Any:
    numbers = np.arange(math.prod(shape)) * 7 % 23 - 11
    return t.tensor((numbers / 5).astype(np.float32).reshape(shape))


def _channels_last(t: Any, s: Shape, margin: int = 0) -> Any:
    return _full(t, s[0], s[2], s[3], s[1] + 2 * margin).permute(0, 3, 1, 2)[:, margin : margin + s[1]]


LAYOUTS: dict[str, Callable[[Any, Shape], Any]] = {
    "rows": lambda t, s: _full(t, *s),
    "reversed": lambda t, s: _full(t, *s[::-1]).permute(*range(len(s) - 1, -1, -1)),
    "transposed": lambda t, s: _full(t, *s[:-2], s[-1], s[-2]).transpose(-1, -2),
    "expanded in front": lambda t, s: _full(t, 1, *s[1:]).expand(*s),
    "expanded behind": lambda t, s: _full(t, *s[:-1], 1).expand(*s),
    "each second": lambda t, s: _full(t, *s[:-1], s[-1] * 2)[..., ::2],
    "later rows": lambda t, s: _full(t, s[0] + 3, *s[1:])[2 : 2 + s[0]],
    "columns of more": lambda t, s: _full(t, *s[:-1], s[-1] + 2)[..., 1 : 1 + s[-1]],
    "channels last": _channels_last,
    "channels of more": lambda t, s: _channels_last(t, s, 1),
    "rows of images first": lambda t, s: _full(t, s[2], s[1], s[0], s[3]).permute(2, 1, 0, 3),
}


def names_of(shape: Shape) -> list[str]:
    """The layouts that there are of a shape: the last three are those of images."""
    return list(LAYOUTS) if len(shape) == 4 else list(LAYOUTS)[:-3]


UNARY = """
x.clone()  x.contiguous()  x.clone(memory_format=torch.contiguous_format)  x.clone(memory_format=torch.preserve_format)
x.detach().clone()  copy.deepcopy(x)  x.to(torch.float64)  x.half()  x.int()  x.bool()
x.to(torch.float32,copy=True)  x.to(torch.float64,memory_format=torch.contiguous_format)  x.type(torch.float64)
torch.empty_like(x)  torch.zeros_like(x)  torch.ones_like(x)  torch.randn_like(x)  torch.rand_like(x)
torch.full_like(x,2)  torch.randint_like(x,5)  torch.zeros_like(x,memory_format=torch.contiguous_format)
x.new_zeros(x.shape)  x.new_empty((2,3))  torch.relu(x)  torch.exp(x)  -x  x+1  x*2.0  1/(x+9)  x.abs()  x>0  x**2
x.clamp(0,1)  x.clamp(min=0)  torch.where(x>0,x,0.0)  torch.where(x>0,x,-x)  torch.sigmoid(x)  torch.tanh(x)  x.sign()
x.round()  x.isnan()  x.logical_not()  torch.nan_to_num(x)  x.square()  x.erf()  x//2  x%2  x.logit()
torch.lerp(x,x,0.3)  torch.addcmul(x,x,x)  x.add(x,alpha=2)  torch.complex(x,x)  x.masked_fill(x>0,0)
F.gelu(x)  F.gelu(x,approximate='tanh')  F.silu(x)  F.leaky_relu(x)  F.elu(x)  F.softplus(x)  F.hardtanh(x)  F.mish(x)
F.dropout(x,0.5)  F.relu6(x)  F.selu(x)  F.hardswish(x)  F.logsigmoid(x)  F.threshold(x,0,1)  F.softsign(x)
x.softmax(-1)  x.log_softmax(0)  F.layer_norm(x,x.shape[-1:])  F.normalize(x)  x.clone().add_(1)  x.clone().zero_()
x.sum(-1)  x.sum(0)  x.sum(0,keepdim=True)  x.mean()  x.amax(1)  x.max(1)  x.argmax(0)  x.std(0)  x.prod(0)  x.any(0)
x.logsumexp(0)  x.norm(dim=1)  x.cumsum(0)  x.sort(-1)  x.argsort()  x.topk(2,-1)  x.median(0)
x.flip(0)  x.repeat(*[2]*x.dim())  x.tile(2)  x.repeat_interleave(2,0)  x.reshape(-1)  x.flatten()  x.ravel()
x.view(-1)  x.clone().view(-1)  (x+1).view(-1)  x.view_as(x)  x.view(torch.int32)  x.unsqueeze(0)  x.squeeze()
x.clone().transpose(0,1)  (x*2).mT  x.movedim(0,-1)  x.swapaxes(0,1)  x.diagonal()  x.unfold(0,2,1)  x.tril()
torch.cat([x,x])  torch.cat([x,x],1)  torch.stack([x,x],-1)  x.chunk(2,-1)  x.unbind(0)  x[0]  x[:,None]  x[x>0]
x[torch.tensor([0,1])]  x[...,torch.tensor([0,1])]  x.index_select(0,torch.tensor([0,1]))  x.gather(0,(x>0).long())
x.scatter(0,(x>0).long(),x)  x.index_add(0,torch.tensor([0]),x[:1])  x.nonzero()  F.pad(x,(1,1))  x.diff()
x.is_contiguous()  x.storage_offset()  x.clone().numpy()  (x+1).numpy()
"""

BINARY = """
x+y  x*y  x-y  x/y  x>y  x==y  torch.maximum(x,y)  torch.where(x>0,x,y)  torch.where(x>0,y,x)  torch.lerp(x,y,0.5)
torch.addcmul(x,y,y)  torch.addcmul(y,x,y)  torch.clamp(x,min=y)  torch.atan2(x,y)  torch.hypot(x,y)
torch.fmax(x,y)  torch.logical_and(x,y)  torch.logaddexp(x,y)  torch.copysign(x,y)  torch.isclose(x,y)  x.xlogy(y)
x.add(y,alpha=2)  x.double()+y  x+y.double()  x+y[0]  y[0]+x  x*y[...,:1]  x[:1]*y[:,:1]  x.masked_fill(y>0,0)
x.clone().copy_(y)  x.clone().add_(y)  torch.cat([x,y])  torch.cat([x,y],-1)  torch.stack([x,y],-1)  x@y.mT
F.mse_loss(x,y,reduction='none')  F.smooth_l1_loss(x,y,reduction='none')  torch.zeros_like(x)+y  (x*2)+(y*3)
"""

MATRICES = """
x@y.t()  x.t()@y  F.linear(x,y)  F.linear(x,y,y[:,0])  torch.outer(x[0],y[0])
torch.einsum('ij,kj->ki',x,y)  torch.einsum('i,j->ji',x[0],y[0])
torch.addmm(x@x.t(),x,y.t())  torch.mv(x,y[0])  x.t().clone()  x.t().contiguous()  x.t().clone().view(-1)
F.embedding(torch.tensor([[0,1]]),x)  F.cosine_similarity(x,y)  torch.linalg.svd(x)  torch.linalg.qr(x)
F.scaled_dot_product_attention(x[None],y[None],y[None])  F.batch_norm(x,None,None,training=True)
"""

IMAGES = """
x.contiguous(memory_format=torch.channels_last)  x.to(memory_format=torch.channels_last)
x.clone(memory_format=torch.channels_last)  x.to(torch.float64,memory_format=torch.channels_last)
x.to(memory_format=torch.contiguous_format)  x.to(memory_format=torch.preserve_format)
torch.empty_like(x,memory_format=torch.channels_last)  torch.zeros_like(x,memory_format=torch.channels_last)
torch.randn_like(x,memory_format=torch.channels_last)  torch.empty(x.shape,memory_format=torch.channels_last)
F.conv2d(x,w(4,x.shape[1],2,2))  F.conv2d(x,w(4,x.shape[1],2,2).to(memory_format=torch.channels_last))
F.conv2d(x,w(4,x.shape[1],2,2),w(4),padding=1).relu()+1  F.conv2d(x,w(x.shape[1],1,2,2),groups=x.shape[1])
F.conv_transpose2d(x,w(x.shape[1],4,2,2))  F.max_pool2d(x,2,1)  F.max_pool2d(x,2,1,return_indices=True)
F.avg_pool2d(x,2,1)  F.adaptive_avg_pool2d(x,1)  F.adaptive_avg_pool2d(x,(2,1))  F.adaptive_max_pool2d(x,1)
F.batch_norm(x,None,None,training=True)  F.batch_norm(x,w(x.shape[1]),w(x.shape[1]))  F.group_norm(x,1)
F.instance_norm(x)  F.interpolate(x,scale_factor=2)  F.interpolate(x,scale_factor=2,mode='bilinear')
F.pad(x,(1,1,1,1))  F.pad(x,(1,1,1,1),mode='reflect')  F.prelu(x,w(x.shape[1]))  F.dropout2d(x)  F.unfold(x,2)
x.mean((2,3))  x.mean((2,3),keepdim=True)*x  x.sum(1,keepdim=True)  x*w(x.shape[1],1,1)  x+w(1,x.shape[1],1,1)
x.permute(0,2,3,1).contiguous()  x.permute(0,2,3,1).clone()  x.clone().flatten(1)  x.reshape(len(x),-1)
x.clone().view(len(x),-1)  x.chunk(2,1)  torch.cat([x,y],1)  F.scaled_dot_product_attention(x,y,y)  F.softmax(x,1)
"""


def expressions(table: str) -> list[str]:
    """The expressions of a table."""
    return re.split(r" {2}|\n", table.strip())
