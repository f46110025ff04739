"""Programs of a CUDA device at many sizes: they share cubins and the launcher, with a driver that is not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import distcompile as torch
from compiler_core.backend import for_many_sizes
from compiler_core.codegen import native_backend
from compiler_core.codegen.cuda import cubins
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.codegen.triton import many_sizes
from compiler_core.config import config
from compiler_core.errors import BackendError
from compiler_core.runtime import build
from distcompile import Tensor, nn
from distcompile.nn import functional as F
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.hosted import HostedBackend

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning")]


class Made:
    """What is compiled, in a cache that is empty: the functions, and the texts of launchers."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.launchers: list[str] = []


@pytest.fixture
def made(fake_cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    found, compile_cubins, build_library = Made(), cubins.compile_cubins, build.build_library

    def compiled(module: Any, wanted: Sequence[cubins.Wanted], *rest: Any) -> Any:
        found.functions += [one.launch.function for one in wanted]
        return compile_cubins(module, wanted, *rest)

    def built(units: dict[str, str], *rest: Any) -> None:
        found.launchers += [text for name, text in units.items() if name == "launcher"]  # eager builds libraries too
        build_library(units, *rest)

    monkeypatch.setattr(cubins, "compile_cubins", compiled)
    monkeypatch.setattr(build, "build_library", built)
    monkeypatch.setattr(many_sizes, "SEEN", many_sizes.Seen())
    monkeypatch.setattr(native_backend, "_sizes_seen", None)
    with config.patch(cache_dir=tmp_path, use_cache=True):
        yield found


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x * 0.5, -1)


def run_at(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns)
    with for_many_sizes():
        got = torch.compile(softmax, backend=HostedBackend(), dynamic=False)(x)
    torch.testing.assert_close(got, softmax(x), rtol=1e-5, atol=1e-6)


def test_the_third_size_compiles_no_kernel(made: Made) -> None:
    """The launcher of the second has arguments more, the third's has its numbers in a table."""
    counts = []
    for columns in (33, 41, 57, 63, 33):
        run_at(8, columns)
        counts.append((len(made.functions), len(made.launchers)))
    assert counts == [(1, 1), (2, 2), (2, 3), (2, 3), (2, 3)]
    assert "(const void*)n0_" in made.launchers[2]


def test_multiples_of_16_have_code_of_their_own(made: Made) -> None:
    """Vectors are loaded where rows start on 16 bytes."""
    counts = []
    for columns in (65, 73, 112, 81):
        run_at(8, columns)
        counts.append(len(made.functions))
    assert counts == [1, 2, 3, 3]


def test_code_that_triton_refuses_with_variables_is_compiled_for_each_size(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: Any) -> None:
        raise BackendError("Triton does not compile k_0", got="no variables")

    monkeypatch.setattr(cubins, "share_cubins", refused)
    with pytest.warns(UserWarning, match="compiled for each size"):
        run_at(8, 33)
    run_at(8, 41)
    assert len(made.functions) == 2


class Block(nn.Module):
    """Attention with 2 heads, of 16, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(20, 32), nn.LayerNorm(32)
        self.qkv, self.head = nn.Linear(32, 96), nn.Linear(32, 20)

    def forward(self, words: Tensor) -> Tensor:
        n, t = words.shape
        x = self.tokens(words)
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, 32)
        return self.head(x + y)


@pytest.mark.long
def test_a_model_over_lengths_has_eagers_gradients_and_shares_its_cubins(made: Made, fake_cuda: FakeCuda) -> None:
    torch.manual_seed(0)
    model, counts = Block(), []
    compiled = torch.compile(model, backend=HostedBackend(), dynamic=True, fullgraph=True)
    for n, t in ((2, 9), (2, 13), (2, 11), (3, 14)):
        words = torch.randint(0, 20, (n, t))
        F.cross_entropy(compiled(words).flatten(0, 1), words.flatten()).backward()
        got = [p.grad for p in model.parameters()]
        model.zero_grad()
        F.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
        for p, gradient in zip(model.parameters(), got):
            torch.testing.assert_close(gradient, p.grad, rtol=1e-3, atol=1e-4)
        model.zero_grad()
        counts.append(len(made.functions))
    assert len(compiled.explain().entries) == 1
    attention = [name for name in made.functions if name.startswith("attention")]
    assert any("attention" in launch["kernel"] for launch in fake_cuda.named("cuLaunchKernel"))
    assert counts[0] > 10
    assert counts[2] - counts[1] < counts[0] / 3
    assert len(attention) <= 9  # three functions: as constants, with other lengths, with other batches


def test_graphs_of_one_size_are_compiled_as_before(made: Made) -> None:
    backend = HostedBackend(CudaBackend(90))
    for columns in (33, 41):
        torch.compile(softmax, backend=backend, dynamic=False)(torch.randn(8, columns))
    assert len(made.functions) == 2
    assert all(run.entry.numbers == () for run in backend.made)
    assert not any("dc_n" in text for text in made.launchers)
