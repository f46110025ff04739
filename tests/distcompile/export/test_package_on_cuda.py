"""Packages for a GPU: what they hold, who may load them, and their results by a driver that is not there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_programs import PROGRAMS, Counting
from test_export import One, _copied, assert_same
from test_package import _environment, _rewritten, program_in_cpp

import distcompile as torch
from compiler_core.codegen.triton.load import import_triton
from compiler_core.config import config
from compiler_core.errors import DeviceError, ShapeError
from compiler_core.runtime.cuda import context, cudnn
from distcompile import nn
from distcompile.cli import main
from distcompile.errors import ArgumentError, PackageError
from distcompile.export import Dim, export
from distcompile.package import aot_compile, load_package
from distcompile.utils import _pytree
from tests.fake_cuda import FakeCuda
from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture
from tests.fake_cuda.dnn import add_cudnn
from tests.fake_cupy import on_fake_device
from tests.sharing import every

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning")]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the fake compiles, and chooses, must not be found by others."""
    for name in ("_plans", "_eager_plans", "_choices"):
        monkeypatch.setattr(cudnn, name, {})
    with config.patch(use_cache=False):
        yield


def packaged(folder: Path, module: nn.Module, *args: Any, dynamic_shapes: Any = None, **options: Any) -> Path:
    path = folder / "model.dcpkg"
    aot_compile(export(module, args, dynamic_shapes=dynamic_shapes), path, **options)
    return path


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).cuda()


def block() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).cuda()


