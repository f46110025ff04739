"""Triton for many sizes: with its numbers in place a function is the one given, and it computes what eager does."""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable

import pytest

import distcompile as torch
from compiler_core.backend import for_many_sizes
from compiler_core.codegen import triton_backend
from compiler_core.codegen.triton.load import load
from compiler_core.codegen.triton.many_sizes import Seen, opened
from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.codegen.triton.tiles import Shape
from distcompile import Tensor
from distcompile.nn import functional as F

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:backend 'triton'", "ignore:TRITON_DEFAULT")]

SHAPE = Shape(1, 1, False, False, 1, False, False, False)
KERNEL = """\
@triton.jit
def k_0(p0, p1):
    i0 = tl.program_id(0) * 64 + tl.arange(0, 64)
    i0_mask = i0 < {0}
    v0 = tl.load(p0 + {1} * i0, mask=i0_mask, other=0)
    for i1 in range(0, {0}, 8):
        tl.store(p1 + (i0 // {2} + i1).to(tl.int64), v0 * tl.full((), {3}, tl.float32), mask=i0_mask)  # of {0}
"""


def module_of(text: str, **changed: object) -> TritonModule:
    launch = Launch("k_0", 1, (), False, {"p0": "*fp32", "p1": "*fp32"}, shape=SHAPE)
    return TritonModule(f"import triton\n\n\n{text}\n\n# the end\n", {"k": (launch,)}, ())


def kernel(*numbers: object) -> TritonModule:
    return module_of(KERNEL.format(*numbers))


class _Closing(ast.NodeTransformer):
    """Puts a launch's numbers in the place of its function's parameters."""

    def __init__(self, launch: Launch) -> None:
        names = list(launch.signature)[len(launch.signature) - len(launch.numbers) :]
        self.numbers = dict(zip(names, launch.numbers, strict=True))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        text = ast.unparse(node)
        for name, number in self.numbers.items():
            if text == f"{name}.to(tl.float32, bitcast=True)":
                return ast.Constant(struct.unpack("<f", struct.pack("<i", number))[0])
            if text == f"{name}.to(tl.int64).to(tl.float64, bitcast=True)":
                return ast.Constant(struct.unpack("<d", struct.pack("<q", number))[0])
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.numbers[node.id]) if node.id in self.numbers else node


def body(source: str, launch: Launch) -> list[str]:
    """The statements of a launch's function, its numbers in place."""
    tree = ast.parse(source)
    (node,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == launch.function)
    return [ast.unparse(_Closing(launch).visit(stmt)) for stmt in node.body]


def launches(module: TritonModule) -> list[Launch]:
    return [launch for made in module.launches.values() for launch in made]


def assert_same(made: TritonModule, given: TritonModule) -> None:
    for new, old in zip(launches(made), launches(given), strict=True):
        assert body(made.source, new) == body(given.source, old)


def test_numbers_that_differ_become_parameters() -> None:
    seen, sizes = Seen(), [(100, 3, 5, 0.5), (96, 7, 5, 0.25), (640, 9, 5, 0.125)]
    modules = [opened(kernel(*numbers), seen) for numbers in sizes]
    assert launches(modules[0])[0].numbers == ()
    bits = [struct.unpack("<i", struct.pack("<f", x))[0] for *_, x in sizes]
    assert [launches(m)[0].numbers for m in modules[1:]] == [(96, 7, bits[1]), (640, 9, bits[2])]
    assert launches(modules[1])[0].signature == {"p0": "*fp32", "p1": "*fp32", "n0_": "i32", "n1_": "i32", "n2_": "i32"}
    assert modules[1].source == modules[2].source
    assert "range(0, n0_, 8)" in modules[1].source
    assert "i0 // 5" in modules[1].source
    assert modules[1].source.endswith("\n\n# the end\n")
    for made, numbers in zip(modules, sizes):
        assert_same(made, kernel(*numbers))


def test_a_number_has_the_type_that_triton_gives_the_literal() -> None:
    seen = Seen()
    opened(kernel(100, 3, 5, 1.0), seen)
    types = [
        launches(opened(kernel(rows, 3, 5, 1.0), seen))[0].signature["n0_"] for rows in (2**31 - 1, 2**31, 2**40 + 1)
    ]
    assert types == ["i32", "i64", "i64"]


@pytest.mark.parametrize("text", [KERNEL.replace("64)", "{4})"), KERNEL.replace("8)", "{4})")])
def test_lanes_and_steps_stay_constants(text: str) -> None:
    seen = Seen()
    for lanes, rows in ((64, 100), (128, 200), (128, 300), (256, 400)):
        given = module_of(text.format(rows, 3, 5, 1.0, lanes))
        made = opened(given, seen)
        assert str(lanes) in made.source
        assert launches(made)[0].numbers == ((300,) if rows == 300 else ())
        assert_same(made, given)


