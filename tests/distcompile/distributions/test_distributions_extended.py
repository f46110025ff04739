"""Distributions as libraries extend them: constraints by their classes, own subclasses, expand, lazy properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile.distributions import utils as own_utils

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
SIDES = [(dc, dc.distributions, own_utils), (torch, torch.distributions, torch.distributions.utils)]
CONSTRAINTS: dict[str, Any] = {
    "greater_than": lambda c: c.greater_than(0.5), "greater_than_eq": lambda c: c.greater_than_eq(0.5),
    "less_than": lambda c: c.less_than(0.5), "interval": lambda c: c.interval(-1.0, 1.0),
    "half_open_interval": lambda c: c.half_open_interval(-1.0, 1.0), "positive": lambda c: c.positive,
    "integer_interval": lambda c: c.integer_interval(0, 2), "nonnegative_integer": lambda c: c.nonnegative_integer,
    "real": lambda c: c.real, "real_vector": lambda c: c.real_vector, "simplex": lambda c: c.simplex,
    "independent": lambda c: c.independent(c.positive, 1), "multinomial": lambda c: c.multinomial(3),
    "mixture": lambda c: c.MixtureSameFamilyConstraint(c.positive), "boolean": lambda c: c.boolean,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONSTRAINTS))
def test_a_constraint_is_torchs(name: str) -> None:
    told = []
    for lib, distributions, _ in SIDES:
        constraint = CONSTRAINTS[name](distributions.constraints)
        values = lib.tensor([[-1.0, 0.5, 1.0], [0.2, 0.3, 0.5], [0.0, 2.0, 1.0]])
        told.append([type(constraint).__name__, constraint.event_dim, constraint.is_discrete,
                     constraint.check(values).tolist(), repr(constraint)])  # fmt: skip
    assert told[0] == told[1]


def test_dependent_constraints_say_what_was_said_of_them() -> None:
    for _, distributions, _ in SIDES:
        c = distributions.constraints
        known = c.dependent(is_discrete=True)
        assert known.is_discrete
        with pytest.raises(NotImplementedError, match=r"\.event_dim cannot be determined statically"):
            known.event_dim  # noqa: B018
        assert known(event_dim=2).event_dim == 2

        class Made:
            @c.dependent_property(is_discrete=False, event_dim=1)
            def support(self) -> Any:
                return c.simplex  # noqa: B023

        assert Made().support is c.simplex
        assert c.is_dependent(Made.support)
        assert Made.support.event_dim == 1


def test_a_rule_for_one_constraint_leaves_the_others() -> None:
    for _, distributions, _ in SIDES:
        c, registry = distributions.constraints, distributions.transform_to
        before = type(registry(c.interval(0.0, 1.0)))

        @registry.register(type(c.greater_than_eq(0.0)))
        def rule(constraint: Any) -> Any:
            return distributions.ExpTransform()  # noqa: B023

        assert type(registry(c.interval(0.0, 1.0))) is before
        assert type(registry(c.nonnegative)).__name__ == "ExpTransform"


def test_a_subclass_expands_what_it_adds() -> None:
    for lib, distributions, _ in SIDES:

        class Shifted(distributions.Normal):  # type: ignore[name-defined, misc]
            def __init__(self, loc: Any, scale: Any, by: Any, validate_args: Any = None) -> None:
                self.by = by
                super().__init__(loc, scale, validate_args=validate_args)

            def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
                new = self._get_checked_instance(Shifted, _instance)
                new.by = self.by.expand(batch_shape)
                return super().expand(batch_shape, _instance=new)

        class Plain(distributions.Normal):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__(lib.zeros(()), 1.0)  # noqa: B023

            def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
                return self._get_checked_instance(distributions.Normal, _instance)  # noqa: B023

        made = Shifted(lib.zeros(()), lib.ones(()), lib.ones(())).expand((3, 2))
        assert type(made) is Shifted
        assert tuple(made.by.shape) == tuple(made.loc.shape) == tuple(made.batch_shape) == tuple(made._batch_shape)
        with pytest.raises(NotImplementedError, match="Subclass Plain of Normal that defines a custom __init__"):
            Plain().expand((2,))


def test_forms_of_parameters_are_torchs() -> None:
    told: list[Any] = []
    for lib, _, utils in SIDES:
        p = lib.tensor([[0.0, 0.3, 1.0], [0.2, 0.3, 0.5]], dtype=lib.float64)
        square = lib.arange(9.0).view(3, 3)
        vectors = [utils.tril_matrix_to_vec(square, d) for d in (-1, 0, 1)]
        rows = [
            utils.clamp_probs(p), utils.probs_to_logits(p), utils.probs_to_logits(p, is_binary=True),
            utils.logits_to_probs(p), utils.logits_to_probs(p, is_binary=True), *utils.broadcast_all(p, 2, 3.0),
            utils._sum_rightmost(p, 1), utils._sum_rightmost(p, 0), *vectors,
            *(utils.vec_to_tril_matrix(vector, d) for vector, d in zip(vectors, (-1, 0, 1))),
        ]  # fmt: skip
        told.append([row.numpy() for row in rows])
        for wrong in (lambda: utils.tril_matrix_to_vec(square, 3), lambda: utils.vec_to_tril_matrix(lib.ones(5)),  # noqa: B023
                      lambda: utils.broadcast_all("x")):  # fmt: skip  # noqa: B023
            with pytest.raises(ValueError, match=r"diag|cannot be expressed|Input arguments"):
                wrong()
        assert tuple(utils._standard_normal((2, 3), lib.float32, "cpu").shape) == (2, 3)
    for ours, theirs in zip(*told):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_lazy_properties_are_computed_once_with_gradients() -> None:
    for lib, _, utils in SIDES:

        class Made:
            calls = 0

            @utils.lazy_property
            def root(self) -> Any:
                self.calls += 1
                return lib.ones(1, requires_grad=True) * 2  # noqa: B023

        made = Made()
        with lib.no_grad():
            first = made.root
        assert made.root is first
        assert made.calls == 1
        assert first.requires_grad
        assert isinstance(Made.root, property)


def test_a_rule_of_divergence_takes_any_class() -> None:
    for _, distributions, _ in SIDES:

        class Own:
            pass

        distributions.register_kl(Own, Own)(lambda p, q: 7)
        assert distributions.kl.kl_divergence(Own(), Own()) == 7
        with pytest.raises(TypeError):
            distributions.register_kl(1, Own)
