# ruff: noqa: UP006, UP007, UP035, UP045 - annotations as programs write them
"""Schemas: what annotations say, what is printed, and what is refused, as torch has it."""

from collections.abc import Callable, Sequence
from typing import Any, List, Optional, Tuple, Union

import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def functions(t: Any) -> list[tuple[Callable[..., Any], Any]]:
    """Functions, and what they change."""
    T = t.Tensor

    def plain(x: T, n: int, p: float, flag: bool, mode: str) -> T: ...
    def optional(x: Optional[T], n: Optional[int] = None, p: float | None = 0.5, s: Optional[str] = "a") -> T: ...
    def lists(xs: list[T], ys: Sequence[T], n: List[int], p: Sequence[float], maybe: List[Optional[T]]) -> list[T]: ...
    def maybe(
        n: Optional[List[int]] = None, p: Sequence[float] | None = None, flags: Optional[list[bool]] = None
    ) -> None: ...
    def others(x: T, dtype: t.dtype, device: t.device, dt: Optional[t.dtype] = None) -> tuple[T, T]: ...
    def number(x: T, k: Union[int, float, bool], m: t.types.Number = 2) -> Tuple[T, int, float, bool]: ...
    def keyword(x: T, *, n: int = 3, p: float = 1e-3, dtype: t.dtype = t.float32) -> T: ...
    def changed(x: T, y: T, zs: list[T], m: Optional[T] = None) -> None: ...
    def text(x: "int", y: "Optional[int]" = None) -> "None": ...

    return [
        (plain, ()), (optional, ()), (lists, ()), (maybe, ()), (others, ()), (number, ()), (keyword, ()), (text, ()),
        (changed, ("y",)), (changed, {"zs", "m"}), (changed, "unknown"), (changed, []),
    ]  # fmt: skip


@pytest.mark.parametrize("place", range(12))
def test_annotations_are_written_as_torch_writes_them(place: int) -> None:
    mine, theirs = (t.library.infer_schema(functions(t)[place][0], mutates_args=functions(t)[place][1])
                    for t in (dc, torch))  # fmt: skip
    assert mine == theirs


def refused(t: Any) -> list[tuple[Callable[..., Any], Any]]:
    T = t.Tensor

    def untyped(x) -> T: ...  # type: ignore[no-untyped-def]
    def without_result(x: T): ...  # type: ignore[no-untyped-def]
    def tuples(x: tuple[int, int]) -> T: ...
    def dictionary(x: dict[str, T]) -> T: ...
    def many(*xs: T) -> T: ...
    def named(**xs: T) -> T: ...
    def positional(x: T, /) -> T: ...
    def default(x: T, n: list[int] = [1]) -> T: ...  # noqa: B006
    def result(x: T) -> str: ...
    def optional_result(x: T) -> Optional[T]: ...
    def texts(x: list[str]) -> T: ...
    def no_name(x: "NoSuchName") -> T: ...  # type: ignore[name-defined]  # noqa: F821
    def changes_int(x: T, n: int) -> T: ...

    every = [untyped, without_result, tuples, dictionary, many, named, positional, default, result, optional_result,
             texts, no_name]  # fmt: skip
    return [*((one, ()) for one in every), (changes_int, ("n",)), (changes_int, ("nope",)), (changes_int, "x")]


@pytest.mark.parametrize("place", range(15))
def test_what_is_no_schema_is_torchs_error(place: int) -> None:
    for t in (torch, dc):
        function, changed = refused(t)[place]
        with pytest.raises(ValueError):  # noqa: PT011 - the words are each library's own
            t.library.infer_schema(function, mutates_args=changed)


SCHEMAS = """
a(Tensor x) -> Tensor
b.over(Tensor x, int n=1, *, float p=0.5, bool flag=False) -> (Tensor, Tensor)
c(Tensor(a!) x, Tensor? y=None) -> ()
d(Tensor[] xs, int[2] size=1, str mode="mean") -> Tensor[]
e(Tensor(a) x) -> Tensor(a)
f(Tensor(a!)[] xs, Scalar k=1, float p=2.) -> (Tensor first, int second)
g(SymInt[] n=[0, 1], ScalarType? dtype=None, Device? device=None) -> Tensor
h(Tensor?[] xs, float[]? scale=None) -> float
""".strip().splitlines()


@pytest.mark.parametrize("text", SCHEMAS)
def test_a_schema_prints_as_torchs(text: str) -> None:
    found = []
    for t in (torch, dc):
        library = t.library.Library("schema_programs", "FRAGMENT")
        name = library.define(text)
        packet, _, overload = text.partition("(")[0].partition(".")
        schema = getattr(getattr(t.ops.schema_programs, packet), overload or "default")._schema
        found.append((name, str(schema), schema.name, schema.overload_name, schema.is_mutable,
                      [(one.name, one.kwarg_only, one.has_default_value()) for one in schema.arguments],
                      [one.default_value for one in schema.arguments if one.has_default_value()],
                      [one.name for one in schema.returns if one.name]))  # fmt: skip
        library._destroy()
    assert found[0] == found[1]


@pytest.mark.parametrize("text", ["a(Tensor x)", "Tensor x -> Tensor", "a(Tensor x -> Tensor", "", "a(!) -> Tensor"])
def test_what_is_not_written_as_a_schema_is_an_error(text: str) -> None:
    for t in (torch, dc):
        with pytest.raises(RuntimeError):
            t.library.Library("schema_programs", "FRAGMENT").define(text)


def bound(t: Any, text: str, *args: Any, **kwargs: Any) -> Any:
    """What a kernel is given for these arguments."""
    given: list[Any] = []
    library = t.library.Library("schema_programs", "FRAGMENT")
    library.define(f"bound{text} -> ()")
    library.impl("bound", lambda *args, **kwargs: given.append([args, kwargs]), "CompositeExplicitAutograd")
    t.ops.schema_programs.bound(*args, **kwargs)
    library._destroy()
    found = [*given[0][0], *given[0][1].values()]
    return [[type(one).__name__, one if isinstance(one, int | float | str) else None] for one in found]


def test_arguments_are_given_as_torch_gives_them() -> None:
    def program(t: Any) -> Any:
        x = t.ones(2)
        return [
            bound(t, "(Tensor x, float p)", x, 2), bound(t, "(Tensor x, int n)", n=t.tensor(3), x=x),
            bound(t, "(Tensor x, float p)", x, t.tensor(2.5)), bound(t, "(Tensor x, *, str m)", x, m="a"),
            bound(t, "(Tensor[] xs, int[] n)", [x, x], [1, 2]), bound(t, "(Tensor x, int? n)", x, None),
        ]  # fmt: skip

    assert program(dc) == program(torch)