def test_reals_of_other_dtypes_keep_their_functions_apart() -> None:
    seen = Seen()
    half = KERNEL.replace("tl.float32", "tl.float16")
    for factor in (0.5, 0.25, 0.125):
        made = opened(module_of(half.format(100, 3, 5, factor)), seen)
        assert launches(made)[0].numbers == ()


def test_doubles_keep_their_bits() -> None:
    seen, wide = Seen(), KERNEL.replace("tl.float32", "tl.float64")
    for factor in (0.1, 1e-300, 2.5):
        given = module_of(wide.format(100, 3, 5, factor))
        assert_same(opened(given, seen), given)


def test_the_first_code_has_the_holes_that_other_sizes_open() -> None:
    seen, asked = Seen(), []

    def others() -> list[TritonModule]:
        asked.append("others")
        return [kernel(96, 7, 5, 0.5), module_of("def another(): pass\n\n\n" + KERNEL.format(128, 3, 5, 0.5))]

    given = kernel(100, 3, 5, 0.5)
    made = opened(given, seen, others)
    assert launches(made)[0].numbers == (100, 3)
    assert_same(made, given)
    assert opened(kernel(64, 9, 5, 0.5), seen, others).source == made.source
    assert asked == ["others"]  # of a skeleton that is new


def test_what_is_taken_for_a_multiple_of_16_was_one_at_all_sizes_or_all_sizes_are() -> None:
    seen = Seen()
    given = [kernel(rows, 3, 5, 0.5) for rows in (96, 128, 160, 100, 192, 192)]
    rounds = [False, False, False, False, False, True]
    made = [opened(one, seen, are_round=are_round) for one, are_round in zip(given, rounds, strict=True)]
    assert [launches(one)[0].multiples for one in made[1:]] == [{0}, {0}, set(), set(), {0}]
    small = opened(kernel(48, 3, 5, 0.5), seen)
    assert launches(small)[0].multiples == set()


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x * 0.5, -1)


def means(x: Tensor) -> Tensor:
    return x.mean(0) + (x * x).mean()


def transposed(x: Tensor) -> Tensor:
    return (x.t() + 1).contiguous() * 2


def best(x: Tensor) -> Tensor:
    return x.argmax(1) + x.sum().to(torch.int64)


def narrow(x: Tensor) -> Tensor:
    return F.layer_norm(x.to(torch.bfloat16), (x.shape[1],)).float()


def shifted(x: Tensor) -> Tensor:
    return F.pad(x, (1, 2)).cumsum(0)[:, ::2]


def counted(x: Tensor) -> Tensor:
    words = (x * 3).to(torch.int64).clamp(0, 4)
    return F.embedding(words, torch.arange(15, device=x.device).reshape(5, 3).to(x.dtype)).sum(1)


FUNCTIONS: list[Callable[[Tensor], Tensor]] = [softmax, means, transposed, best, narrow, shifted, counted]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TritonModule, TritonModule]]:
    """What is opened from here on, by a process that has seen nothing: as given, and as made."""
    made: list[tuple[TritonModule, TritonModule]] = []

    def noted(module: TritonModule, seen: Seen) -> TritonModule:
        made.append((module, opened(module, seen)))
        return made[-1][1]

    monkeypatch.setattr(triton_backend, "SEEN", Seen())
    monkeypatch.setattr(triton_backend, "opened", noted)
    return made


@pytest.mark.parametrize(
    ("function", "dtype"), [*((function, torch.float32) for function in FUNCTIONS), (means, torch.float64)]
)
def test_every_size_computes_what_eager_does(
    modules: list[tuple[TritonModule, TritonModule]], function: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    for shape in ((6, 35), (7, 41), (7, 58), (6, 64)):
        x = torch.randn(*shape, dtype=dtype)
        with for_many_sizes():
            got = torch.compile(function, backend="triton", dynamic=False)(x)
        loose = function is narrow
        torch.testing.assert_close(got, function(x), rtol=2e-2 if loose else 1e-5, atol=2e-2 if loose else 1e-5)
    for given, made in modules:
        assert_same(made, given)
    assert any(launch.numbers for _, made in modules for launch in launches(made))
    types_are_those_of_triton(modules[-1][1])


def types_are_those_of_triton(module: TritonModule) -> None:
    """Its front end takes the functions with these signatures."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    functions = load(module, interpret=False)
    for launch in launches(module):
        source = ASTSource(functions[launch.function], signature=dict(launch.signature), constexprs={}, attrs={})
        options, context = backend.parse_options({"num_warps": launch.warps}), ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        source.make_ir(target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
