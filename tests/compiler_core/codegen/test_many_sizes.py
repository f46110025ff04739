"""Code for many sizes: sources that differ in numbers alone share one library, and compute what eager code does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as torch
from compiler_core.backend import for_many_sizes
from compiler_core.codegen import native_backend
from compiler_core.codegen.cpp.many_sizes import MARK, ManySizes
from compiler_core.config import config
from compiler_core.errors import LoweringError
from compiler_core.runtime import build
from distcompile import Tensor, nn
from distcompile.nn import functional as F
from tests.sharing import some


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts of the libraries that are built from here on, in a cache that is empty."""
    texts: list[str] = []
    real = build.build_library

    def noted(units: dict[str, str], *args: Any, **kwargs: Any) -> None:
        texts.append("\n".join(units.values()))
        real(units, *args, **kwargs)

    monkeypatch.setattr(build, "build_library", noted)
    monkeypatch.setattr(native_backend, "_sizes_seen", None)
    with config.patch(cache_dir=tmp_path):
        yield texts


def compiled_at_sizes(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with for_many_sizes():
        return torch.compile(function, dynamic=False)(x)


def filled(seen: ManySizes, text: str) -> tuple[str, tuple[int, ...]]:
    made = seen.fill({"main": text})
    return words(made.units["main"]), made.numbers


def words(text: str) -> str:
    """The text without the mark, its gaps as single spaces."""
    return " ".join(text.replace(MARK, "").split())


FUNCTION = f"void k(const int64_t* dc_n) {{\n  {MARK}\n  f(%s, %s, 7);\n}}\n"


def test_numbers_that_differ_are_read_from_a_table() -> None:
    seen = ManySizes()
    assert filled(seen, FUNCTION % ("3", "4")) == (words(FUNCTION % ("3", "4")), ())
    text, numbers = filled(seen, FUNCTION % ("5", "4"))
    assert numbers == (5,)
    assert "f(n0_, 4, 7)" in text
    assert "const int64_t n0_ = dc_n[0];" in text
    assert filled(seen, FUNCTION % ("8", "4")) == (text, (8,))
    assert filled(seen, FUNCTION % ("3", "4")) == (text, (3,))


def test_equal_numbers_share_a_slot_until_they_differ() -> None:
    seen = ManySizes()
    filled(seen, FUNCTION % ("3", "3"))
    shared, numbers = filled(seen, FUNCTION % ("5", "5"))
    assert (numbers, "f(n0_, n0_, 7)" in shared) == ((5,), True)
    apart, numbers = filled(seen, FUNCTION % ("5", "6"))
    assert (numbers, "f(n0_, n1_, 7)" in apart) == ((5, 6), True)
    assert filled(seen, FUNCTION % ("9", "9")) == (apart, (9, 9))


def test_large_numbers_are_holes_with_the_first_others() -> None:
    seen = ManySizes()
    filled(seen, FUNCTION % ("3", "8192"))
    text, numbers = filled(seen, FUNCTION % ("5", "8192"))
    assert numbers == (5, 8192)
    assert filled(seen, FUNCTION % ("6", "9999")) == (text, (6, 9999))


def test_reals_keep_their_bits() -> None:
    seen = ManySizes()
    filled(seen, FUNCTION % ("0.1f", "1e-300"))
    text, (first, second) = filled(seen, FUNCTION % ("0.3f", "2.5"))
    assert np.int64(first).view(np.float64) == np.float64("0.3")
    assert np.int64(second).view(np.float64) == 2.5
    assert "const float n0_ = (float)dc_real(dc_n[0]);" in text
    assert "const double n1_ = (double)dc_real(dc_n[1]);" in text


@pytest.mark.parametrize(("first", "second"), [("3u", "4u"), ("3", "4.0"), ("1", "99999999999999999999")])
def test_numbers_that_cannot_be_variables_keep_sources_apart(first: str, second: str) -> None:
    seen = ManySizes()
    filled(seen, FUNCTION % (first, "0"))
    assert filled(seen, FUNCTION % (second, "0")) == (words(FUNCTION % (second, "0")), ())


def test_a_hole_takes_numbers_of_its_kind_alone() -> None:
    seen = ManySizes()
    filled(seen, FUNCTION % ("3", "0"))
    filled(seen, FUNCTION % ("5", "0"))
    for number in ("4u", "4.0", "99999999999999999999"):
        assert filled(seen, FUNCTION % (number, "0")) == (words(FUNCTION % (number, "0")), ())


@pytest.mark.parametrize("word", ["static const", "constexpr", "static thread_local", "enum"])
def test_what_outlives_a_call_is_never_filled(word: str) -> None:
    seen = ManySizes()
    sources = [(FUNCTION % ("1", "2")).replace("f(", f"{word} int64_t x[][2] = {{{{{n}, 2}}}};\n  f(") for n in (3, 5)]
    filled(seen, sources[0])
    assert filled(seen, sources[1]) == (words(sources[1]), ())


def test_other_text_is_another_code() -> None:
    seen = ManySizes()
    filled(seen, FUNCTION % ("3", "4"))
    other = (FUNCTION % ("5", "4")).replace("f(", "g(")
    assert filled(seen, other) == (words(other), ())


def test_comments_are_no_part_of_the_code() -> None:
    seen = ManySizes()
    filled(seen, FUNCTION % ("3", "4"))
    text, numbers = filled(seen, (FUNCTION % ("5", "4")).replace("f(", "// of 12 /* 3 */\n  f( /* 8 */ "))
    assert numbers == (5,)
    assert "12" not in text


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x * 0.5, -1)


