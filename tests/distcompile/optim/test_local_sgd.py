"""Model averagers and PostLocalSGDOptimizer: what torch's do, on ranks with different parameters."""

from __future__ import annotations

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile import nn
from distcompile.distributed import use_communicator
from distcompile.distributed.algorithms.model_averaging.averagers import (
    PeriodicModelAverager,
    average_parameters,
    average_parameters_or_parameter_groups,
)
from distcompile.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from distcompile.errors import ArgumentError, NotSupportedError, StateDictError
from distcompile.optim import SGD


def parameter(*values: float, dtype: dc.dtype = dc.float32) -> nn.Parameter:
    return nn.Parameter(dc.tensor(values, dtype=dtype))


def test_parameters_of_several_dtypes_are_averaged() -> None:
    def step(world: Communicator) -> None:
        with use_communicator(world):
            a, b = parameter(world.rank, 2.0), parameter(4.0 * world.rank, dtype=dc.float64)
            average_parameters([a, b])
            assert (a.tolist(), b.tolist()) == ([0.5, 2.0], [2.0])
            a.grad = dc.zeros(2)
            with dc.no_grad():
                a.fill_(float(world.rank))
                b.fill_(float(world.rank))
            average_parameters_or_parameter_groups([{"params": [a, b]}])  # b has no gradient
            assert (a.tolist(), b.tolist()) == ([0.5, 0.5], [float(world.rank)])
            with pytest.raises(ArgumentError):
                average_parameters_or_parameter_groups([])

    run_ranks(2, step)


def test_the_optimizer_averages_every_period_after_the_warm_up() -> None:
    def step(world: Communicator) -> None:
        with use_communicator(world):
            p = parameter(0.0)
            optimizer = PostLocalSGDOptimizer(SGD([p], lr=1.0), PeriodicModelAverager(period=2, warmup_steps=2))
            seen = []
            for _ in range(6):
                p.grad = dc.tensor([float(world.rank)])
                optimizer.step()
                seen.append(p.item())
            alone = [0, 0, 0, 0, 0, 0] if world.rank == 0 else [-1, -2, -3, -4, -5, -6]
            # averaged after steps 3 and 5 (counted from 1)
            assert seen[:2] == alone[:2]
            assert seen[2] == -1.5
            assert seen[3] == -1.5 - world.rank
            assert seen[4] == -2.5
            state = optimizer.state_dict()
            assert state["step"] == 6
            del state["step"]
            with pytest.warns(UserWarning, match="step counter"):
                optimizer.load_state_dict(state)
            assert optimizer.averager.step == 0
            assert optimizer.param_groups is optimizer.optim.param_groups

    run_ranks(2, step)


def test_options_are_checked() -> None:
    def step(world: Communicator) -> None:
        with use_communicator(world):
            for options in ({"period": 0}, {"period": 1, "warmup_steps": -1}):
                with pytest.raises(ArgumentError):
                    PeriodicModelAverager(**options)
            with pytest.raises(NotSupportedError):
                ZeroRedundancyOptimizer([parameter(1.0)], SGD, overlap_with_ddp=True, lr=1.0)
            zero = ZeroRedundancyOptimizer([parameter(1.0)], SGD, lr=1.0)
            with pytest.raises(StateDictError, match="consolidate"):
                zero.state_dict()
            with pytest.raises(StateDictError, match="other parameter groups"):
                zero.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})

    run_ranks(2, step)


def test_zero_takes_groups_added_later_and_options_set_by_schedulers() -> None:
    def step(world: Communicator) -> list[float]:
        with use_communicator(world):
            parameters = [parameter(*range(n)) for n in (3, 2, 4)]
            zero = ZeroRedundancyOptimizer(parameters[:2], SGD, lr=1.0)
            zero.add_param_group({"params": parameters[2:], "lr": 0.5})
            zero.param_groups[0]["lr"] = 2.0
            for p in parameters:
                p.grad = dc.ones(len(p))
            zero.step()
            assert sum(len(group["params"]) for group in zero.optim.param_groups) in (1, 2)
            return [value for p in parameters for value in p.tolist()]

    expected = [-2.0, -1.0, 0.0, -2.0, -1.0, -0.5, 0.5, 1.5, 2.5]
    assert run_ranks(2, step) == [expected] * 2
    assert np.isfinite(expected).all()
