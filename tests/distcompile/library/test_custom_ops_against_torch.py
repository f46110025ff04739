"""torch.library.custom_op, the same program for both: results, gradients, versions, names, what is refused."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value.detach().numpy().round(4).tolist() if hasattr(value, "detach") else value


def vector(t: Any, requires_grad: bool = True) -> Any:
    return t.tensor([-1.3, 0.2, 2.7], dtype=t.float64, requires_grad=requires_grad)


def straight_through(t: Any) -> Any:
    """Rounding whose gradient is that of scaling where x is positive."""

    @t.library.custom_op("custom_programs::rounded", mutates_args=())
    def rounded(x: t.Tensor, scale: float = 2.0) -> t.Tensor:
        return t.round(x * scale)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.scale = inputs[1]

    def backward(ctx: Any, gradient: Any) -> Any:
        x, _ = ctx.saved_tensors
        return gradient * ctx.scale * (x > 0), None

    rounded.register_autograd(backward, setup_context=keep)
    return rounded


def gradient(t: Any) -> Any:
    op, x = straight_through(t), vector(t)
    y = op(x, scale=3)
    y.sum().backward()
    return y, x.grad, op(x.detach()), type(y.grad_fn).__name__, op(vector(t)).requires_grad


def by_name(t: Any) -> Any:
    straight_through(t)
    packet = t.ops.custom_programs.rounded
    return (
        packet(vector(t), 3.0), packet.default(vector(t), scale=3), packet.overloads(), str(packet),
        str(packet.default), repr(packet), repr(packet.default), packet.default.name(), packet.default.namespace,
        packet.default._overloadname, str(packet.default._schema), packet.default.overloadpacket is packet,
        packet.default._schema.is_mutable, copy.deepcopy(packet.default) is packet.default,
        hasattr(t.ops.custom_programs, "no_such"), hasattr(packet, "no_such"), callable(packet),
    )  # fmt: skip


def several(t: Any) -> Any:
    @t.library.custom_op("custom_programs::split", mutates_args=())
    def split(x: t.Tensor, at: int) -> tuple[t.Tensor, t.Tensor]:
        return x[:at].clone(), x[at:] * 2

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.sizes = [len(one) for one in output]

    split.register_autograd(lambda ctx, a, b: (t.cat([a * 10, b * 20]), None), setup_context=keep)
    x = vector(t)
    found = split(x, 1)
    (found[0].sum() + 3 * found[1].sum()).backward()
    only = vector(t)
    split(only, 2)[1].sum().backward()
    return type(found).__name__, found, x.grad, only.grad


def lists(t: Any) -> Any:
    @t.library.custom_op("custom_programs::weighted", mutates_args=())
    def weighted(xs: Sequence[t.Tensor], by: list[float], bias: t.Tensor | None = None) -> list[t.Tensor]:
        return [x * w if bias is None else x * w + bias for x, w in zip(xs, by)]

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.by, ctx.needs = inputs[1], ctx.needs_input_grad

    noted: list[Any] = []

    def backward(ctx: Any, gradients: Any) -> Any:
        noted.append([type(gradients).__name__, len(gradients), ctx.needs])
        return [None if g is None else g * w for g, w in zip(gradients, ctx.by)], None

    weighted.register_autograd(backward, setup_context=keep)
    x, y = vector(t), vector(t)
    found = weighted([x, y], [2.0, 3.0])
    (found[0].sum() + (found[1] * 2).sum()).backward()
    biased = weighted([x, y], [2.0, 3.0], vector(t, False))
    return type(found).__name__, found, x.grad, y.grad, noted[0][:2], biased


def keyword_alone(t: Any) -> Any:
    @t.library.custom_op("custom_programs::scaled", mutates_args=())
    def scaled(x: t.Tensor, *, by: float, mode: str = "plain") -> t.Tensor:
        return x * by if mode == "plain" else x * by + 1

    def keep(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.by = keyword_only_inputs["by"]

    scaled.register_autograd(lambda ctx, g: g * ctx.by, setup_context=keep)
    x = vector(t)
    scaled(x, by=3.0, mode="more").sum().backward()
    return x.grad, scaled(x, by=2, mode="more"), scaled(x, by=2)


def writes(t: Any) -> Any:
    """An operator that writes to its argument by way of NumPy; autograd's versions tell of it."""

    @t.library.custom_op("custom_programs::filled", mutates_args=("x",))
    def filled(x: t.Tensor, y: t.Tensor) -> None:
        x.numpy()[:] = y.numpy() * 2

    x, y = vector(t, False), t.arange(3.0, dtype=t.float64)
    before = x._version, y._version
    result = filled(x, y)
    w = vector(t)
    saved = w * x
    filled(x, y)
    try:
        saved.sum().backward()
        noticed = False
    except RuntimeError:
        noticed = True
    schema = t.ops.custom_programs.filled.default._schema
    return result, x, x._version - before[0], y._version - before[1], noticed, str(schema), schema.is_mutable


