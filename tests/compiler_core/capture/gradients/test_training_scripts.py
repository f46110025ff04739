"""What whole training scripts found: programs run plainly and compiled, and how often they are compiled."""

from __future__ import annotations

from typing import Any

import pytest

import distcompile as torch


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("protect", [lambda q: q.clone().detach(), lambda q: q.detach().clone()])
def test_a_copy_taken_before_a_break_protects_from_later_writes(backend: str, protect: Any) -> None:
    """MoCo's queue: what was copied from it is kept for the backward, not what it holds by then."""

    def step(w: Any, queue: Any) -> Any:
        loss = (w @ protect(queue)).sum()
        torch._dynamo.graph_break()
        queue[:, 1] = 7.0
        loss.backward()
        w.grad, grad = None, w.grad
        return grad

    results = []
    for run in (step, torch.compile(step, backend=backend)):
        w, queue = torch.ones(2, 3, requires_grad=True), torch.arange(6.0).reshape(3, 2)
        results.append([run(w, queue).tolist() for _ in range(2)])
    assert results[0] == results[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_result_may_change_once_it_was_copied(backend: str) -> None:
    @torch.compile(backend=backend)
    def step(w: Any, x: Any) -> Any:
        y = x * 2
        return y, (y.clone() * w).sum()

    w = torch.ones(3, requires_grad=True)
    y, loss = step(w, torch.ones(3))
    y.add_(1)
    loss.backward()
    assert w.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("bad_first", [False, True])
def test_a_norm_that_must_be_finite_is_looked_at_in_the_graph(backend: str, bad_first: bool) -> None:
    @torch.compile(backend=backend, fullgraph=True)
    def step(w: Any, scale: float) -> Any:
        w.grad = torch.full((2,), scale)
        try:
            return torch.nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)
        except RuntimeError as error:
            return "non-finite" in str(error)

    w = torch.ones(2, requires_grad=True)
    if bad_first:
        assert step(w, float("nan")) is True
    assert step(w, 3.0).item() == pytest.approx(18**0.5)
    assert w.grad.tolist() == pytest.approx([0.5**0.5] * 2)
    for bad in (float("inf"), float("nan")):
        assert step(w, bad) is True
        assert not w.grad.isfinite().any()
    assert step(w, 4.0).item() == pytest.approx(32**0.5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("bad_first", [False, True])
def test_data_that_a_graph_cannot_take_is_an_exception_of_the_program(backend: str, bad_first: bool) -> None:
    """`except` and `finally` see an index out of range, and what comes before it is done; also in the first call."""
    told: list[Any] = []

    def step(w: Any, x: Any, places: Any) -> Any:
        told.append("begun")
        try:
            noise = torch.rand(2)
            loss = (torch.nn.functional.embedding(places, w) * x).sum()
            print("computed")
            told.append("counted")
            loss.backward()
        except IndexError:
            told.append("skipped")
            return noise if not bad_first else None
        finally:
            told.append("ended")
        return loss

    def run(function: Any) -> list[Any]:
        told.clear()
        torch.manual_seed(0)
        w, seen = torch.ones(3, 2, requires_grad=True), []
        for place in (7, 1, 2, 9, 1) if bad_first else (1, 2, 7, 1, 9):
            result = function(w, torch.ones(2), torch.tensor([place]))
            seen.append(None if result is None else result.tolist())
        return [seen, w.grad.tolist(), *told, torch.rand(1).item() if not bad_first else 0]

    assert run(torch.compile(step, backend=backend)) == run(step)


def test_a_loop_over_parameters_that_breaks_is_compiled_once_a_shape() -> None:
    """A norm logged for each parameter: not once for each place of the walk over the tree of modules."""
    net = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(6)])
    norms: list[tuple[str, float]] = []

    @torch.compile(backend="eager")
    def log() -> float:
        for name, p in net.named_parameters():
            norms.append((name, p.detach().norm().item()))
        return sum(p.detach().sum().item() for p in net.parameters())

    for _ in range(2):
        total = log()
    assert norms == 2 * [(name, p.norm().item()) for name, p in net.named_parameters()]
    assert total == sum(p.sum().item() for p in net.parameters())
    assert len(log.explain().entries) < 20  # 80 if the walk itself is resumed


class ItemsByName(dict[str, Any]):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__  # type: ignore[assignment]


class ItemsOrNone(dict[str, Any]):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [ItemsByName, ItemsOrNone])
def test_attributes_that_are_items_by_way_of_a_dictionarys_method(kind: Any) -> None:
    def step(state: Any, x: Any) -> Any:
        state.step += 1
        state.losses.append((x * state.step).detach())
        state.last = state.step + 0.5
        return x * state.last

    results = []
    for run in (step, torch.compile(step, backend="eager")):
        state = kind(step=0, losses=[])
        results.append([[run(state, torch.ones(2)).tolist() for _ in range(4)], repr(state)])
    assert results[0] == results[1]


def test_a_scaler_is_part_of_the_graph() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    net = torch.nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), 0.1)

    @torch.compile(backend="eager")
    def step(x: Any) -> None:
        opt.zero_grad()
        scaler.scale(net(x).sum()).backward()
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()

    before = net.bias.item()
    for x in (1.0, 1.0, float("inf"), 1.0):
        step(torch.full((3, 2), x))
    assert (scaler.get_scale(), net.bias.item()) == (8.0, pytest.approx(before - 3 * 0.3))
    assert not step.explain().breaks


@pytest.mark.parametrize("run", [lambda f: f, lambda f: torch.compile(f, backend="aot_eager")])
@pytest.mark.parametrize(
    ("targets", "weights"), [([0], None), ([0, 1], None), ([0, 1, 1, 0], None), ([0, 1, 1], [1.0] * 3)]
)
def test_targets_and_weights_that_do_not_fit_the_scores(run: Any, targets: list[int], weights: Any) -> None:
    """A batch that lost rows: the kernel read past the end of the targets."""
    weight = None if weights is None else torch.tensor(weights)
    loss = run(lambda x, y: torch.nn.functional.cross_entropy(x, y, weight=weight))
    with pytest.raises(ValueError, match=r"targets do not fit|for each class"):
        loss(torch.ones(3, 2), torch.tensor(targets))
