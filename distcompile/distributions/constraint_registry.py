"""biject_to and transform_to: a transform from all real numbers onto where a constraint holds.

In: a constraint. Out: a Transform whose codomain it is. `biject_to` gives one to one transforms alone; `register` adds
a rule for a class of constraints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distcompile.distributions import constraints as c
from distcompile.distributions import transforms as t

Rule = Callable[[Any], t.Transform]


class ConstraintRegistry:
    """Rules by class, and for the constraints that are instances of one class by name."""

    def __init__(self, rules: dict[type, Rule]) -> None:
        self.rules = rules

    def register(self, constraint: Any, factory: Rule | None = None) -> Any:
        """Use `factory(constraint)` for constraints of this class; without it, a decorator."""
        if factory is None:
            return lambda function: self.register(constraint, function)
        self.rules[constraint if isinstance(constraint, type) else type(constraint)] = factory
        return factory

    def __call__(self, constraint: c.Constraint) -> t.Transform:
        for kind in type(constraint).__mro__:
            if kind in self.rules:
                return self.rules[kind](constraint)
        raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")


def _bounded(constraint: Any) -> t.Transform:
    low, high = constraint.low, constraint.high
    if constraint.is_discrete:
        raise NotImplementedError("Cannot transform discrete constraints")
    if low is None and high is None:
        return t.identity_transform
    if high is None:
        return _shifted(t.ExpTransform(), low, 1)
    if low is None:
        return _shifted(t.ExpTransform(), high, -1)
    return _shifted(t.SigmoidTransform(), low, high - low)


def _shifted(base: t.Transform, loc: Any, scale: Any) -> t.Transform:
    plain = not hasattr(loc, "shape") and not hasattr(scale, "shape") and loc == 0 and scale == 1
    return base if plain else t.ComposeTransform([base, t.AffineTransform(loc, scale)])


def _joined(registry: ConstraintRegistry) -> Rule:
    return lambda cc: t._Several([registry(part) for part, _ in cc.parts], cc.dim, [n for _, n in cc.parts])


def _independent(registry: ConstraintRegistry) -> Rule:
    return lambda cc: t.IndependentTransform(registry(cc.base_constraint), cc.reinterpreted_batch_ndims)


_COMMON: dict[type, Rule] = {
    c._Bounded: _bounded,
    c._LowerCholesky: lambda _: t.LowerCholeskyTransform(),
    c._CorrCholesky: lambda _: t.CorrCholeskyTransform(),
    c._PositiveDefinite: lambda _: t.PositiveDefiniteTransform(),
    c._PositiveSemidefinite: lambda _: t.PositiveDefiniteTransform(),
}
biject_to = ConstraintRegistry({**_COMMON, c._Simplex: lambda _: t.StickBreakingTransform()})
transform_to = ConstraintRegistry({**_COMMON, c._Simplex: lambda _: t.SoftmaxTransform()})
for _registry in (biject_to, transform_to):
    _registry.rules[c.independent] = _independent(_registry)
    _registry.rules[c._Joined] = _joined(_registry)