def writes_and_returns(t: Any) -> Any:
    @t.library.custom_op("custom_programs::pushed", mutates_args={"into"})
    def pushed(into: list[t.Tensor], x: t.Tensor) -> t.Tensor:
        into[0].add_(x)
        return into[0] * 2

    a, b = vector(t, False), vector(t, False)
    versions = a._version, b._version
    found = pushed([a, b], t.ones(3, dtype=t.float64))
    view = a[1:]
    pushed([view, b], t.ones(2, dtype=t.float64))
    return found, a, a._version > versions[0], b._version > versions[1]


def writes_to_what_is_differentiated(t: Any) -> Any:
    """It is no step of autograd's; versions count the kernel's writes and the operator's."""
    found: list[Any] = []
    for by_numpy in (True, False):

        def write(x: Any, y: Any, by_numpy: bool = by_numpy) -> None:
            if by_numpy:
                x.numpy()[:] = 5
            else:
                x.add_(y)

        op = t.library.custom_op(
            "custom_programs::wrote", write, mutates_args=("x",), schema="(Tensor(a!) x, Tensor y) -> ()"
        )
        for is_leaf in (True, False):
            x = vector(t)
            z = x if is_leaf else x * 2
            found += [op(z, vector(t)), z, z._version, z.is_leaf, type(z.grad_fn).__name__]
            z.sum().backward()
            found.append(x.grad)
    return found


def kernels(t: Any) -> Any:
    @t.library.custom_op("custom_programs::where", mutates_args=(), device_types="cpu")
    def where(x: t.Tensor) -> t.Tensor:
        return x + 1

    where.register_fake(lambda x: t.empty_like(x, dtype=t.float32))
    with where.set_kernel_enabled("cpu", False):
        where.register_kernel("cpu")(lambda x: x + 2)
    told = where(t.empty(2, 3, device="meta"))
    return where(vector(t)), told.device.type, tuple(told.shape), str(told.dtype)[-7:], repr(where)


def cast(t: Any) -> Any:
    @t.library.custom_op("custom_programs::product", mutates_args=())
    def product(x: t.Tensor, y: t.Tensor) -> t.Tensor:
        return x @ y

    product.register_autocast("cpu", t.bfloat16)
    x = t.ones(2, 2)
    with t.autocast("cpu"):
        inside = product(x, x).dtype
        double = product(x.double(), x.double()).dtype
    return str(inside)[-8:], str(product(x, x).dtype)[-7:], str(double)[-7:]


def replaced(t: Any) -> Any:
    for by in (2, 3):

        @t.library.custom_op("custom_programs::again", mutates_args=())
        def again(x: t.Tensor, by: int = by) -> t.Tensor:
            return x * by

    return again(vector(t, False)), t.ops.custom_programs.again(vector(t, False))


def from_schema(t: Any) -> Any:
    op = t.library.custom_op(
        "custom_programs::written", lambda x, n=2: x * n, mutates_args=(), schema="(Tensor x, int n=2) -> Tensor"
    )
    return op(vector(t)), op(vector(t), n=t.tensor(5)), op(vector(t, False)).requires_grad


