"""A step as part of a graph that is captured: the rules of all parameters, inlined where the step stands.

In: an optimizer whose update is a rule, gradients in `.grad`. Out: writes to parameters and state. The machine of
capture enters this file, so what is read here is guarded or an input: rates, counts and what state holds are inputs;
which parameters have a gradient, and which terms a formula has, choose the graph. State is made before the graph; by it
where a first step has numbers of its own (SGD with dampening).
The numbers of a step are computed as always, on the host in float64: a step has the bits that it has by itself.
After a graph break it goes on as it is, on real tensors.
"""

from __future__ import annotations

from typing import Any

from compiler_core.capture.held_numbers import (
    before_the_graph,
    changing_item,
    float_held,
    hold_number,
    hold_number_unless,
    keep_state,
    keep_tensors,
    scalar_of,
)
from distcompile.optim.update_rules.traced import (
    fits_graph,
    is_sparse,
    make_state,
    may_travel,
    update_traced,
    zeros_traced,
)

CHANGING = ("lr", "weight_decay", "momentum")  # options that schedules change


def is_for_graph(optimizer: Any) -> bool:
    """Whether the step may be inlined."""
    for group in optimizer.param_groups:
        keep_tensors(group["params"])
        for parameter in group["params"]:
            if not fits_graph(parameter, parameter.grad):
                return False
    return True


def has_sparse_gradients(optimizer: Any) -> bool:
    """Whether it is for one that the step may not be inlined."""
    return any(is_sparse(parameter.grad) for group in optimizer.param_groups for parameter in group["params"])


def is_behind_travels(optimizer: Any) -> bool:
    """Whether gradients may be on their way: each update is put off until its own is there (`deferred.py`)."""
    for group in optimizer.param_groups:
        keep_tensors(group["params"])
        for parameter in group["params"]:
            if parameter.grad is not None and may_travel(parameter):
                return True
    return False


def makes_state(optimizer: Any) -> bool:
    """Whether the graph of a step makes state of a parameter, as a first step makes it."""
    for group in optimizer.param_groups:
        if not optimizer.is_made_ahead(group):
            for parameter in group["params"]:
                if parameter.grad is not None and lacks_state(optimizer, group, parameter):
                    return True
    return False


def lacks_state(optimizer: Any, group: Any, parameter: Any) -> bool:
    """Whether a parameter has not made its first step."""
    for name in optimizer.rule_of(optimizer.rule(group), parameter).state:
        if parameter not in optimizer.state or optimizer.state[parameter].get(name) is None:
            return True
    return False


def step_in_graph(optimizer: Any, found: Any = None) -> None:
    """Update every parameter that has a gradient. found: bool[], where that holds everything stays as it is."""
    before_the_graph(make_state, optimizer, optimizer.state)
    keep_state(optimizer.state)
    for group in optimizer.param_groups:
        for option in CHANGING:
            if option in group:
                changing_item(group, option)
        if "betas" in group:
            for place in (0, 1):
                changing_item(group["betas"], place)
        rule = optimizer.rule(group)
        sets: list[Any] = []
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is not None:
                _update_one(optimizer, group, rule, parameter, gradient, sets, found)
        for count, _, _, _, _, counters in sets:
            if counters:
                _hold(counters, count, found)


def _hold(tensors: Any, number: Any, found: Any) -> None:
    if found is None:
        hold_number(tensors, number)
    else:
        hold_number_unless(tensors, number, found)


def _update_one(
    optimizer: Any, group: Any, rule: Any, parameter: Any, gradient: Any, sets: list[Any], found: Any
) -> None:
    """sets: see `_set_of`."""
    rule = optimizer.rule_of(rule, parameter)
    names = rule.state
    keeps = optimizer.counts_steps or optimizer.scalar_state or names  # else no entry, as in torch
    state = optimizer.state[parameter] if keeps else {}
    count = optimizer.step_number(state)
    for name in names:
        if state.get(name) is None:
            state[name] = zeros_traced(parameter)
    kept = [float_held(state[name]) for name in optimizer.scalar_state]
    dtype = optimizer.number_dtype or parameter.dtype.compute.real
    _, _, _, scalars, new, counters = _set_of(optimizer, group, rule, count, kept, dtype, sets)
    update_traced(rule, parameter, gradient, [state[name] for name in names], scalars, found)
    for name, number in zip(optimizer.scalar_state, new):
        _hold([state[name]], number, found)
    if optimizer.counts_steps:
        counters.append(state["step"])


def _set_of(optimizer: Any, group: Any, rule: Any, count: Any, kept: Any, dtype: Any, sets: list[Any]) -> Any:
    """(count, numbers of the state, dtype, the scalars of these, what these numbers become, tensors that count)."""
    for known in sets:
        if known[0] == count and known[2] is dtype and _all_equal(known[1], kept):
            return known
    numbers, new = optimizer.numbers(rule, group, count, tuple(kept))
    scalars = {}
    for name, number in numbers.items():
        scalars[name] = scalar_of(number, dtype)
    made: tuple[Any, ...] = (count, kept, dtype, scalars, new, [])
    sets.append(made)
    return made


def _all_equal(first: list[Any], second: list[Any]) -> bool:
    return all(a == b for a, b in zip(first, second))
