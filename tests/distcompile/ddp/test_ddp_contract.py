"""What users of torch's DDP rely on, eager and compiled: hooks, penalties, partial backwards, shared modules.

Every program's gradients equal those of one rank on the joined batch, or it ends in a named error.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from ddp_models import (
    Branched,
    DistributedDataParallel,
    Net,
    batch,
    check_close,
    gradients,
    joined_gradients,
    loss_of,
    on_ranks,
    shard,
    weight,
    wrap,
)

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.config import config
from compiler_core.log import DistCompileWarning
from compiler_core.tensor.autograd.backward import backward, grad
from compiler_core.tensor.tensor import Tensor
from distcompile import nn, optim
from distcompile.ddp.errors import LedgerError, UnusedParameterError
from distcompile.errors import NotSupportedError
from distcompile.nn.module import Module
from tests.sharing import some

pytestmark = pytest.mark.filterwarnings("ignore::compiler_core.log.DistCompileWarning")
BACKENDS = [None, "eager", "aot_eager", "codegen"]
TINY_MB = 1e-6


def wrapped(module: Module, backend: str | None, **options: object) -> tuple[DistributedDataParallel, Callable]:
    ddp = DistributedDataParallel(module, bucket_cap_mb=TINY_MB, **options)  # type: ignore[arg-type]
    return ddp, compile(ddp, backend=backend) if backend else ddp


def mean_of(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: sum(part[name] for part in parts) / len(parts) for name in parts[0]}


# -- hooks


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_after_accumulation_see_the_local_sum_as_in_torch(backend: str | None, local: bool) -> None:
    """Before or after wrapping, synchronised or not: `.grad` is this rank's sum; what they do to it is reduced."""

    def step(communicator: Communicator) -> None:
        model = Net()
        seen: dict[str, np.ndarray] = {}

        def look(name: str) -> Callable[[Tensor], None]:
            def hook(parameter: Tensor) -> None:
                seen[name] = np.array(parameter.grad._cell.current())
                parameter.grad.mul_(2.0)

            return hook

        model.w2.register_post_accumulate_grad_hook(look("w2"))
        ddp, run = wrapped(model, backend)
        model.b1.register_post_accumulate_grad_hook(look("b1"))
        mine = np.array_split(batch(), communicator.world_size)[communicator.rank]
        ddp.require_backward_grad_sync = not local
        loss_of(run(wrap(mine))).backward()
        alone, expected = joined_gradients(Net(), mine), joined_gradients(Net(), mine if local else batch())
        check_close(seen, {name: alone[name] for name in ("w2", "b1")})
        check_close(gradients(model), {n: g * (2 if n in seen else 1) for n, g in expected.items()})

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_optimizer_inside_a_hook_takes_the_gradient_away(backend: str | None) -> None:
    """A hook that drops `.grad` leaves nothing to reduce: as in torch, that rank counts as zero."""

    def step(communicator: Communicator) -> None:
        model = Net()
        model.w2.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
        ddp, run = wrapped(model, backend)
        loss_of(run(shard(batch(), communicator))).backward()
        expected = joined_gradients(Net(), batch())
        assert ddp.module.w2.grad is None
        check_close(gradients(model), {n: g for n, g in expected.items() if n != "w2"})

    on_ranks(2, step)


# -- contributions from outside the wrapped call


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_penalty_on_the_weights_that_differs_by_rank(backend: str | None) -> None:
    def loss(model: Net, y: Tensor, rank: int) -> Tensor:
        return loss_of(y) + (model.w1 * model.w1).sum() * (rank + 1.0) + model.b1.sum()

    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), backend)
        for seed in (1, 2):
            ddp.zero_grad()
            loss(ddp.module, run(wrap(batch(seed + communicator.rank))), communicator.rank).backward()
            parts = []
            for rank in range(2):
                alone = Net()
                loss(alone, alone(wrap(batch(seed + rank))), rank).backward()
                parts.append(gradients(alone))
            check_close(gradients(ddp.module), mean_of(parts))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_calls_before_one_backward_still_overlap(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), backend)
        for count in (3, 2):
            ddp.zero_grad()
            losses = [loss_of(run(shard(batch(seed), communicator))) for seed in range(count)]
            sum(losses[1:], start=losses[0]).backward()
            check_close(gradients(ddp.module), joined_gradients(Net(), *(batch(seed) for seed in range(count))))
        if backend in ("aot_eager", "codegen"):
            assert [row.segment for row in ddp.overlap_report().rows] == [3, 4, 5]  # of two calls, three each

    on_ranks(2, step)


