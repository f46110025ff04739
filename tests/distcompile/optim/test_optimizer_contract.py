"""Optimizers and schedules used right and wrong: groups, closures, hooks, state, and each named error."""

from __future__ import annotations

import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

import distcompile as dc
from compiler_core.log import DistCompileWarning
from compiler_core.names.namespaces import classes_in
from distcompile import optim
from distcompile.errors import ArgumentError, NotSupportedError, RegistrationTypeError, StateDictError
from distcompile.optim import SGD, AdamW, Optimizer, lr_scheduler
from distcompile.optim.optimizer import required


def weight(*shape: int) -> Any:
    return dc.nn.Parameter(dc.ones(*shape))


def test_a_closure_is_run_with_gradients_on_and_its_loss_returned() -> None:
    w = weight(2)
    optimizer = SGD([w], 0.1, fused=False)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with dc.no_grad():
        assert float(optimizer.step(closure)) == 2.0
    assert w.tolist() == pytest.approx([0.8, 0.8])


def test_zero_grad_resets_to_none_or_to_zeros() -> None:
    w = weight(2)
    w.grad = dc.ones(2)
    SGD([w], 0.1).zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0.0, 0.0]
    SGD([w], 0.1).zero_grad()
    assert w.grad is None


def test_step_hooks_run_around_the_outermost_step() -> None:
    calls = []

    class Twice(SGD):
        def step(self, closure: Any = None) -> Any:
            super().step()
            return super().step()

    optimizer = Twice([weight(1)], 0.1, fused=False)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("pre"))
    handle = optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("post"))
    optimizer.step()
    assert calls == ["pre", "post"]
    handle.remove()
    optimizer.step()
    assert calls == ["pre", "post", "pre"]


def test_state_dict_hooks_see_and_replace_what_is_saved_and_loaded() -> None:
    optimizer, calls = SGD([weight(1)], 0.1), []
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("before saving"))
    optimizer.register_state_dict_post_hook(lambda o, saved: {**saved, "note": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, saved: calls.append(saved.pop("note")))
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append("after loading"))
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before saving", 1, "after loading"]


def test_a_users_own_optimizer_works_with_schedules_and_state() -> None:
    class SignDescent(Optimizer):
        def __init__(self, params: Any, lr: Any = required) -> None:
            super().__init__(params, {"lr": lr})

        @dc.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad.sign(), alpha=-group["lr"])
                    self.state[p]["count"] = self.state[p].get("count", 0) + 1

    w = weight(2)
    optimizer = SignDescent([w], lr=0.5)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    w.grad = dc.tensor([3.0, -2.0])
    optimizer.step()
    schedule.step()
    assert w.tolist() == [0.5, 1.5]
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.state_dict()["state"] == {0: {"count": 1}}
    with pytest.raises(ArgumentError, match="required optimization parameter lr"):
        SignDescent([w])


def test_a_new_group_joins_with_defaults() -> None:
    optimizer = AdamW([weight(2)], lr=0.1, fused=False)
    optimizer.add_param_group({"params": weight(3), "weight_decay": 0.0})
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.1]
    assert optimizer.state_dict()["param_groups"][1]["params"] == [1]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: SGD(weight(2), 0.1), RegistrationTypeError),
        (lambda: SGD([], 0.1), ArgumentError),
        (lambda: SGD([1.0], 0.1), RegistrationTypeError),
        (lambda: SGD([weight(2) * 2], 0.1), ArgumentError),
        (lambda: SGD([{"params": {weight(2)}}], 0.1), RegistrationTypeError),
        (lambda: SGD([w := weight(2), w], 0.1), ArgumentError),
        (lambda: SGD([{"params": [w := weight(2)]}, {"params": [w]}], 0.1), ArgumentError),
        (lambda: SGD([weight(2)], -0.1), ArgumentError),
        (lambda: SGD([weight(2)], 0.1, nesterov=True), ArgumentError),
        (lambda: AdamW([weight(2)], betas=(1.0, 0.9)), ArgumentError),
        (lambda: AdamW([weight(2)], eps=-1.0), ArgumentError),
        (lambda: AdamW([weight(2)], differentiable=True), NotSupportedError),
        (lambda: SGD([weight(2)], 0.1).add_param_group([weight(2)]), RegistrationTypeError),  # type: ignore[arg-type]
        (lambda: lr_scheduler.StepLR("optimizer", 1), RegistrationTypeError),  # type: ignore[arg-type]
        (lambda: lr_scheduler.LambdaLR(SGD([weight(1)], 0.1), [abs, abs]), ArgumentError),
        (lambda: lr_scheduler.LinearLR(SGD([weight(1)], 0.1), start_factor=0.0), ArgumentError),
        (lambda: lr_scheduler.OneCycleLR(SGD([weight(1)], 0.1), 0.1), ArgumentError),
        (lambda: lr_scheduler.CosineAnnealingWarmRestarts(SGD([weight(1)], 0.1), 0), ArgumentError),
        (lambda: lr_scheduler.ReduceLROnPlateau(SGD([weight(1)], 0.1), factor=1.0), ArgumentError),
        (lambda: lr_scheduler.StepLR(SGD([weight(1)], 0.1), 1, last_epoch=3), StateDictError),
    ],
)
def test_misuse_is_a_named_error(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_a_state_dict_of_other_groups_is_refused() -> None:
    one = SGD([weight(1)], 0.1)
    two = SGD([{"params": [weight(1)]}, {"params": [weight(1)]}], 0.1)
    with pytest.raises(StateDictError, match="different number of parameter groups"):
        one.load_state_dict(two.state_dict())
    with pytest.raises(StateDictError, match="doesn't match the size"):
        one.load_state_dict(SGD([weight(1), weight(1)], 0.1).state_dict())


def test_loading_forgets_what_was_written_into_a_group_since() -> None:
    optimizer = SGD([weight(1)], 0.1)
    saved = optimizer.state_dict()
    lr_scheduler.StepLR(optimizer, 1)  # writes initial_lr
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0].keys() == saved["param_groups"][0].keys()
    optimizer.param_groups[0]["lr"] = 0.5  # as a search for the rate ends
    assert lr_scheduler.StepLR(optimizer, 1).base_lrs == [0.5]


