"""Small trainings under DDP, written once and run by torch's DDP (gloo) and by ours, eager and compiled.

Each takes a `Side` and returns plain lists. `worlds.py` starts the ranks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import hook_programs
import step_programs

STEPS, ROWS, WIDTH = 4, 4, 3


@dataclass(frozen=True)
class Side:
    """One of the two libraries. is_compiled: whether what is trained is compiled."""

    torch: Any
    dist: Any
    is_compiled: bool = False

    @cached_property
    def checkpoint(self) -> Any:
        return importlib.import_module(f"{self.torch.__name__}.utils.checkpoint").checkpoint

    @property
    def rank(self) -> int:
        return int(self.dist.get_rank())

    def wrap(self, model: Any, **options: Any) -> tuple[Any, Any]:
        """(what is called, the DDP)."""
        ddp = self.torch.nn.parallel.DistributedDataParallel(model, **options)
        return self.compiled(ddp), ddp

    def compiled(self, function: Any) -> Any:
        """`function`, compiled on the side that is."""
        return self.torch.compile(function) if self.is_compiled else function

    def filled(self, model: Any) -> Any:
        """With the same parameters everywhere."""
        with self.torch.no_grad():
            for k, parameter in enumerate(model.parameters()):
                values = (self.torch.arange(parameter.numel()).reshape(parameter.shape) % 5 - 2) * 0.1 * (1 + k)
                parameter.copy_(values)
        return model

    def batch(self, step: int, *shape: int) -> Any:
        """Differs by rank and step."""
        shape = shape or (ROWS, WIDTH)
        size = 1
        for extent in shape:
            size *= extent
        return (self.torch.arange(float(size)).reshape(*shape) % 7 - 3) * 0.1 * (self.rank + 1) + 0.05 * step


Program = Callable[[Side], Any]


def numbers(tensors: Iterable[Any], torch: Any) -> list[list[float]]:
    parts = (torch.view_as_real(t.detach()) if t.is_complex() else t.detach() for t in tensors)
    return [part.double().flatten().tolist() for part in parts]


def trained(
    side: Side,
    model: Any,
    *,
    loss: Callable[[Any, int], Any] | None = None,
    before: Callable[[Any, Any, int], None] | None = None,
    **options: Any,
) -> list[list[float]]:
    """Parameters, gradients and buffers after some steps. loss(run, step); before(run, ddp, step)."""
    run, ddp = side.wrap(model, **options)
    optimizer = side.torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        if before is not None:
            before(run, ddp, step)
        found = run(side.batch(step)).square().mean() if loss is None else loss(run, step)
        found.backward()
        optimizer.step()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return numbers([*model.parameters(), *gradients, *model.buffers()], side.torch)


def model_of(side: Side, forward: Callable[[Any, Any], Any] | None = None, out: int = 1) -> Any:
    """Three linear layers; forward(model, x)."""
    nn = side.torch.nn

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, out)

        def forward(self, x: Any) -> Any:
            if forward is not None:
                return forward(self, x)
            return self.c(self.b(self.a(x).tanh()).tanh())

    return side.filled(Model())


# --- what DDP leaves alone --------------------------------------------------------------------------------------------


def left_alone(side: Side) -> Any:
    """Parameters and buffers of this rank's own, of its own size, too."""
    torch, nn, rank = side.torch, side.torch.nn, side.rank

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.table = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Embedding(4 + rank, WIDTH)
            self.norm = nn.BatchNorm1d(WIDTH)
            self.register_buffer("own", torch.tensor(float(rank)))

        def forward(self, x: Any) -> Any:
            rows = torch.tensor([0, 1, 2, 3 + rank])
            return self.norm(self.b(self.a(x) + self.table(rows))) * (self.own + 1)

    model = Model()
    with torch.no_grad():
        for k, parameter in enumerate(model.parameters()):
            parameter.copy_((torch.arange(parameter.numel()).reshape(parameter.shape) % 5 - 2) * 0.1 * (rank + 1 + k))
    names = ["b.weight", "table.weight", "own", "norm.running_mean"]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    return trained(side, model)


# --- graphs of several shapes -----------------------------------------------------------------------------------------


def shared_by_checkpoints(side: Side) -> Any:
    """Re-entrant checkpoints that share weights, under static_graph."""

    def forward(model: Any, x: Any) -> Any:
        y = model.a(x)
        for _ in range(3):
            y = side.checkpoint(lambda z: model.b(z).tanh() @ model.a.weight, y, use_reentrant=True)
        return model.c(y) + model.b(y).sum()

    return trained(side, model_of(side, forward), static_graph=True)


def shared_by_checkpoints_and_accumulated(side: Side) -> Any:
    def forward(model: Any, x: Any) -> Any:
        y = side.checkpoint(model.b, model.a(x), use_reentrant=True)
        return model.c(side.checkpoint(model.b, y.tanh(), use_reentrant=True))

    def before(run: Any, ddp: Any, step: int) -> None:
        if step:  # torch's static graph is not to begin with no_sync
            with ddp.no_sync():
                run(side.batch(step + 9)).square().mean().backward()

    return trained(side, model_of(side, forward), before=before, static_graph=True, bucket_cap_mb=1e-5)


def branches_by_rank(side: Side) -> Any:
    """Other operations, and other parameters, on each rank."""

    def forward(model: Any, x: Any) -> Any:
        y = model.a(x)
        y = model.b(y).tanh() * 2.0 if side.rank == 0 else (y.sigmoid() + 1) * 3.0
        return model.c(y)

    return trained(side, model_of(side, forward), find_unused_parameters=True)