class TwoOutputs(Net):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        hidden = (x @ self.w1).tanh() + self.b1
        return hidden, hidden.detach() @ self.w2


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_output_that_the_loss_does_not_use(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(TwoOutputs(), backend)
        with pytest.raises(UnusedParameterError, match="'w2'"):
            loss_of(run(shard(batch(), communicator))[0]).backward()
        for options in ({"find_unused_parameters": True}, {"static_graph": True}):
            ddp, run = wrapped(TwoOutputs(), backend, **options)
            for _ in range(2):
                ddp.zero_grad()
                loss_of(run(shard(batch(), communicator))[0]).backward()
                alone = TwoOutputs()
                loss_of(alone(wrap(batch()))[0]).backward()
                assert ddp.module.w2.grad is None  # no weight decay on it
                check_close(gradients(ddp.module), gradients(alone))
            outputs = run(shard(batch(), communicator))
            (loss_of(outputs[0]) + loss_of(outputs[1])).backward()
            assert ddp.module.w2.grad is not None

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_parameter_used_under_no_sync_only_is_reduced_all_the_same(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Branched(), backend, find_unused_parameters=True)
        alone = Branched()
        for _ in range(2):
            ddp.zero_grad()
            alone.zero_grad()
            with ddp.no_sync():
                loss_of(run(shard(batch(1), communicator), use_extra=True)).backward()
            loss_of(run(shard(batch(2), communicator))).backward()
            loss_of(alone(wrap(batch(1)), use_extra=True)).backward()
            loss_of(alone(wrap(batch(2)))).backward()
            check_close(gradients(ddp.module), gradients(alone))

    on_ranks(2, step)


# -- backwards that are partial, repeated, or differentiated


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_into_some_inputs_and_grad_leave_the_rest_alone(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), backend)
        mine = np.array_split(batch(), 2)[communicator.rank]
        found = grad(loss_of(run(wrap(mine))), list(ddp.module.parameters()))
        names = [name for name, _ in ddp.module.named_parameters()]
        check_close(dict(zip(names, (np.array(g._cell.current()) for g in found))), joined_gradients(Net(), mine))
        assert gradients(ddp.module) == {}  # grad() reduces nothing and accumulates nothing
        x = Tensor(wrap(mine)._cell, requires_grad=True)
        backward(loss_of(run(x)), inputs=[x])
        assert x.grad is not None
        assert gradients(ddp.module) == {}
        backward(loss_of(run(wrap(mine))), inputs=list(ddp.module.parameters()))
        check_close(gradients(ddp.module), joined_gradients(Net(), batch()))
        with pytest.raises(UnusedParameterError, match=r"'b1'.*'w1'|'w1'.*'b1'"):
            backward(loss_of(run(wrap(mine))), inputs=[ddp.module.w2])

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_graph_that_is_kept_may_be_run_again(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), backend)
        loss = loss_of(run(shard(batch(), communicator)))
        loss.backward(retain_graph=True)
        check_close(gradients(ddp.module), joined_gradients(Net(), batch()))
        loss.backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch(), batch()))

    on_ranks(2, step)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_module_called_by_itself_keeps_its_gradients_local(backend: str | None, is_compiled: bool) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), backend)
        alone = compile(ddp.module, backend=backend or "codegen") if is_compiled else ddp.module
        mine, joined = shard(batch(), communicator), joined_gradients(Net(), batch())
        for _ in range(2):
            loss_of(run(mine)).backward()
            check_close(gradients(ddp.module), joined)
            ddp.zero_grad()
            if communicator.rank == 1:  # no other rank takes part
                loss_of(alone(mine)).backward()
                check_close(gradients(ddp.module), joined_gradients(Net(), np.array_split(batch(), 2)[1]))
                ddp.zero_grad()
            next(ddp.parameters()).sum().backward()  # nor is it an error that others get no gradient
            ddp.zero_grad()

    on_ranks(2, step)


def test_gradients_that_stay_local_are_said_once() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        loss_of(ddp.module(shard(batch(), communicator))).backward()

    with pytest.warns(DistCompileWarning, match="without a forward of DistributedDataParallel stay on this rank"):
        on_ranks(1, step)


