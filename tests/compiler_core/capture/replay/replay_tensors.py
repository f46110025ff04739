"""Programs whose effects are on tensors, modules and optimizers. See `replay_programs`."""

from __future__ import annotations

from typing import Any

import distcompile as torch
from distcompile import nn
from distcompile.nn import functional as F
from tests.compiler_core.capture.replay.replay_programs import Box, program

# -- modules, optimizers, tensors


@program
def zero_grad_in_the_step(log: list[Any]) -> Any:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones(*parameter.shape)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        log.append(all(parameter.grad is None for parameter in model.parameters()))
        return model(x).sum()

    return function, [parameter.grad for parameter in model.parameters()]


@program
def gradient_set_to_none(log: list[Any]) -> Any:
    w = torch.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        w.grad = None
        return (x * w).sum()

    return function, w


@program
def attribute_of_an_argument(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        x.tag = getattr(x, "tag", 0) + 1
        log.append(x.tag)
        return x * x.tag

    return function, None


@program
def tensor_attribute_that_is_a_tensor(log: list[Any]) -> Any:
    w = torch.ones(3)

    def function(x: Any) -> Any:
        w.last = x * 2
        return w.last + w

    return function, w


@program
def counting_buffer(log: list[Any]) -> Any:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(1))
            self.n = 0

        def forward(self, x: Any) -> Any:
            self.steps += 1
            self.n += 1
            return x * self.steps + self.n

    model = Counting()
    return model, lambda: (model.steps, model.n)


@program
def flipped_flag(log: list[Any]) -> Any:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ready = False

        def forward(self, x: Any) -> Any:
            if not self.ready:
                log.append("first")
                self.ready = True
                self.scale = x.sum().detach()
            return x * self.scale

    model = Lazy()
    return model, lambda: (model.ready, model.scale)


@program
def data_assigned(log: list[Any]) -> Any:
    w = torch.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        w.data = w.data * 2
        return x * w

    return function, w


@program
def moving_average(log: list[Any]) -> Any:
    model, average = nn.Linear(3, 3), nn.Linear(3, 3)

    def function(x: Any) -> Any:
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), model.parameters()):
                mine.mul_(0.9).add_(theirs, alpha=0.1)
        return average(x).sum()

    return function, lambda: list(average.parameters())


@program
def batch_norm_in_training(log: list[Any]) -> Any:
    model = nn.BatchNorm1d(3)
    return (lambda x: model(x.reshape(1, 3).repeat(4, 1) + torch.arange(4.0)[:, None])), lambda: list(model.buffers())


@program
def forward_hook_that_keeps(log: list[Any]) -> Any:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, output: log.append(output.detach()))
    return model, None


@program
def cached_by_key(log: list[Any]) -> Any:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._cache: dict[Any, Any] = {}

        def forward(self, x: Any) -> Any:
            key = (x.shape, x.dtype)
            if key not in self._cache:
                log.append("miss")
                self._cache[key] = torch.arange(3.0) + 1
            return x * self._cache[key]

    model = Cache()
    return model, model._cache


@program
def private_log(log: list[Any]) -> Any:
    box = Box(_log=[])

    def function(x: Any) -> Any:
        y = x * 2
        box._log.append(y)
        box._log.append(len(box._log))
        return y + 1

    return function, box


@program
def replaced_function(log: list[Any]) -> Any:
    box = Box(relu=F.relu)

    def function(x: Any) -> Any:
        y = box.relu(x)
        box.relu = F.gelu if box.relu is F.relu else F.relu
        return y

    return function, None


@program
def written_argument(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        x.mul_(2)
        x[0] = 5.0
        log.append(x)
        return x.sum()

    return function, None


@program
def reshaped_argument(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        x.unsqueeze_(0)
        return x * 2

    return function, None


@program
def states_kept(log: list[Any]) -> Any:
    box = Box(hidden=None, past=[])

    def function(x: Any) -> Any:
        box.hidden = x if box.hidden is None else box.hidden * 0.5 + x
        box.past.append(box.hidden.detach())
        return box.hidden

    return function, box
