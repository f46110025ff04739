"""torch.profiler's names: rows, sums, schedules, traces; device times on the stand-in device."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

import distcompile as dc
from distcompile import nn
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from tests.fake_cupy import on_fake_device


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(4, 8), nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        return dc.softmax(self.norm(self.up(x)) * 2, 1)


def rows(found: Any) -> dict[str, Any]:
    return {row.key: row for row in found.key_averages()}


def train(net: Any, x: Any) -> None:
    optimizer = dc.optim.SGD(net.parameters(), lr=0.1)
    with record_function("forward"):
        y = net(x)
    y.square().sum().backward()
    optimizer.step()


def test_rows_are_the_calls_that_a_program_makes() -> None:
    net, x = Net(), dc.randn(3, 4)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        train(net, x)
        train(net, x)
    by_name = rows(found)
    for name in ("forward", "nn.Module: Net", "nn.Module: Linear", "linear", "layer_norm", "softmax", "mul", "backward",
                 "Optimizer.step#SGD.step"):  # fmt: skip
        assert by_name[name].count == 2, name
    assert "shape" not in by_name
    outer, inner = by_name["forward"], by_name["nn.Module: Net"]
    assert outer.cpu_time_total >= inner.cpu_time_total >= by_name["softmax"].cpu_time_total > 0
    assert outer.self_cpu_time_total == pytest.approx(outer.cpu_time_total - inner.cpu_time_total)
    total = sum(event.cpu_time_total for event in found.events() if event.is_top)
    assert found.events().self_cpu_time_total == pytest.approx(total)
    (linear,) = {str(row.input_shapes) for row in found.key_averages(group_by_input_shape=True) if row.key == "linear"}
    assert linear == "[[3, 4], [8, 4], [8]]"


def test_functions_of_one_two_and_three_dims_have_their_own_names() -> None:
    x = dc.ones(1, 1, 4, 4)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        dc.conv2d(x, x)
        nn.functional.lp_pool2d(x, 2.0, 2)
        nn.functional.max_pool2d_with_indices(x, 2)
        nn.functional.max_pool1d(x[0], 2)
    assert {"conv2d", "lp_pool2d", "max_pool2d_with_indices", "max_pool1d"} <= set(rows(found))


def test_times_are_times() -> None:
    with profile() as found, record_function("sleep"):
        time.sleep(0.02)
    (event,) = found.events()
    assert 2e4 <= event.cpu_time_total < 1e6
    assert not dc.profiler.watching.current.watch

    @record_function("decorated")
    def f() -> int:
        return 1

    with profile() as found:
        f()
    assert [event.name for event in found.events()] == ["decorated"]
    assert f() == 1  # without a profile


def test_the_table() -> None:
    with profile() as found:
        dc.ones(3).sum()
        dc.ones(3) + 1
    table = found.key_averages().table(sort_by="count", row_limit=1, header="what")
    assert table.startswith("what\n---")
    assert "Self CPU time total:" in table
    assert "ones" in table
    assert "sum" not in table
    assert "CUDA" not in table
    with pytest.raises(ArgumentError, match="no such time"):
        found.key_averages().table(sort_by="nothing")
    with pytest.raises(NotSupportedError):
        found.export_stacks("x")
    with pytest.warns(UserWarning, match="with_flops is not measured"):
        profile(with_flops=True)


def test_an_exception_ends_calls() -> None:
    with profile() as found:
        with pytest.raises(RuntimeError):
            dc.ones(2, 3) @ dc.ones(2, 3)
        dc.ones(3)
    assert [(event.name, event.is_top) for event in found.events()][-1] == ("ones", True)


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
def test_schedules_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    for options in ({"wait": 1, "warmup": 1, "active": 2, "repeat": 2}, {"wait": 0, "warmup": 0, "active": 1},
                    {"wait": 2, "warmup": 1, "active": 3, "skip_first": 4}):  # fmt: skip
        mine, theirs = schedule(**options), torch.profiler.schedule(**options)
        assert [mine(k).name for k in range(30)] == [theirs(k).name for k in range(30)]
    assert {one.name for one in ProfilerAction} <= {one.name for one in torch.profiler.ProfilerAction}


def test_steps_and_traces(tmp_path: Path) -> None:
    told: list[list[str]] = []

    def ready(found: profile) -> None:
        told.append([event.name for event in found.events()])
        tensorboard_trace_handler(str(tmp_path), "worker", use_gzip=True)(found)

    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready) as found:
        for _ in range(10):
            dc.ones(2)
            found.step()
    steps = [[2, 3], [6, 7]]
    assert told == [[name for k in cycle for name in (f"ProfilerStep#{k}", "ones")] for cycle in steps]
    files = list(tmp_path.iterdir())
    assert len(files) == 2
    made = json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"]
    assert {event["ph"] for event in made} == {"X"}
    step, ones = made[:2]
    assert step["ts"] <= ones["ts"] <= ones["ts"] + ones["dur"] <= step["ts"] + step["dur"]


def test_device_times(tmp_path: Path) -> None:
    assert supported_activities() == {ProfilerActivity.CPU}
    with on_fake_device():
        assert ProfilerActivity.CUDA in supported_activities()
        x = dc.ones(64, 64, device="cuda")
        with profile() as found, record_function("both"):
            x @ x
            x + x
        by_name = rows(found)
        assert by_name["both"].cuda_time_total >= by_name["matmul"].device_time_total > 0
        assert "Self CUDA time total:" in found.key_averages().table(sort_by="cuda_time_total")
        found.export_chrome_trace(tmp_path / "trace.json")
    made = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["cat"] for event in made].count("kernel") == 3


def test_a_compiled_function_is_a_row() -> None:
    f = dc.compile(lambda x: dc.sin(x) + 1, backend="eager")
    x = dc.ones(3)
    f(x)
    with profile() as found:
        f(x)
    assert [event.name for event in found.events()] == ["compiled: <lambda>"]


def test_autograds_profiler() -> None:
    with dc.autograd.profiler.profile(record_shapes=True) as found:
        dc.ones(3).sum()
    assert {event.name for event in found} == {"ones", "sum"}
    assert "Self CPU" in found.table()
    assert found.total_average().count == 2
    with pytest.raises(ArgumentError, match="do not nest"), profile(), profile():
        pass