def test_a_history_of_reduced_gradients_is_refused_by_name() -> None:
    def step(communicator: Communicator) -> None:
        _, run = wrapped(Net(), None)
        with pytest.raises(NotSupportedError, match="create_graph"):
            loss_of(run(shard(batch(), communicator))).backward(create_graph=True)

    on_ranks(1, step)


def test_a_gradient_penalty_on_the_input_is_right() -> None:
    def penalised(run: Callable[[Tensor], Tensor], array: np.ndarray) -> Tensor:
        x = Tensor(wrap(array)._cell, requires_grad=True)
        y = run(x)
        (gx,) = grad(y.sum(), [x], create_graph=True)
        return loss_of(y) + loss_of(gx)

    def step(communicator: Communicator) -> None:
        ddp, alone = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB), Net()
        penalised(ddp, np.array_split(batch(), 2)[communicator.rank]).backward()
        penalised(alone, batch()).backward()
        check_close(gradients(ddp.module), gradients(alone))

    on_ranks(2, step)


# -- several instances


class Headed(Module):
    def __init__(self, body: Net, seed: int) -> None:
        super().__init__()
        self.body, self.head = body, weight(seed, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) @ self.head


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_shared_by_two_instances(backend: str | None, together: bool) -> None:
    def losses(runs: list[Callable[[Tensor], Tensor]], x: Tensor) -> list[Tensor]:
        return [loss_of(run(x)) for run in runs]

    def step(communicator: Communicator) -> None:
        body, alone = Net(), Net()
        pairs = [wrapped(Headed(body, seed), backend) for seed in (31, 32)]
        models = [Headed(alone, seed) for seed in (31, 32)]
        for _ in range(2):
            for (ddp, _), model in zip(pairs, models):
                ddp.zero_grad()
                model.zero_grad()
            found = losses([run for _, run in pairs], shard(batch(), communicator))
            expected = losses(list(models), wrap(batch()))
            for group in (found, expected):
                if together:
                    (group[0] + group[1]).backward()
                else:
                    group[0].backward()
                    group[1].backward()
            for (ddp, _), model in zip(pairs, models):
                check_close(gradients(ddp.module), gradients(model))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_instance_after_another_on_the_same_module(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        model = Net()
        _, run = wrapped(model, backend)
        loss_of(run(shard(batch(1), communicator))).backward()
        _, run_second = wrapped(model, backend)
        for _ in range(2):
            model.zero_grad()
            loss_of(run_second(shard(batch(2), communicator))).backward()
            check_close(gradients(model), joined_gradients(Net(), batch(2)))

    on_ranks(2, step)


def test_an_instance_that_is_gone_is_forgotten() -> None:
    def step(communicator: Communicator) -> None:
        model = Net()
        first, second = wrapped(model, None)[0], wrapped(model, None)[0]
        for ddp in (first, second):
            model.zero_grad()
            loss_of(ddp(wrap(batch(1)))).backward()
        gone = weakref.ref(first._books)
        del first, ddp
        gc.collect()
        assert gone() is None
        model.zero_grad()
        loss_of(second(wrap(batch(3)))).backward()
        check_close(gradients(model), joined_gradients(Net(), batch(3)))

    on_ranks(1, step)


@pytest.mark.parametrize("backend", [None, "aot_eager", "codegen"])
def test_a_wrapped_module_inside_a_wrapped_module(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        inner = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        outer = Headed(inner, 31)  # type: ignore[arg-type]
        ddp, run = wrapped(outer, backend)
        alone = Headed(Net(), 31)
        for seed in (1, 2):
            ddp.zero_grad()
            alone.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            loss_of(alone(wrap(batch(seed)))).backward()
            found = {name.replace("body.module", "body"): value for name, value in gradients(ddp.module).items()}
            check_close(found, gradients(alone))

    on_ranks(2, step)


# -- `.grad` in the user's hands


@pytest.mark.parametrize("backend", BACKENDS)
def test_replaced_clipped_and_kept_gradients(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), backend)
        alone = Net()
        kept: list[tuple[Tensor, np.ndarray]] = []
        for seed in range(6):
            if seed % 2:
                ddp.zero_grad()
                alone.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            loss_of(alone(wrap(batch(seed)))).backward()
            kept.append((ddp.module.w1.grad.detach().clone() if seed % 3 else ddp.module.w1.grad, np.array(0)))
            for module in (ddp.module, alone):
                nn.utils.clip_grad_norm_(module.parameters(), 0.5)
                module.w2.grad = module.w2.grad * 3.0
            check_close(gradients(ddp.module), gradients(alone))
        assert all(len(pool.buffers) <= 3 for pool in ddp._books.layout.pools)

    on_ranks(2, step)


# -- the optimizer and local gradients


@pytest.mark.parametrize("backend", [None, "codegen"])
def test_local_sgd_with_averaged_parameters_is_no_error(backend: str | None) -> None:
    def step(communicator: Communicator, averages: bool) -> None:
        ddp, run = wrapped(Net(), backend)
        optimizer = optim.SGD(ddp.parameters(), lr=0.1)
        for seed in range(3):
            with ddp.no_sync():
                optimizer.zero_grad()
                loss_of(run(shard(batch(seed), communicator))).backward()
                optimizer.step()
        optimizer.zero_grad()
        if averages:
            for parameter in ddp.parameters():
                array = np.array(parameter._cell.current())
                communicator.all_reduce(array, "avg")
                parameter._cell.write(array)
        loss_of(run(shard(batch(9), communicator))).backward()

    on_ranks(2, lambda c: step(c, averages=True))
    with pytest.raises(LedgerError, match="ranks hold different parameters"):
        on_ranks(2, lambda c: step(c, averages=False))


@pytest.mark.parametrize("backend", [None, "codegen"])
def test_gradients_that_were_cleared_are_no_error(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), backend)
        with ddp.no_sync():
            loss_of(run(shard(batch(1), communicator))).backward()
        ddp.zero_grad()
        ddp.module.load_state_dict(Net(3).state_dict())
        loss_of(run(shard(batch(2), communicator))).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(3), batch(2)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_converted_after_wrapping(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        ddp, run = wrapped(Net(), backend)
        for convert in (ddp.float, ddp.double):
            convert()
            ddp.zero_grad()
            x = shard(batch(), communicator)
            loss_of(run(x.float() if convert == ddp.float else x)).backward()
            assert {p.grad.dtype for p in ddp.parameters()} == {p.dtype for p in ddp.parameters()}
        alone = Net().float().double()
        loss_of(alone(wrap(batch()))).backward()
        check_close(gradients(ddp.module), gradients(alone))

    on_ranks(2, step)


# -- bits


@pytest.mark.parametrize("backend", some(BACKENDS[::-1], 2))
def test_bits_do_not_depend_on_bucket_sizes_recompiles_or_repetition(backend: str | None) -> None:
    class Layers(Module):
        def __init__(self) -> None:
            super().__init__()
            rng = np.random.default_rng(0)
            self.layers = nn.Sequential(nn.Linear(16, 33), nn.LayerNorm(33), nn.GELU(), nn.Linear(33, 7), nn.Tanh())
            for parameter in self.parameters():
                parameter._cell.write(rng.normal(size=parameter.shape).astype(np.float32))

        def forward(self, x: Tensor) -> Tensor:
            return (self.layers(x) ** 2).mean()

    def step(communicator: Communicator, cap_mb: float, other_first: bool) -> list[bytes]:
        ddp = DistributedDataParallel(Layers(), bucket_cap_mb=cap_mb)
        run = compile(ddp, backend=backend) if backend else ddp
        rng = np.random.default_rng(communicator.rank)
        x = wrap(rng.normal(size=(12, 16)).astype(np.float32))
        if other_first:
            run(wrap(np.ones((5, 16), np.float32))).backward()
        found = []
        for _ in range(2):
            ddp.zero_grad()
            run(x).backward()
            found.append(b"".join(array.tobytes() for array in gradients(ddp.module).values()))
        assert found[0] == found[1]
        return found

    def bits(cap_mb: float, other_first: bool = False) -> list[bytes]:
        return on_ranks(3, lambda c: step(c, cap_mb, other_first))[0]

    for boundary in ("cut", "notification"):
        with config.patch(boundary=boundary):
            expected = bits(25.0)
            for cap_mb in (1e-6, 0.001, 0.004):
                assert bits(cap_mb) == expected
            assert bits(0.001, other_first=True) == expected
