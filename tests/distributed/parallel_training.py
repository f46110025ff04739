"""Steps of training that talk to other ranks, as users write them: each makes a model and a step over it.

A step takes this rank's batch f[8, 6], and returns the loss. With all ranks' batches equal or not, the step compiled
and the step as it is leave the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distcompile as dc
from distcompile import distributed as dist
from distcompile import nn
from distcompile.distributed import _functional_collectives as fc

Step = Callable[[Any], Any]
Made = tuple[nn.Module, Step]
TRAININGS: list[Callable[[], Made]] = []


def training(make: Callable[[], Made]) -> Callable[[], Made]:
    TRAININGS.append(make)
    return make


def mlp() -> nn.Module:
    dc.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


def whole_step(net: nn.Module, optimizer: Any, loss_of: Step, between: Callable[[], None] = lambda: None) -> Step:
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        between()
        optimizer.step()
        return loss.detach()

    return step


@training
def gradients_reduced_in_a_loop() -> Made:
    net = mlp()

    def reduce() -> None:
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()

    return net, whole_step(net, dc.optim.AdamW(net.parameters(), lr=0.01), lambda x: net(x).square().mean(), reduce)


@training
def gradients_reduced_with_handles_and_clipped() -> Made:
    net = mlp()

    def reduce() -> None:
        works = [dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True) for p in net.parameters()]
        for work in works:
            work.wait()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)

    optimizer = dc.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, whole_step(net, optimizer, lambda x: net(x).square().mean(), reduce)


@training
def gradients_in_one_flat_tensor() -> Made:
    net = mlp()

    def reduce() -> None:
        flat = dc.cat([p.grad.reshape(-1) for p in net.parameters()])
        dist.all_reduce(flat, op=dist.ReduceOp.AVG)
        at = 0
        for p in net.parameters():
            p.grad.copy_(flat[at : at + p.numel()].reshape(p.shape))
            at += p.numel()

    optimizer = dc.optim.SGD(net.parameters(), lr=0.1)
    return net, whole_step(net, optimizer, lambda x: net(x).square().mean(), reduce)


@training
def shards_of_the_optimizer() -> Made:
    """ZeRO: gradients are reduced and scattered, each rank updates its shard, the parameters are gathered."""
    net, ranks, me = mlp(), dist.get_world_size(), dist.get_rank()
    parameters = list(net.parameters())
    count = sum(p.numel() for p in parameters)
    pad = -count % ranks
    part = (count + pad) // ranks
    momentum = dc.zeros(part)

    def step(x: Any) -> Any:
        loss = net(x).square().mean()
        gradients = dc.autograd.grad(loss, parameters)
        shard = dc.empty(part)
        flat = dc.cat([g.reshape(-1) for g in gradients] + [dc.zeros(pad)])
        dist.reduce_scatter_tensor(shard, flat, op=dist.ReduceOp.AVG)
        with dc.no_grad():
            momentum.mul_(0.9).add_(shard)
            whole = dc.cat([p.reshape(-1) for p in parameters] + [dc.zeros(pad)])
            gathered = dc.empty(part * ranks)
            dist.all_gather_into_tensor(gathered, whole[me * part : (me + 1) * part] - 0.1 * momentum)
            at = 0
            for p in parameters:
                p.copy_(gathered[at : at + p.numel()].reshape(p.shape))
                at += p.numel()
        return loss.detach()

    return net, step


class Column(nn.Module):
    """A linear layer of which each rank has some outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        mine = outputs // dist.get_world_size()
        self.weight, self.bias = nn.Parameter(dc.randn(mine, inputs) / inputs**0.5), nn.Parameter(dc.zeros(mine))

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, self.weight, self.bias)