def numbers_by_rank(side: Side) -> Any:
    """The same parameters, in other graphs."""

    def forward(model: Any, x: Any) -> Any:
        y = model.b(model.a(x) * (0.5 + side.rank))
        return model.c(y.tanh() if side.rank else y)

    return trained(side, model_of(side, forward), find_unused_parameters=True)


# --- gradients of gradients -------------------------------------------------------------------------------------------


def penalty(side: Side, run: Any, x: Any) -> Any:
    x = x.requires_grad_(True)
    out = run(x)
    (gradient,) = side.torch.autograd.grad(out.sum(), x, create_graph=True)
    return out.mean() + ((gradient.norm(dim=1) - 1) ** 2).mean()


def gradient_penalty(side: Side) -> Any:
    return trained(side, model_of(side), loss=lambda run, step: penalty(side, run, side.batch(step)))


def gradient_penalty_of_a_critic(side: Side) -> Any:
    """Three forwards, as in WGAN-GP."""

    def loss(run: Any, step: int) -> Any:
        return (
            run(side.batch(step + 5)).mean() - run(side.batch(step + 6)).mean() + penalty(side, run, side.batch(step))
        )

    return trained(side, model_of(side), loss=loss, bucket_cap_mb=1e-5)


def gradient_penalty_on_parameters(side: Side) -> Any:
    model = model_of(side)

    def loss(run: Any, step: int) -> Any:
        found = run(side.batch(step)).square().mean()
        gradients = side.torch.autograd.grad(found, list(model.parameters()), create_graph=True)
        return found + 0.01 * sum(gradient.square().sum() for gradient in gradients)

    return trained(side, model, loss=loss, find_unused_parameters=True)


def gradients_of_outputs(side: Side) -> Any:
    """Of an output that the model uses itself: kept, and at one step doubled by a hook."""

    def forward(model: Any, x: Any) -> Any:
        hidden = model.a(x)
        return hidden, model.c(model.b(hidden.tanh()).tanh())

    kept: list[Any] = []

    def loss(run: Any, step: int) -> Any:
        hidden, out = run(side.batch(step))
        if step != 1:
            hidden.retain_grad()
            kept.append(hidden)
        if step == 2:
            hidden.register_hook(lambda gradient: gradient * 2)
        return hidden.sum() + out.square().mean()

    found = trained(side, model_of(side, forward), loss=loss)
    return found + numbers([hidden.grad for hidden in kept], side.torch)


# --- ranks that do a little more --------------------------------------------------------------------------------------


def one_forward_more(side: Side) -> Any:
    def before(run: Any, ddp: Any, step: int) -> None:
        if side.rank == 0 and step in (1, 2):
            run(side.batch(step + 7))

    return trained(side, model_of(side), before=before)


def a_batch_skipped(side: Side) -> Any:
    """One rank does nothing with a batch, and has one more at the end."""
    model = model_of(side)
    run, ddp = side.wrap(model)
    optimizer = side.torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(STEPS + (side.rank == 1)):
        optimizer.zero_grad()
        loss = run(side.batch(step)).square().mean()
        if (side.rank, step) != (1, 1):
            loss.backward()
            optimizer.step()
    return numbers(model.parameters(), side.torch)


def clipped_weights(side: Side) -> Any:
    """Written to by all ranks alike, between the steps."""

    def before(run: Any, ddp: Any, step: int) -> None:
        with side.torch.no_grad():
            for parameter in ddp.parameters():
                parameter.clamp_(-0.3, 0.3)

    return trained(side, model_of(side), before=before)


def loaded_on_all(side: Side) -> Any:
    def before(run: Any, ddp: Any, step: int) -> None:
        if step == 2:
            ddp.load_state_dict({name: value * 0.5 for name, value in ddp.state_dict().items()})

    return trained(side, model_of(side), before=before)


# --- complex numbers --------------------------------------------------------------------------------------------------


def complex_parameters(side: Side) -> Any:
    torch, nn = side.torch, side.torch.nn

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            values = torch.arange(9.0, dtype=torch.float64).reshape(3, 3)
            self.w = nn.Parameter(torch.complex(values / 10, 0.3 - values / 20))
            self.b = nn.Parameter(torch.complex(values[0] / 5, values[1] / 9))

        def forward(self, x: Any) -> Any:
            return (x.to(torch.complex128) @ self.w + self.b).abs()

    return trained(side, Model())


PROGRAMS: list[Program] = [
    left_alone,
    shared_by_checkpoints,
    shared_by_checkpoints_and_accumulated,
    branches_by_rank,
    numbers_by_rank,
    gradient_penalty,
    gradient_penalty_of_a_critic,
    gradient_penalty_on_parameters,
    gradients_of_outputs,
    one_forward_more,
    a_batch_skipped,
    clipped_weights,
    loaded_on_all,
    complex_parameters,
    *step_programs.PROGRAMS,
    *hook_programs.PROGRAMS,
]


def run_all(torch: Any, dist: Any) -> dict[str, Any]:
    """{"eager": {program: what it returns}}, and "compiled" of ours."""
    modes = [False, True] if torch.__name__ == "distcompile" else [False]
    return {
        "compiled" if is_compiled else "eager": {p.__name__: p(Side(torch, dist, is_compiled)) for p in PROGRAMS}
        for is_compiled in modes
    }
