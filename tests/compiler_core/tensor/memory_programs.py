"""Programs about memory: versions, `.data`, sharing; each is run with torch and with distcompile.

In: a library, under torch's names. Out: what a program saw: numbers, lists, tensors, arrays; an error by its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """Enter `function` in the table."""
    PROGRAMS[function.__name__] = function
    return function


def raised(call: Callable[[], Any]) -> str:
    """The kind of error that a call raises, as far as programs tell them apart; "" if none."""
    try:
        call()
    except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError, BufferError) as error:
        kinds = (RuntimeError, ValueError, TypeError, AttributeError, BufferError)
        return next(kind.__name__ for kind in kinds if isinstance(error, kind))
    return ""


def seen(value: Any) -> Any:
    """What is compared: of tensors and arrays dtype, shape, strides and numbers."""
    if isinstance(value, (list, tuple)):
        return [seen(v) for v in value]
    if isinstance(value, dict):
        return {key: seen(v) for key, v in value.items()}
    if hasattr(value, "stride") and hasattr(value, "requires_grad"):
        dtype = str(value.dtype).split(".")[-1]
        return dtype, tuple(value.shape), tuple(value.stride()), value.requires_grad, value.detach().tolist()
    if hasattr(value, "strides") and hasattr(value, "dtype"):
        return str(value.dtype), value.shape, value.strides, value.tolist()
    return value


# ---- versions and .data


@program
def data_counts_for_itself(t: Any) -> Any:
    y = t.ones(3)
    d = y.data
    d.add_(1)
    yield d._version, y._version, y, d
    y.detach().mul_(2)
    yield d._version, y._version, y.data._version, d
    yield d[1:]._version, y[1:]._version


@program
def views_see_what_data_wrote(t: Any) -> Any:
    y = t.ones(3)
    v, w = y[1:], y.view(3, 1)
    y.data.zero_()
    yield v, w, v._version
    v.data.fill_(7)
    yield y, w, y._version, v.data[0]._version


@program
def a_write_through_data_goes_unnoticed(t: Any) -> Any:
    x, y = t.ones(3, requires_grad=True), t.ones(3)
    z = (x * y).sum()
    y.data.mul_(10)
    z.backward()
    yield x.grad
    w = t.ones(2, requires_grad=True)
    q = w.sqrt()
    q.data.add_(1)
    q.sum().backward()
    yield w.grad


@program
def a_write_through_detach_is_noticed(t: Any) -> Any:
    x, y = t.ones(3, requires_grad=True), t.ones(3)
    z = (x * y).sum()
    y.detach().mul_(10)
    yield raised(z.backward)
    z = (x * y).sum()
    y.data[1:].detach().mul_(10)
    yield raised(z.backward), x.grad


@program
def steps_through_data(t: Any) -> Any:
    p = t.nn.Parameter(t.ones(2))
    for _ in range(3):
        loss = (p * p).sum()
        p.data.add_(p.data, alpha=-0.25)
        loss.backward()
    yield p, p._version, p.grad


@program
def data_of_another(t: Any) -> Any:
    a, b = t.zeros(2), t.ones(2)
    a.data = b.data
    b.add_(1)
    yield a, b, a.data_ptr() == b.data_ptr()
    a.data = a.data
    a.data.mul_(3)
    yield a, b


# ---- in compiled code


@program
def data_in_a_compiled_function(t: Any) -> Any:
    def step(p: Any, g: Any) -> Any:
        p.data.add_(g)
        return p * 2

    run = compiled(t, step)
    p, g = t.nn.Parameter(t.ones(2)), t.ones(2)
    for _ in range(3):
        yield run(p, g), p, p._version


@program
def data_over_a_graph_break(t: Any) -> Any:
    def step(p: Any, g: Any) -> Any:
        d = p.data
        print("the graph breaks here")
        d.add_(g)
        return d

    run = compiled(t, step)
    p, g = t.nn.Parameter(t.ones(2)), t.ones(2)
    for _ in range(2):
        d = run(p, g)
        d.add_(1)
        yield d, p, p._version


def compiled(t: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled op by op where `t` is distcompile: torch runs it as it is."""
    return t.compile(function, backend="aot_eager") if "distcompile" in t.__name__ else function  # type: ignore[no-any-return]