def no_gradient_needed(t: Any) -> Any:
    """Without a rule a result still requires a gradient, and only the backward is refused; inside of no_grad, not."""
    op = t.library.custom_op("custom_programs::bare", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    with t.no_grad():
        inside = op(vector(t)).requires_grad
    return op(vector(t)).requires_grad, inside


PROGRAMS = [
    gradient, by_name, several, lists, keyword_alone, writes, writes_to_what_is_differentiated,
    writes_and_returns, kernels, cast, replaced, from_schema,
    no_gradient_needed,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gives_what_torch_gives(program: Callable[[Any], Any]) -> None:
    assert plain(program(dc)) == plain(program(torch))


def made(t: Any, schema: str, kernel: Callable[..., Any], changed: Any = ()) -> Any:
    return t.library.custom_op("custom_programs::misused", kernel, mutates_args=changed, schema=schema)


def backward_without_rule(t: Any) -> None:
    made(t, "(Tensor x) -> Tensor", lambda x: x * 2)(vector(t)).sum().backward()


def too_few_gradients(t: Any) -> None:
    op = made(t, "(Tensor x, Tensor y) -> Tensor", lambda x, y: x * y)
    op.register_autograd(lambda ctx, g: g)
    op(vector(t), vector(t)).sum().backward()


def decorated(t: Any, name: str, fn: Any, changed: Any = ()) -> Any:
    return t.library.custom_op(name, fn, mutates_args=changed)


def untyped(x, y):  # type: ignore[no-untyped-def]
    return x


WRONG: dict[str, tuple[type[Exception], Callable[[Any], Any]]] = {
    "a backward without a rule": (RuntimeError, backward_without_rule),
    "too few gradients": (RuntimeError, too_few_gradients),
    "a result that is an argument": (
        RuntimeError,
        lambda t: made(t, "(Tensor x) -> Tensor", lambda x: x)(vector(t, False)),
    ),
    "a result that is a view of an argument": (
        RuntimeError,
        lambda t: made(t, "(Tensor x) -> Tensor", lambda x: x[1:])(vector(t, False)),
    ),
    "two results that are one": (
        RuntimeError,
        lambda t: made(t, "(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2,) * 2)(vector(t, False)),
    ),
    "a result that is no Tensor": (RuntimeError, lambda t: made(t, "(Tensor x) -> Tensor", lambda x: 3)(vector(t))),
    "a missing argument": (RuntimeError, lambda t: made(t, "(Tensor x, int n) -> Tensor", lambda x, n: x)(vector(t))),
    "an unknown keyword": (RuntimeError, lambda t: made(t, "(Tensor x) -> Tensor", lambda x: x)(vector(t), nope=2)),
    "an argument of another type": (RuntimeError, lambda t: made(t, "(Tensor x) -> Tensor", lambda x: x)("text")),
    "a float for an int": (
        RuntimeError,
        lambda t: made(t, "(Tensor x, int n) -> Tensor", lambda x, n: x * n)(vector(t), 2.5),
    ),
    "too many arguments": (RuntimeError, lambda t: made(t, "(Tensor x) -> Tensor", lambda x: x)(vector(t), 1)),
    "a gradient for one that writes": (
        RuntimeError,
        lambda t: made(t, "(Tensor(a!) x) -> ()", lambda x: None, ("x",)).register_autograd(lambda ctx, g: g),
    ),
    "a schema that says other writes": (
        ValueError, lambda t: made(t, "(Tensor x) -> Tensor", lambda x: x, ("x",))),
    "a device without a kernel": (
        NotImplementedError,
        lambda t: t.library.custom_op(
            "custom_programs::far", lambda x: x, mutates_args=(), device_types="cuda", schema="(Tensor x) -> Tensor"
        )(vector(t, False)),
    ),
    "a parameter without a type": (ValueError, lambda t: decorated(t, "custom_programs::a", untyped)),
    "a name without a namespace": (ValueError, lambda t: t.library.custom_op("a", mutates_args=())(untyped)),
    "writes that are one text": (ValueError, lambda t: decorated(t, "custom_programs::a", untyped, "x")),
    "a device that autocast does not know": (
        RuntimeError,
        lambda t: made(t, "(Tensor x) -> Tensor", lambda x: x).register_autocast("tpu", t.float16),
    ),
    "a rule for an operator that is not there": (
        AttributeError, lambda t: t.library.register_autograd("custom_programs::nobody", lambda ctx, g: g)),
    "an operator that is not there": (AttributeError, lambda t: t.ops.custom_programs.nobody),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_torchs_error(what: str) -> None:
    error, call = WRONG[what]
    for t in (torch, dc):
        with pytest.raises(error):
            call(t)


def test_a_mode_and_a_class_are_asked_in_place_of_an_operator() -> None:
    def asked(t: Any) -> Any:
        seen: list[Any] = []

        class Mode(t.overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        class Own(t.Tensor):  # type: ignore[misc,name-defined]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(("Own", str(func)))
                return super().__torch_function__(func, types, args, kwargs or {})

        op = straight_through(t)
        x = vector(t, False)
        with Mode():
            t.ops.custom_programs.rounded.default(x)
        found = op(x.as_subclass(Own))
        return [one for one in seen if "custom_programs" in str(one)], type(found).__name__

    assert asked(dc) == asked(torch)


def test_numpy_results_are_the_kernels() -> None:
    """A kernel written with NumPy, whose gradient is another kernel."""

    def program(t: Any) -> Any:
        @t.library.custom_op("custom_programs::sine", mutates_args=())
        def sine(x: t.Tensor) -> t.Tensor:
            return t.from_numpy(np.sin(x.numpy()))

        @t.library.custom_op("custom_programs::sine_backward", mutates_args=())
        def sine_backward(x: t.Tensor, g: t.Tensor) -> t.Tensor:
            return t.from_numpy(np.cos(x.numpy()) * g.numpy())

        sine.register_autograd(
            lambda ctx, g: sine_backward(ctx.saved_tensors[0], g),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
        )
        x = vector(t)
        y = sine(x)
        y.sum().backward()
        return y, x.grad, t.autograd.gradcheck(sine, (vector(t),))

    assert plain(program(dc)) == plain(program(torch))