def mean_of_squares(x: Tensor) -> Tensor:
    return (x * x).mean(0)


def transposed(x: Tensor) -> Tensor:
    return (x.t() + 1).contiguous() * 2


def best(x: Tensor) -> Tensor:
    return x.argmax(1) + x.sum().to(torch.int64)


def product(x: Tensor) -> Tensor:
    return torch.relu(x @ x.t()) @ x


def half(x: Tensor) -> Tensor:
    return F.layer_norm(x.to(torch.bfloat16), (x.shape[1],)).float()


@pytest.mark.parametrize("function", [softmax, mean_of_squares, transposed, best, product, half])
@pytest.mark.parametrize(
    "shapes", [[(64, 96), (80, 96), (112, 96), (160, 96), (64, 96)], [(6, 35), (300, 700), (7, 1)]]
)
def test_every_size_computes_what_eager_does(
    builds: list[str], function: Callable[[Tensor], Tensor], shapes: list[tuple[int, int]]
) -> None:
    torch.manual_seed(0)
    for shape in shapes:
        x = torch.randn(*shape)
        got, expected = compiled_at_sizes(function, x), function(x)
        torch.testing.assert_close(got, expected, rtol=2e-2 if function is half else 1e-5, atol=1e-3)


def test_the_third_size_compiles_nothing(builds: list[str]) -> None:
    counts = []
    for rows in (64, 80, 112, 160, 240, 64):
        compiled_at_sizes(softmax, torch.randn(rows, 96))
        counts.append(len(builds))
    assert counts == [1, 2, 2, 2, 2, 2]


def test_another_process_finds_it_without_lowering(builds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(112, 96)
    for rows in (64, 80):
        compiled_at_sizes(softmax, torch.randn(rows, 96))
    expected = compiled_at_sizes(softmax, x)
    monkeypatch.setattr(native_backend, "_sizes_seen", None)  # as in a new process
    monkeypatch.setattr(native_backend, "generate", None)
    torch.testing.assert_close(compiled_at_sizes(softmax, x), expected, rtol=0, atol=0)


def test_training_at_many_sizes_has_eagers_gradients(builds: list[str]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 5))
    for rows in (8, 16, 24, 40, 16):
        x, y = torch.randn(rows, 12), torch.randint(0, 5, (rows,))
        with for_many_sizes():
            F.cross_entropy(torch.compile(model, dynamic=False)(x), y).backward()
        got = [p.grad for p in model.parameters()]
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for p, gradient in zip(model.parameters(), got):
            torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-6)
        model.zero_grad()


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2, padding=1)