@pytest.mark.parametrize("make", [cnn, block])
def test_a_package_is_the_module(
    make: Any, fake_cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    net = make()
    x = torch.randn(2, 3, 6, 6, device="cuda") if make is cnn else torch.randn(2, 5, 8, device="cuda")
    path = packaged(tmp_path, net, x)
    monkeypatch.setattr("compiler_core.codegen.cuda_backend.CudaBackend.artefact", None)  # nothing is compiled now
    package = load_package(path)
    fake_cuda.calls.clear()
    for _ in range(2):  # batch norm writes its buffers
        found, given = package(x), np.asarray(x.cpu())
        assert found.device == x.device
        assert_same(found.cpu().detach(), net(x).cpu().detach())
    assert fake_cuda.named("cuLaunchKernel") or fake_cuda.named("cuLaunchKernelEx")
    if make is block:
        by_numpy = package(given)
        assert type(by_numpy) is np.ndarray
        assert_same(torch.from_numpy(by_numpy), found.cpu())
        by_cupy = package(context.cupy().asarray(given))
        assert type(by_cupy) is context.cupy().ndarray


def test_sizes_and_buffers(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    ones = torch.ones(3, 2, device="cuda")
    dims = ({0: Dim("n")},)
    path = packaged(tmp_path, Counting().cuda(), ones, dynamic_shapes=dims, sizes=[{"n": 3}, {"n": 5}])
    package = load_package(path)
    assert len({one.told["code"] for one in package.instances}) == 1
    streams = [context.cupy().cuda.Stream(non_blocking=True) for _ in range(2)]
    for k, (n, stream) in enumerate(zip((3, 3, 5), [*streams, streams[0]])):
        with stream:
            assert_same(package(torch.ones(n, 2, device="cuda"))[0].cpu(), torch.ones(n, 2) * (k + 2))
    with pytest.raises(ShapeError, match="no code for these sizes"):
        package(torch.ones(4, 2, device="cuda"))


def test_draws_are_those_of_the_program(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    program = export(nn.Dropout(0.5).cuda(), (torch.ones(64, device="cuda"),))
    package = load_package(aot_compile(program, tmp_path / "m.dcpkg"))
    x = torch.ones(64, device="cuda")
    torch.manual_seed(3)
    expected = [program.module()(x).cpu() for _ in range(2)]
    torch.manual_seed(3)
    assert_same([package(x).cpu() for _ in range(2)], expected)
    assert not torch.equal(*expected)


def test_what_python_computes_is_called_back(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    x = torch.randn(4, 4, device="cuda")
    net = One(lambda x: torch.linalg.eigvalsh(x @ x.t()) + 1)
    assert_same(load_package(packaged(tmp_path, net, x))(x).cpu(), net(x).cpu())


def test_an_argument_that_is_written(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    package = load_package(packaged(tmp_path, One(lambda x: x.add_(1).sum()), torch.ones(3, device="cuda")))
    for x in (torch.ones(3, device="cuda"), np.ones(3, np.float32), context.cupy().ones(3, np.float32)):
        assert float(package(x)) == 6
        assert float(x.sum()) == 6


def test_the_command_runs_it(fake_cuda: FakeCuda, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packaged(tmp_path, One(lambda x: x * 2), torch.ones(3, device="cuda"))
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, np.arange(3, dtype=np.float32))
    assert main(["run", str(path), "--input", str(x), "--output", str(y)]) == 0
    np.testing.assert_array_equal(np.load(y), [0, 2, 4])
    assert main(["run", str(path)]) == 0
    assert "x: float32[3]" in capsys.readouterr().out


def test_calls_of_something_else_are_errors(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    package = load_package(packaged(tmp_path, One(lambda x: x * 2), torch.ones(3, device="cuda")))
    with pytest.raises(DeviceError, match="x is not on the device of the package"):
        package(torch.ones(3))
    with pytest.raises(ArgumentError, match="x is an array"):
        package("x")
    fake_cuda.fails["cuLaunchKernel"] = fake_cuda.fails["cuLaunchKernelEx"] = 719
    with pytest.raises(DeviceError, match="CUDA_ERROR_719"):
        package(torch.ones(3, device="cuda"))


def test_kernels_of_complex_numbers_are_refused(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(PackageError, match="complex numbers"):
        packaged(tmp_path, One(lambda x: (torch.complex(x, x) * 2).real), x)


def _of_another_gpu(manifest: dict[str, Any]) -> None:
    manifest["gpu"]["capability"] = 75


def test_a_package_for_another_gpu_is_refused(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    path = packaged(tmp_path, One(lambda x: x * 2), torch.ones(3, device="cuda"))
    _rewritten(path, _of_another_gpu)
    with pytest.raises(PackageError, match=r"another compute capability\n?.*sm_75"):
        load_package(path)


def test_another_cudnn_is_refused(fake_cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_cudnn(fake_cuda)
    net = nn.Conv2d(32, 32, 3).cuda().to(torch.bfloat16)
    x = torch.randn(1, 32, 6, 6, device="cuda").to(torch.bfloat16)
    path = packaged(tmp_path, net, x)
    assert torch.allclose(load_package(path)(x).float().cpu(), net(x).float().cpu(), atol=0.05)
    monkeypatch.setattr(cudnn, "identity", lambda: "cuDNN 1 on nothing")
    with pytest.raises(PackageError, match="engines of another one"):
        load_package(path)


LOAD = """
import sys
from distcompile.package import load_package, on_cuda
heavy = ("triton", "compiler_core.codegen.triton", "distcompile.nn")
assert not [name for name in sys.modules if name.startswith(heavy)]
try:
    load_package(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


def test_cubins_lie_in_the_file_and_a_machine_without_a_gpu_is_told(tmp_path: Path) -> None:
    """By Triton's own compiler, which needs no GPU."""
    import_triton()
    with on_fake_device():
        path = packaged(tmp_path, One(lambda x: (x * 2).relu()), torch.ones(3, device="cuda"))
    with path.open("rb") as file:
        assert b"\x7fELF\x02\x01\x01" in file.read()
    tensors = torch.serialization.load_file(path)
    (cubin,) = [tensor for name, tensor in tensors.items() if name.startswith("cubin:")]
    assert bytes(cubin.numpy()[:4]) == b"\x7fELF"
    environment = _environment(CUDA_VISIBLE_DEVICES="", XDG_CACHE_HOME=str(tmp_path))
    command = [sys.executable, "-c", LOAD, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    assert done.stdout.startswith("PackageError"), done.stdout + done.stderr
    assert "for a GPU, and there is none here" in done.stdout
    result = subprocess.run([program_in_cpp(tmp_path), path], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, "for a GPU" in result.stderr) == (1, True), result.stderr


def _moved(tree: Any) -> Any:
    return _pytree.tree_map(lambda leaf: leaf.cuda() if isinstance(leaf, torch.Tensor) else leaf, tree)


def _on_host(tree: Any) -> Any:
    return _pytree.tree_map(lambda leaf: leaf.cpu().detach() if isinstance(leaf, torch.Tensor) else leaf, tree)


OF_THE_CPU = {  # they make tensors there; the last one has complex numbers
    "a_tensor_that_is_no_buffer", "positions", "a_mask_of_heads", "solved", "keys_and_values_in_a_buffer",
    "rotary_positions", "a_loop_over_time", "many_dtypes",
}  # fmt: skip


@pytest.mark.parametrize("name", every([name for name in PROGRAMS if name not in OF_THE_CPU], 4))
def test_programs_are_themselves_on_a_gpu(name: str, fake_cuda: FakeCuda, tmp_path: Path) -> None:
    torch.manual_seed(0)
    it = PROGRAMS[name]()
    module, args, kwargs = it.module.cuda(), _moved(it.args), _moved(it.kwargs or {})
    program = export(module, args, kwargs, dynamic_shapes=it.dynamic_shapes)
    package = load_package(aot_compile(program, tmp_path / "m.dcpkg"))
    for _ in range(2):  # buffers are written
        given, own = _copied((args, kwargs)), _copied((args, kwargs))
        expected = module(*given[0], **given[1])
        assert_same(_on_host(package(*own[0], **own[1])), _on_host(_copied(expected)))
        assert_same(_on_host(own), _on_host(given))