def test_loading_an_old_state_dict_keeps_the_options_that_it_does_not_know() -> None:
    optimizer = SGD([weight(1)], 0.1, maximize=True)
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["maximize"]
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["maximize"] is True


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizer_that_remembers_nothing_has_no_state(fused: bool) -> None:
    w = weight(2)
    w.grad = dc.ones(2)
    optimizer = SGD([w], 0.5, fused=fused)
    optimizer.step()
    assert w.tolist() == [0.5, 0.5]
    assert optimizer.state_dict()["state"] == {}


def test_a_schedule_knows_that_step_asks_for_its_rates() -> None:
    asked = []

    class Own(lr_scheduler.LRScheduler):
        def get_lr(self) -> list[float]:
            asked.append(self._get_lr_called_within_step)
            return self.base_lrs

    schedule = Own(SGD([weight(1)], 0.1))
    schedule.get_lr()
    assert asked == [True, False]


def test_schedule_before_the_first_step_warns() -> None:
    schedule = lr_scheduler.ExponentialLR(SGD([weight(1)], 0.1), 0.5)
    with pytest.warns(DistCompileWarning, match=r"before optimizer.step"):
        schedule.step()


def test_schedulers_of_another_optimizer_are_not_composed() -> None:
    a, b = SGD([weight(1)], 0.1), SGD([weight(1)], 0.1)
    with pytest.raises(ArgumentError, match="another optimizer"):
        lr_scheduler.SequentialLR(a, [lr_scheduler.StepLR(a, 1), lr_scheduler.StepLR(b, 1)], [3])
    with pytest.raises(ArgumentError, match="one scheduler more"):
        lr_scheduler.SequentialLR(a, [lr_scheduler.StepLR(a, 1)], [3])
    with pytest.raises(ArgumentError, match="at least one"):
        lr_scheduler.ChainedScheduler([])
    with pytest.raises(ArgumentError, match="needs a metric"):
        lr_scheduler.ChainedScheduler([lr_scheduler.ReduceLROnPlateau(a)])


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adamax", "NAdam", "RAdam", "SparseAdam"])
@pytest.mark.parametrize("betas", [(0.9,), (0.9, 0.99, 0.999), 0.9], ids=["one", "three", "a number"])
def test_betas_are_two(name: str, betas: Any) -> None:
    with pytest.raises(ArgumentError, match=r"Invalid betas: [^~]*expected: two numbers"):
        getattr(dc.optim, name)([weight(1)], betas=betas)


def test_other_options_that_are_pairs_are_two() -> None:
    for make in (
        lambda: dc.optim.Rprop([weight(1)], etas=(0.5,)),
        lambda: dc.optim.Rprop([weight(1)], step_sizes=(1, 2, 3)),
        lambda: dc.optim.Adafactor([weight(1)], eps=(None,)),
    ):
        with pytest.raises(ArgumentError, match=r"Invalid (etas|step_sizes|eps): "):
            make()


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop"])
@pytest.mark.parametrize("option", ["lr", "eps", "weight_decay", "momentum", "lr_decay", "momentum_decay"])
def test_an_option_below_zero_is_named(name: str, option: str) -> None:
    kind = getattr(dc.optim, name)
    if option not in inspect.signature(kind).parameters:
        pytest.skip("it has no such option")
    said = {"lr": "learning rate", "eps": "epsilon value"}.get(option, f"{option} value")
    for number in (-1.0, float("nan")):
        with pytest.raises(ArgumentError, match=f"Invalid {said}: {number}"):
            kind([weight(1)], **{option: number})


def test_the_table_of_files_has_every_optimizer() -> None:
    files = [import_module(found.name) for found in iter_modules(optim.__path__, "distcompile.optim.")]
    assert len(files) > 15
    assert {*classes_in(files, Optimizer)} == {name for name in optim.__all__ if isinstance(getattr(optim, name), type)}


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"'distcompile\.optim' has no attribute 'Adan'"):
        optim.Adan  # noqa: B018
    assert {"AdamW", "lr_scheduler", "sgd"} <= {*dir(optim)}