def attended(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def ordered(x: Tensor) -> Tensor:
    return x.sort(-1)[0] * x.median(-1)[0].unsqueeze(-1)


@pytest.mark.parametrize(
    ("function", "shapes"),
    some(
        [
            (ordered, [(4, 30), (4, 31), (3, 70), (4, 30)]),
            (pooled, [(2, 3, 8, 8), (2, 3, 10, 8), (3, 3, 9, 14), (2, 3, 8, 8)]),
            (attended, [(2, 2, 5, 8), (2, 2, 7, 8), (2, 3, 9, 16), (2, 2, 6, 24)]),
        ],
        1,
    ),
)
def test_constants_that_templates_take_stay_constants(
    builds: list[str], function: Callable[[Tensor], Tensor], shapes: list[tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    for shape in shapes:
        x = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        (got,) = torch.autograd.grad(compiled_at_sizes(function, x).sum(), x)
        (expected,) = torch.autograd.grad(function(x).sum(), x)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", some([nn.GRU, nn.LSTM, nn.RNN], 1))
def test_recurrent_layers_of_one_library_keep_their_own_steps(builds: list[str], kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    calls = []
    for width in (7, 9):
        layer = kind(5, width, batch_first=True).double()
        for shape in ((3, 5), (4, 7), (6, 9), (2, 3)):
            x, run = torch.randn(*shape, 5, dtype=torch.float64), torch.compile(layer, dynamic=False)
            with for_many_sizes():
                run(x)
            calls.append((run, layer, x))
    for run, layer, x in [*calls, *reversed(calls)]:
        torch.testing.assert_close(run(x)[0], layer(x)[0], rtol=1e-9, atol=1e-12)


def test_code_that_takes_no_variables_is_compiled_for_each_size(
    builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = build.build_library

    def with_constants(units: dict[str, str], *args: Any, **kwargs: Any) -> None:
        if "dc_n[0]" in units["main"]:
            units = {"main": units["main"] + "\ntemplate <int N> struct X {}; void f(int n) { X<n> x; }\n"}
        refused(units, *args, **kwargs)

    monkeypatch.setattr(build, "build_library", with_constants)
    compiled_at_sizes(softmax, torch.randn(64, 96))
    x = torch.randn(80, 96)
    with pytest.warns(UserWarning, match="compiled for each size"):
        got = compiled_at_sizes(softmax, x)
    torch.testing.assert_close(got, softmax(x), rtol=1e-5, atol=1e-6)


def test_sizes_are_looked_at_before_the_first_is_compiled(builds: list[str]) -> None:
    """Of sizes that go together, that a mark ends, and that are multiples of four: one library each."""
    torch.manual_seed(0)

    def joined(a: Tensor, b: Tensor) -> Tensor:
        return (torch.cat([a, b], 1) @ b.mean(1, keepdim=True).expand(-1, 3, -1).transpose(1, 2)).sum((0, 1))

    def fours(a: Tensor, b: Tensor) -> Tensor:
        return a.view(-1, 4, 6).sum(0).softmax(1) * b.mean()

    for function, rows in ((joined, (9, 16, 13)), (fours, (8, 12, 40))):
        compiled = torch.compile(function, fullgraph=True)
        before = 0
        for n in rows:
            shape = (n, 4, 6) if function is joined else (n, 6)
            a, b = torch.randn(*shape, dtype=torch.float64), torch.randn(*shape, dtype=torch.float64)
            for x in (a, b):
                if function is fours:
                    torch._dynamo.maybe_mark_dynamic(x, 0)
                else:
                    torch._dynamo.mark_dynamic(x, 0, min=2, max=40)
            torch.testing.assert_close(compiled(a, b), function(a, b), rtol=1e-9, atol=1e-9)
            before = before or len(builds)
        assert len(builds) == before


def test_what_fails_at_other_sizes_does_not_fail_a_compilation(
    builds: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls = native_backend.generate, list[int]()

    def refused() -> None:
        raise LoweringError("not at these sizes")

    def generate(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return made(*args, **kwargs) if len(calls) == 1 else refused()

    monkeypatch.setattr(native_backend, "generate", generate)
    x = torch.randn(9, 96)
    with config.patch(logs=frozenset({"recompiles"})):
        got = torch.compile(softmax, dynamic=True)(x)
    torch.testing.assert_close(got, softmax(x), rtol=1e-5, atol=1e-6)
    assert len(calls) == 3
    assert "is not looked at for other sizes: not at these sizes" in capfd.readouterr().err


@pytest.mark.long
def test_an_lstm_over_lengths_is_captured_once(builds: list[str]) -> None:
    torch.manual_seed(0)
    model = nn.LSTM(6, 5, num_layers=2)
    compiled = torch.compile(model, dynamic=True)
    for steps, batch in ((4, 3), (7, 3), (5, 2), (9, 4), (13, 5), (6, 3)):
        x = torch.randn(steps, batch, 6)
        torch.testing.assert_close(compiled(x)[0], model(x)[0], rtol=1e-5, atol=1e-5)
    assert len(compiled.explain().entries) == 1


@pytest.mark.long
def test_profiles_build_their_twin_of_the_same_code(builds: list[str]) -> None:
    compiled = [torch.compile(softmax, dynamic=False) for _ in range(3)]
    inputs = [torch.randn(rows, 96) for rows in (64, 80, 112)]
    with for_many_sizes():
        expected = [run(x) for run, x in zip(compiled, inputs)]
    from compiler_core.runtime.profiler import profiling

    with profiling() as profile:
        for run, x, y in zip(compiled, inputs, expected):
            torch.testing.assert_close(run(x), y, rtol=0, atol=0)
    assert len(profile.rows) >= 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions, self.norm = nn.Embedding(20, 16), nn.Embedding(64, 16), nn.LayerNorm(16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 20)

    def forward(self, words: Tensor) -> Tensor:
        n, t = words.shape
        x = self.tokens(words) + self.positions(torch.arange(t))
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, 16)
        return self.head(x + self.out(y))


def test_a_model_over_lengths_is_captured_once_and_its_code_compiled_once(builds: list[str]) -> None:
    torch.manual_seed(0)
    model = Block()
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    for t in (41, 50, 47, 61, 44, 63):
        words = torch.randint(0, 20, (4, t))
        F.cross_entropy(compiled(words).flatten(0, 1), words.flatten()).backward()
        got = [p.grad for p in model.parameters()]
        model.zero_grad()
        F.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
        for p, gradient in zip(model.parameters(), got):
            torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-5)
        model.zero_grad()
    assert len(compiled.explain().entries) == 1
    assert len([text for text in builds if "run0_" in text]) == 1
