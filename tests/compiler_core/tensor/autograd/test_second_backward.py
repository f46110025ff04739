"""A second backward without retain_graph is refused where torch refuses it: where something was saved, numbers too."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import distcompile as dc

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

_TEXTS = """
x*3 3*x x*3.5 x*0.0 x*True x.mul(2) x/3 x.div(2) 3/x x.bfloat16()*3 x.bfloat16()/3 x.double()*3 (x*3)+1 (x+1)*3 x*s x/s
x*y x/y x**2 x**y x.exp() x.log() x.sqrt() x.sigmoid() x.tanh() x.relu() x.abs() x.clamp(0.2,0.8) x.sin() x@y x.prod()
x.std() x.norm() x.softmax(0) x.masked_fill(mask,0.) m.where(mask,x,y) F.dropout(x,0.5) F.avg_pool1d(x[None],2) x[idx]
x.cumsum(0)*2 F.linear(x,y) x.max(0)[0] m.lerp(x,y,y)
x+3 x-3 3-x x+y x-y -x x.t() x.view(-1) x.reshape(-1) x[0] x[:,1] x.expand(2,3,3) x.unsqueeze(0) x.permute(1,0)
x.clone() x.sum() x.sum(0) x.mean() x.mean(1) x.cumsum(0) m.cat([x,y]) m.stack([x,y]) x.flip(0) x.roll(1,0) x.tril()
x.diag() x.add(y,alpha=2) x.sub(y,alpha=2) m.rsub(x,1) m.lerp(x,y,0.3) x.bfloat16() x.repeat(2,1) x.unbind(0)[0]
m.deg2rad(x) m.trapezoid(x) F.adaptive_avg_pool1d(x[None],1) x.rot90(4) m.fft.irfft(x*1j) F.pad(x,(1,1))
x.round() x.floor() x.sign()
"""
TEXTS = _TEXTS.split()


def is_refused(m: Any, text: str) -> bool:
    m.manual_seed(0)
    values = [[0.3, 0.9, 0.4], [0.7, 0.15, 0.55], [0.6, 0.25, 0.8]]
    x, y = (m.tensor(rows, requires_grad=True) for rows in (values, values[::-1]))
    names = {"m": m, "F": m.nn.functional, "x": x, "y": y, "s": m.tensor(0.7, requires_grad=True)}
    names |= {"idx": m.tensor([0, 2]), "mask": m.tensor([[True, False, True]] * 3)}
    root = eval(text, names).sum()
    for _ in range(2):  # a call that is made again comes from what was noted of it
        root = eval(text, names).sum()
    root = root.real if root.dtype.is_complex else root
    root.backward()
    first = x.grad.clone()
    try:
        root.backward()
    except RuntimeError as error:
        return "second time" in str(error)
    assert m.equal(x.grad, 2 * first)
    return False


@pytest.mark.parametrize("text", TEXTS)
def test_a_second_backward_is_refused_as_torch_refuses_it(text: str) -> None:
    assert is_refused(dc, text) == is_refused(torch, text)


@pytest.mark.parametrize("text", ["x*3", "x/3", "x.bfloat16()*3", "F.dropout(x,0.5)"])
def test_a_graph_that_is_retained_is_gone_through_again(text: str) -> None:
    x = dc.ones(3, requires_grad=True)
    root = eval(text, {"x": x, "F": dc.nn.functional}).sum()
    root.backward(retain_graph=True)
    first = x.grad.clone()
    (again,) = dc.autograd.grad(root, x, create_graph=True)
    root.backward()
    assert dc.equal(again, first)
    assert dc.equal(x.grad, 2 * first)
