"""torch.library's Library, define, impl and register_*: the same programs for both libraries."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
SPACE = "registered_programs"


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value.detach().tolist() if hasattr(value, "detach") else value


def there(t: Any, name: str) -> bool:
    return hasattr(getattr(t.ops, SPACE), name)


def overloads(t: Any) -> Any:
    """Several overloads; a packet takes the first that fits."""
    library = t.library.Library(SPACE, "FRAGMENT")
    library.define("many.Tensor(Tensor x, Tensor y) -> Tensor")
    library.define("many.Scalar(Tensor x, float y) -> Tensor")
    library.impl("many.Tensor", lambda x, y: x + y, "CPU")
    library.impl("many.Scalar", lambda x, y: x * y, "CompositeExplicitAutograd")
    many = getattr(t.ops, SPACE).many
    x = t.ones(2)
    return many(x, x), many(x, 5), many.Scalar(x, 3.0), many.overloads(), many.Tensor.name()


def lifetime(t: Any) -> Any:
    library = t.library.Library(SPACE, "DEF")
    library.define("brief(Tensor x) -> Tensor")
    library.impl("brief", lambda x: x + 1, "CPU")
    before = there(t, "brief")
    with pytest.raises(RuntimeError):
        t.library.Library(SPACE, "DEF")
    library._destroy()
    del library
    gc.collect()
    with t.library._scoped_library(SPACE, "DEF") as scoped:
        scoped.define("within(Tensor x) -> Tensor")
        return before, scoped.ns, scoped.kind, repr(scoped)


def differentiated(t: Any) -> Any:
    """A composite is differentiated through; an Autograd kernel stands for the rule; register_autograd is one."""
    library = t.library.Library(SPACE, "FRAGMENT")
    for name in ("whole", "own", "ruled"):
        library.define(f"{name}(Tensor x) -> Tensor")
    ops = getattr(t.ops, SPACE)

    class Own(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with t._C._AutoDispatchBelowAutograd():
                return ops.own(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 100

    library.impl("whole", lambda x: x * x, "CompositeImplicitAutograd")
    library.impl("own", lambda x: x * 7, "CPU")
    library.impl("own", Own.apply, "Autograd")
    library.impl("ruled", lambda x: x * 3, "CompositeExplicitAutograd")
    t.library.register_autograd(f"{SPACE}::ruled", lambda ctx, g: g * 10, lib=library)
    found = []
    for name in ("whole", "own", "ruled"):
        x = t.full((2,), 3.0, requires_grad=True)
        y = getattr(ops, name)(x)
        y.sum().backward()
        found.append([y, x.grad])
    return found


def functions(t: Any) -> Any:
    """The functions that take a name, as decorators and without."""
    t.library.define(f"{SPACE}::free", "(Tensor x, int n=2) -> Tensor")

    @t.library.impl(f"{SPACE}::free", "cpu")
    def free(x: Any, n: int = 2) -> Any:
        return x * n

    @t.library.register_fake(f"{SPACE}::free")
    def fake(x: Any, n: int = 2) -> Any:
        return t.empty_like(x)

    ops = getattr(t.ops, SPACE)
    told = ops.free(t.empty(3, device="meta"))
    library = t.library.Library(SPACE, "FRAGMENT")
    t.library.define(library, "second(Tensor x) -> Tensor")(lambda x: x - 1)

    library.define("third(Tensor x) -> Tensor")

    @t.library.impl(library, "third", "Meta")
    def third(x: Any) -> Any:
        return t.empty(5, device="meta")

    op = t.library.custom_op(
        f"{SPACE}::device", lambda x: x * 1, mutates_args=(), device_types="cuda", schema="(Tensor x) -> Tensor"
    )
    t.library.register_kernel(op, "cpu")(lambda x: x * 9)
    t.library.register_kernel(f"{SPACE}::device", "cuda", lambda x: x * 8)
    return (ops.free(t.ones(2), n=4), told.device.type, tuple(told.shape), ops.second(t.ones(1)),
            tuple(ops.third(t.empty(1, device="meta")).shape), op(t.ones(1)))  # fmt: skip


def batched(t: Any) -> Any:
    op = t.library.custom_op(f"{SPACE}::doubled", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))

    @t.library.custom_op(f"{SPACE}::by_numpy", mutates_args=())
    def by_numpy(x: t.Tensor) -> t.Tensor:
        return t.tensor(x.numpy() ** 2)

    by_numpy.register_vmap(lambda info, in_dims, x: (by_numpy(x) * info.batch_size, in_dims[0]))
    assert t.vmap(by_numpy)(t.arange(6.0).reshape(2, 3)).tolist() == [[0, 2, 8], [18, 32, 50]]
    return t.vmap(op)(t.arange(6.0).reshape(2, 3)), t.vmap(op, in_dims=1, out_dims=1)(t.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("program", [overloads, lifetime, differentiated, functions, batched])
def test_a_program_gives_what_torch_gives(program: Callable[[Any], Any]) -> None:
    assert plain(program(dc)) == plain(program(torch))


def test_what_a_library_registered_goes_with_it() -> None:
    for t in (torch, dc):
        library = t.library.Library(SPACE, "FRAGMENT")
        library.define("gone(Tensor x) -> Tensor")
        assert there(t, "gone")
        library._destroy()
    assert not there(dc, "gone")
    again = dc.library.Library(SPACE, "FRAGMENT")
    again.define("gone(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="Could not run"):
        getattr(dc.ops, SPACE).gone(dc.ones(1))


def library(t: Any, kind: str = "FRAGMENT") -> Any:
    return t.library.Library(SPACE, kind)


def twice(t: Any, call: Callable[[Any], Any]) -> None:
    made = library(t)
    made.define("twice(Tensor x) -> Tensor")
    for _ in range(2):
        call(made)


WRONG: dict[str, tuple[type[Exception], Callable[[Any], Any]]] = {
    "a kind that there is not": (ValueError, lambda t: t.library.Library("a", "NOPE")),
    "a reserved namespace": (ValueError, lambda t: t.library.Library("prim", "DEF")),
    "no function": (TypeError, lambda t: library(t).impl("x", 3, "CPU")),
    "a second definition": (RuntimeError, lambda t: twice(t, lambda one: one.define("twice(Tensor x) -> Tensor"))),
    "a second kernel": (
        RuntimeError,
        lambda t: twice(t, lambda one: one.impl("twice", len, "CPU", allow_override=False)),
    ),
    "a name without a namespace": (ValueError, lambda t: t.library.define("bare", "(Tensor x) -> Tensor")),
    "a name that is no text": (ValueError, lambda t: t.library.define(3, "(Tensor x) -> Tensor")),
    "a kernel for no operator": (ValueError, lambda t: t.library.register_kernel(3, "cpu", len)),
    "a fallthrough that is called": (NotImplementedError, lambda t: t.library.fallthrough_kernel()),
    "an operator's shared object": (OSError, lambda t: t.ops.load_library("/nowhere/nothing.so")),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_torchs_error(what: str) -> None:
    error, call = WRONG[what]
    for t in (torch, dc):
        with pytest.raises(error):
            call(t)


def operator(
    t: Any, name: str, kernel: Callable[..., Any], fake: Any = None, schema: str = "(Tensor x) -> Tensor"
) -> Any:
    made = t.library.custom_op(f"{SPACE}::{name}", kernel, mutates_args=(), schema=schema)
    if fake is not None:
        made.register_fake(fake)
    return made


CHECKED: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "right": (True, lambda t: operator(t, "right", lambda x: x * 2, t.empty_like)),
    "another shape": (False, lambda t: operator(t, "shape", lambda x: x * 2, lambda x: x.new_empty(7))),
    "another dtype": (False, lambda t: operator(t, "dtype", lambda x: x * 2, lambda x: t.empty_like(x, dtype=t.int32))),
    "no fake": (False, lambda t: operator(t, "none", lambda x: x * 2)),
    "writes": (False, lambda t: operator(t, "writes", lambda x: x.add_(1).clone(), t.empty_like)),
}


@pytest.mark.parametrize("what", CHECKED)
def test_opcheck_finds_what_torch_finds(what: str) -> None:
    right, make = CHECKED[what]
    for t in (torch, dc):
        op, args = make(t), (t.ones(2, 3),)
        names = ("test_schema", "test_faketensor")
        found = t.library.opcheck(op, args, test_utils=names, raise_exception=False)
        assert set(found) == set(names)
        assert all(one == "SUCCESS" for one in found.values()) == right
        if not right:
            with pytest.raises(Exception, match=r"opcheck|failed"):
                t.library.opcheck(op, args, test_utils=names)


def test_opcheck_runs_compiled_code_and_gradients() -> None:
    op = operator(dc, "all", lambda x: x * 2, dc.empty_like)
    op.register_autograd(lambda ctx, g: g * 2)
    assert set(dc.library.opcheck(op, (dc.ones(2, requires_grad=True),)).values()) == {"SUCCESS"}
    with pytest.raises(ValueError, match="test_utils"):
        dc.library.opcheck(op, (dc.ones(2),), test_utils="nope")
