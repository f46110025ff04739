"""Anomaly mode: the same programs end, and the same go on, here and under torch; here the error names the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
Program = Callable[[Any, Any], Any]

PROGRAMS: dict[str, Program] = {
    "nan": lambda t, x: (t.sqrt(x) * 0).sum(),
    "no nan": lambda t, x: (x * 2).sum(),
    "infinite": lambda t, x: t.sqrt(x).sum(),
    "nan that is not used": lambda t, x: t.where(x > 1, t.log(x), x).sum(),
    "norm": lambda t, x: (x / x).sum(),
}


def ended(t: Any, program: Program, check_nan: bool) -> str | None:
    """The error's first line, or None."""
    x = t.zeros(3, requires_grad=True)
    with t.autograd.detect_anomaly(check_nan=check_nan):
        assert (t.is_anomaly_enabled(), t.is_anomaly_check_nan_enabled()) == (True, check_nan)
        try:
            program(t, x).backward()
        except RuntimeError as error:
            return str(error).splitlines()[0]
    return None


@pytest.mark.parametrize("check_nan", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_programs_end(name: str, check_nan: bool) -> None:
    assert ended(dc, PROGRAMS[name], check_nan) == ended(torch, PROGRAMS[name], check_nan)
    assert not dc.is_anomaly_enabled()


def test_the_line_of_the_forward_is_named_where_it_is_known() -> None:
    x = dc.zeros(3, requires_grad=True)
    before = dc.sqrt(x) * 0
    with dc.autograd.set_detect_anomaly(True):
        y = dc.sqrt(x) * 0
        with pytest.raises(RuntimeError, match=rf"SqrtBackward0[^\n]*\n *at: {__file__}"):
            y.sum().backward()
        with pytest.raises(RuntimeError, match="before the forward"):
            before.sum().backward()
    (dc.sqrt(x) * 0).sum().backward()
    assert np.isnan(x.grad.numpy()).all()


def test_it_stays_on_until_it_is_turned_off_and_compiled_calls_are_looked_at() -> None:
    run = dc.compile(lambda x: (dc.sqrt(x) * 0).sum())
    dc.autograd.set_detect_anomaly(True)
    try:
        with pytest.raises(RuntimeError, match="returned nan values in its 0th output"):
            run(dc.zeros(3, requires_grad=True)).backward()
    finally:
        dc.autograd.set_detect_anomaly(False)
    run(dc.zeros(3, requires_grad=True)).backward()


def test_it_does_not_belong_into_a_graph() -> None:
    @dc.compile(fullgraph=True)
    def function(x: Any) -> Any:
        with dc.autograd.set_detect_anomaly(True):
            return x * 2

    with pytest.raises(GraphBreak, match="anomaly mode"):
        function(dc.ones(3))
    assert not dc.is_anomaly_enabled()