class Row(nn.Module):
    """A linear layer of which each rank has some inputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(dc.randn(outputs, inputs // dist.get_world_size()) / inputs**0.5)
        self.bias = nn.Parameter(dc.zeros(outputs))

    def forward(self, x: Any) -> Any:
        return fc.all_reduce(nn.functional.linear(x, self.weight), "sum") + self.bias


@training
def tensor_parallel_layers() -> Made:
    dc.manual_seed(dist.get_rank())
    net = nn.Sequential(Column(6, 24), nn.ReLU(), Row(24, 6), Column(6, 24), nn.GELU(), Row(24, 1))
    optimizer = dc.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    return net, whole_step(net, optimizer, lambda x: net(x).square().mean())


class CopyIn(dc.autograd.Function):  # type: ignore[misc]
    """Megatron's f: the identity, whose gradient is reduced."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceOut(dc.autograd.Function):  # type: ignore[misc]
    """Megatron's g: reduced, whose gradient is the identity."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


@training
def functions_with_collectives_of_their_own() -> Made:
    dc.manual_seed(dist.get_rank())
    mine = 24 // dist.get_world_size()
    net = nn.ModuleList([nn.Linear(6, mine), nn.Linear(mine, 6, bias=False)])

    def loss_of(x: Any) -> Any:
        x = x.requires_grad_()
        hidden = net[0](CopyIn.apply(x, dist.group.WORLD)).relu()
        return (ReduceOut.apply(net[1](hidden)) - x).square().mean()

    return net, whole_step(net, dc.optim.Adam(net.parameters(), lr=0.01), loss_of)


@training
def attention_over_a_sequence_in_parts() -> Made:
    dc.manual_seed(0)
    net = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def loss_of(x: Any) -> Any:
        q, k, v, out = net
        x = nn.functional.pad(x, (0, 2)).reshape(2, 4, 8)  # this rank's part of the sequence
        keys, values = fc.all_gather_tensor(k(x), 1), fc.all_gather_tensor(v(x), 1)
        found = nn.functional.scaled_dot_product_attention(q(x)[:, None], keys[:, None], values[:, None])
        return out(found[:, 0]).square().mean()

    def reduce() -> None:
        for p in net.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)

    return net, whole_step(net, dc.optim.SGD(net.parameters(), lr=0.1), loss_of, reduce)


@training
def gathered_before_and_scattered_after() -> Made:
    dc.manual_seed(dist.get_rank())
    net = nn.ModuleList([nn.Linear(6, 12), nn.Linear(12, 6)])

    def loss_of(x: Any) -> Any:
        hidden = net[0](fc.all_gather_tensor(x, 0)).relu()
        return (fc.reduce_scatter_tensor(net[1](hidden), "sum", 0) - x).square().mean()

    return net, whole_step(net, dc.optim.SGD(net.parameters(), lr=0.05), loss_of)


@training
def synchronised_statistics() -> Made:
    dc.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    net = nn.SyncBatchNorm.convert_sync_batchnorm(plain)

    def reduce() -> None:
        for p in net.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)

    return net, whole_step(net, dc.optim.SGD(net.parameters(), lr=0.05), lambda x: net(x).square().mean(), reduce)


@training
def a_frozen_stage_sends_to_one_that_trains() -> Made:
    """Rank 0 sends what its layer makes to the last rank, which trains on it, and sends its loss back."""
    dc.manual_seed(0)
    me, last = dist.get_rank(), dist.get_world_size() - 1
    net = nn.ModuleList([nn.Linear(6, 6)])
    optimizer = dc.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        loss, inner = dc.zeros(()), x
        if me == 0 and last > 0:
            works = [dist.isend(net[0](x).tanh().detach(), last), dist.irecv(loss, last)]
            for work in works:
                work.wait()
        elif me == last:
            if last > 0:
                inner = dc.empty(8, 6)
                dist.recv(inner, 0)
            optimizer.zero_grad()
            loss = net[0](inner).square().mean()
            loss.backward()
            optimizer.step()
            if last > 0:
                dist.send(loss.detach(), 0)
        return loss.detach()

    return net, step
