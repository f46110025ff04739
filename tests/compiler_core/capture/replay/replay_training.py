"""Programs with the effects of training: modules, optimizers, modes, random draws. See `replay_programs`."""

from __future__ import annotations

from typing import Any

import distcompile as torch
from distcompile import nn
from distcompile.nn import functional as F
from tests.compiler_core.capture.replay.replay_programs import Box, program


@program
def state_written_in_place(log: list[Any]) -> Any:
    box = Box(total=torch.zeros(3), count=torch.zeros(1))

    def function(x: Any) -> Any:
        box.total.add_(x)
        box.total[0] = x.sum()
        box.count += 1
        return box.total / box.count

    return function, box


@program
def view_of_state(log: list[Any]) -> Any:
    box = Box(buffer=torch.arange(4.0), tail=None)

    def function(x: Any) -> Any:
        box.tail = box.buffer[1:]
        box.tail.mul_(2).add_(x)
        return box.buffer.sum() + box.tail

    return function, box


@program
def whole_training_step(log: list[Any]) -> Any:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        log.append(len(optimizer.state))
        return loss.detach(), norm

    return function, lambda: [p.detach() for p in model.parameters()]


@program
def training_and_evaluating(log: list[Any]) -> Any:
    model = nn.Sequential(nn.BatchNorm1d(3, affine=False))

    def function(x: Any) -> Any:
        rows = torch.stack([x, x + 1, x * 2])
        model.train()
        y = model(rows)
        model.eval()
        log.append(model.training)
        return y + model(rows)

    return function, lambda: list(model.buffers())


@program
def gradients_switched(log: list[Any]) -> Any:
    model = nn.Linear(3, 1)
    box = Box(on=True)

    def function(x: Any) -> Any:
        box.on = not box.on
        for parameter in model.parameters():
            parameter.requires_grad_(box.on)
        y = model(x)
        log.append(y.requires_grad)
        return y

    return function, lambda: [p.requires_grad for p in model.parameters()]


@program
def modes_left_on(log: list[Any]) -> Any:
    w = torch.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        y = x * w
        with torch.no_grad():
            z = x * w
        torch.set_grad_enabled(False)
        v = y * w
        torch.set_grad_enabled(True)
        log.append((y.requires_grad, z.requires_grad, v.requires_grad))
        return y + z + v

    return function, lambda: torch.is_grad_enabled()


@program
def draws(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        y = F.dropout(x, 0.5) + torch.rand(3)
        print("break")
        return y + torch.randn(3)

    return function, lambda: torch.rand(2)


@program
def seeds_set_inside(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        torch.manual_seed(5)
        return x + torch.rand(3)

    return function, lambda: torch.rand(2)


@program
def leaf_made_inside(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        w = torch.ones(3, requires_grad=True)
        loss = (x * w).sum()
        loss.backward()
        return w, w.grad

    return function, None


@program
def parameter_made_inside(log: list[Any]) -> Any:
    box = Box(p=None)

    def function(x: Any) -> Any:
        box.p = nn.Parameter(x * 2)
        return box.p * x

    return function, box


@program
def parameter_replaced(log: list[Any]) -> Any:
    model = nn.Linear(3, 1)

    def function(x: Any) -> Any:
        y = model(x)
        model.bias = nn.Parameter(torch.zeros(1))
        model.extra = x * 2
        return y + model(x)

    return function, lambda: (model.bias, model.extra)


@program
def counters_in_modules(log: list[Any]) -> Any:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.calls, self.seen = 0, []

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.seen.append(x.shape)
            total = x
            for name, parameter in self.named_parameters():
                log.append(name)
                total = total + parameter * self.calls
            return total

    model = nn.Sequential(Layer(), Layer())
    return model, lambda: [(layer.calls, layer.seen) for layer in model]


@program
def gradient_accumulated_by_hand(log: list[Any]) -> Any:
    w = torch.ones(3)

    def function(x: Any) -> Any:
        grad = x * 2
        w.grad = grad if w.grad is None else w.grad + grad
        return w * w.grad

    return function, w


@program
def hidden_state_detached(log: list[Any]) -> Any:
    cell = nn.GRUCell(3, 3)
    box = Box(h=torch.zeros(1, 3))

    def function(x: Any) -> Any:
        h = cell(x.unsqueeze(0), box.h)
        box.h = h.detach()
        return h.sum()

    return function, box


@program
def clipped_by_norm(log: list[Any]) -> Any:
    kept = [torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
    box = Box(n=0)

    def function(x: Any) -> Any:
        kept[0].grad, kept[1].grad = x * 1, x[:2] * 0.5
        box.n += 1
        kinds = (2.0, float("inf"), 1.0)
        return torch.nn.utils.clip_grad_norm_(kept, 1.5, norm_type=kinds[box.n % 3])

    return function, lambda: [None if w.grad is None else w.grad for w in kept]
