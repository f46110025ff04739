"""Who is asked what: each expression, on a subclass of Tensor and under a mode, asks what torch asks, in its order."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import pytest

import distcompile as dc
import distcompile.nn.functional
import distcompile.overrides

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# x: a subclass's (under a mode: a plain Tensor), p: a Tensor, b: a subclass's integers, q: integers, w: a Parameter
EXPRESSIONS = """
x+p;p+x;1+x;x-1;1-x;p-x;x*2;2*x;x/2;1/x;p/x;x//2;2//x;x%2;2%x;2**x;x@p;p@x;-x;+x;abs(x);~(x>0);x<p;p<x;1<x;x==p;p==x
x!=1;(x>0)&(x>0);(p>0)&(x>0);x[0];p[x>0];len(x);list(x);x.shape;x.T;x.grad;x.grad_fn;x.requires_grad;x.data;x.ndim
x.device;x.is_leaf;bool(x[0,0]>0);float(x[0,0]);int(x[0,0]);repr(x);str(x);hash(x);reversed(x);x.__contains__(1.0)
1.0!=x;x.size();x.add(p);p.add(x);x.clone();x.detach();x.to(t.float64);x.cpu();x.tolist();x.new_zeros(2);x.numel()
x.dim();x.max(0);x.requires_grad_();x.is_cuda;x.layout;x.dtype;x.T.shape;x._version;x.stride();x.is_contiguous()
x.split(1);x.sum(dim=0);x.numpy();x.sum(0).__setitem__(0,1.);setattr(x,'grad',None);x.__iadd__(p);p.__iadd__(x)
x.__isub__(1);x.__ifloordiv__(2);x.__rmatmul__(p);setattr(x,'data',p);setattr(x,'requires_grad',False)
x.__itruediv__(2);(x>0).__iand__(x>0);p.__setitem__(0,x[0]);p.__setitem__(x>0,0.);x.view(9);x.reshape(9);x.permute(1,0)
x.transpose(0,1);x.unsqueeze(0);x.squeeze();x.expand(2,3,3);x.repeat(2,1);x.flatten();x.item;x.mean();x.std();x.var()
x.prod();x.cumsum(0);x.argmax();x.any();x.all();x.fill_(1.);x.copy_(p);p.copy_(x);x.mul_(2);x.index_select(0,q)
x.gather(0,q[None]);x.masked_fill(x>0,0.);x.scatter(0,q[None],p);x.where(x>0,p);x.float();x.double();x.type_as(p)
p.type_as(x);x.view_as(p);p.view_as(x);x.expand_as(p);x.contiguous();x.absolute();x.negative();x.eq(p);x.allclose(p)
x.equal(p);x.softmax(0);x.relu();x.sigmoid();x.inverse;x.logsumexp(0);x.topk(2);x.sort();x.register_hook(print)
t.is_tensor(x);t.add(p,x);t.split(x,1);t.cat([x,p]);t.sum(x,dim=0,keepdim=True);t.zeros_like(x);t.tensor(x)
t.as_tensor(x);t.max(x,0);t.is_floating_point(x);t.numel(x);t.einsum('ij,jk->ik',x,p);t.stack([x,p]);t.where(x>0,x,p)
t.matmul(x,p);t.mean(x,0);t.linalg.norm(x);t.linalg.inv(x);t.fft.fft(x);t.special.expit(x);t.sigmoid(x);t.special.i0(x)
t.meshgrid(x[0],p[0]);t.broadcast_tensors(x,p);t.atleast_2d(x);t.cdist(x,p);t.block_diag(x,p);t.unique(x)
t.ones_like(x);t.rand_like(x);t.full_like(x,2.);t.topk(x,2);t.addmm(p,p,x);t.allclose(x,p);t.equal(p,x)
t.var_mean(x);t.multinomial(x.abs(),1);t.normal(x,1.);t.normal(p,x.abs());t.relu(x);t.softmax(x,1);t.isin(b,q)
t.dropout(x,.5,True);t.bincount(b);t.result_type(x,p);t.is_complex(x)
F.relu(x);F.linear(x,p);F.softmax(x,1);F.dropout(x);F.mse_loss(x,p);F.cross_entropy(x,b);F.layer_norm(x,(3,))
F.layer_norm(p,(3,),x[0]);F.batch_norm(x,None,None,training=True);F.conv1d(x[None],p[None]);F.max_pool2d(x[None],2)
F.conv2d(x[None,None],p[None,None]);F.avg_pool2d(x[None],2);F.adaptive_avg_pool2d(x[None],1);F.pad(x,(1,1))
F.interpolate(x[None,None],scale_factor=2);F.embedding(b,p);F.one_hot(b);F.gelu(x);F.sigmoid(x);F.tanh(x);F.silu(x)
F.log_softmax(x,1);F.normalize(x);F.cosine_similarity(x,p);F.scaled_dot_product_attention(x[None],x[None],x[None])
F.leaky_relu(x);F.hardtanh(x);F.hardswish(x);F.glu(x[:,:2]);F.prelu(x,p[0]);F.nll_loss(x,b);F.kl_div(x,p);F.relu_(x)
F.smooth_l1_loss(x,p);F.binary_cross_entropy_with_logits(x,p);F.group_norm(x,3);F.instance_norm(x[None]);F.relu6(x)
F.unfold(x[None,None],2);F.gumbel_softmax(x);F.rms_norm(x,(3,));F.triplet_margin_loss(x,p,p);F.huber_loss(x,p)
F.upsample(x[None,None],scale_factor=2);F.local_response_norm(x[None],2);F.alpha_dropout(x);F.softplus(x);F.elu(x)
t.nn.Linear(3,3)(x);t.nn.LayerNorm(3)(x);t.nn.Conv1d(3,3,1)(x[None]);t.nn.ReLU()(x);t.nn.GELU()(x);t.nn.Dropout(.5)(x)
t.nn.MSELoss()(x,p);t.nn.CrossEntropyLoss()(x,b);t.nn.Embedding(4,2)(b);t.nn.BatchNorm1d(3)(x);t.nn.Softmax(1)(x)
t.nn.Sigmoid()(x);t.nn.Tanh()(x);t.nn.MaxPool1d(2)(x[None]);t.nn.Flatten()(x);F.linear(x,w)+x;w+x;x+w
x.requires_grad_().sum().backward();t.autograd.grad((x.requires_grad_()*2).sum(),x)
"""
# nothing is made of a tensor: only a mode is asked
MADE = """
t.zeros(2);t.tensor([1.]);t.rand(2);t.manual_seed(1) and None;t.arange(3);t.as_tensor([1.]);t.randperm(3)
t.normal(0.,1.,(2,));t.full((2,),1.);t.eye(2);t.linspace(0,1,3);t.hann_window(3);t.promote_types(t.float32,t.int32);t.asarray([1]);t.empty(2)
t.ones(2);t.randn(2);t.randint(3,(2,));t.logspace(0,1,3);t.tril_indices(2,2);t.empty_strided((2,),(1,))
t.nn.init.normal_(t.empty(2));t.nn.init.uniform_(t.empty(2));t.nn.init.constant_(t.empty(2),1.)
t.nn.init.kaiming_uniform_(t.empty(2,2))
"""
# under a mode torch's own modules ask about more of what they do to themselves
OUR_OWN_WAY = frozenset(
    e
    for e in EXPRESSIONS.replace("\n", ";").split(";")
    if e.startswith("t.nn.") and not e.startswith(("t.nn.ReLU", "t.nn.GELU", "t.nn.Flatten", "t.nn.Softmax"))
)


def listed(text: str) -> list[str]:
    return [expression for expression in text.strip().replace("\n", ";").split(";") if expression]


class Asked:
    """What a library asks: (name, types, how many arguments by place, names of the others)."""

    def __init__(self, library: Any) -> None:
        self.t, self.said = library, []
        overrides = library.overrides

        class Sub(library.Tensor):  # type: ignore[misc,name-defined]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                self.note(func, types, args, kwargs)
                return super().__torch_function__(func, types, args, kwargs)

        class Mode(overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                asked.note(func, [], args, kwargs)
                return func(*args, **(kwargs or {}))

        asked, self.sub, self.mode = self, Sub, Mode()

    def note(self, func: Any, types: Any, args: Any, kwargs: Any) -> None:
        name = self.t.overrides.resolve_name(func) or func.__name__
        given = None if kwargs is None else sorted(kwargs)
        self.said.append((name, [kind.__name__ for kind in types], len(args), given))

    def values(self, kind: Any) -> dict[str, Any]:
        t = self.t
        t.manual_seed(0)
        x = t.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5], [0.1, 0.2, 0.7]])
        b, q = t.tensor([1, 0, 2]), t.tensor([0, 1, 2])
        p, w = x.flip(0) + 0.5, t.nn.Parameter(x.clone())
        return {"x": x.as_subclass(kind), "p": p, "b": b.as_subclass(kind), "q": q, "w": w}

    def run(self, expression: str, mode: bool) -> tuple[str, list[Any]]:
        """(the type of the result, or of the error; what was asked)."""
        values = self.values(self.t.Tensor if mode else self.sub)
        self.said.clear()
        names = {"t": self.t, "F": self.t.nn.functional, **values}
        with warnings.catch_warnings(), self.mode if mode else nullcontext():
            warnings.simplefilter("ignore")
            try:
                result = eval(expression, names)
            except Exception as error:  # noqa: BLE001
                kind = f"error {next(k.__name__ for k in type(error).__mro__ if k.__module__ == 'builtins')}"
            else:
                kind = described(result)
        return kind, list(self.said)


def described(result: Any) -> str:
    if isinstance(result, tuple | list) and not isinstance(result, dc.Size | torch.Size):
        return str([described(part) for part in result])
    return {"DType": "dtype", "Device": "device", "method": "builtin_function_or_method"}.get(
        type(result).__name__, type(result).__name__
    )


@pytest.fixture(scope="module")
def theirs() -> Asked:
    return Asked(torch)


@pytest.fixture(scope="module")
def ours() -> Asked:
    return Asked(dc)


@pytest.mark.parametrize("expression", listed(EXPRESSIONS))
def test_a_subclass_is_asked_as_by_torch(theirs: Asked, ours: Asked, expression: str) -> None:
    assert ours.run(expression, mode=False) == theirs.run(expression, mode=False)


@pytest.mark.parametrize("expression", [e for e in listed(EXPRESSIONS + MADE) if e not in OUR_OWN_WAY])
def test_a_mode_is_asked_as_by_torch(theirs: Asked, ours: Asked, expression: str) -> None:
    assert ours.run(expression, mode=True) == theirs.run(expression, mode=True)


def test_nobody_is_asked_once_a_mode_has_ended(ours: Asked) -> None:
    with ours.mode:
        pass
    ours.said.clear()
    assert (dc.ones(2) + 1).tolist() == [2, 2]
    assert ours.said == []
