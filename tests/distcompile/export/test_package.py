"""Packages are the programs that they were made of, without a compiler, from Python, from C++, and by a command."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_programs import PROGRAMS, Counting, Of
from test_export import One, Two, _copied, assert_same

import distcompile as torch
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.ops.random.composite import rand
from distcompile import nn
from distcompile.cli import main
from distcompile.errors import ArgumentError, PackageError
from distcompile.export import Dim, export, load, save
from distcompile.package import aot_compile, load_package
from distcompile.package.container import CHECK, KEY

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 0.3  # from the start of a process to the first result


def packaged(folder: Path, module: nn.Module, *args: Any, dynamic_shapes: Any = None, **options: Any) -> Path:
    path = folder / "model.dcpkg"
    aot_compile(export(module, args, dynamic_shapes=dynamic_shapes), path, **options)
    return path


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).eval()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_package_is_the_module(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    it = PROGRAMS[name]()
    program = export(it.module, it.args, it.kwargs, dynamic_shapes=it.dynamic_shapes)
    save(program, tmp_path / "m.dcpt")
    aot_compile(load(tmp_path / "m.dcpt"), tmp_path / "m.dcpkg")
    package = load_package(tmp_path / "m.dcpkg")
    for _ in range(2):  # buffers are written
        given, own = _copied((it.args, it.kwargs)), _copied((it.args, it.kwargs))
        expected = it.module(*given[0], **given[1])
        assert_same(_copied(expected), package(*own[0], **own[1]))
        assert_same(given, own)


def test_several_sets_of_sizes_share_code(tmp_path: Path) -> None:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    dims = ({0: Dim("b"), 1: Dim("t")},)
    sizes = [{"b": b, "t": t} for b in (1, 2) for t in (3, 8)]
    path = packaged(tmp_path, net, torch.randn(2, 5, 8), dynamic_shapes=dims, sizes=sizes)
    package = load_package(path)
    assert len(package.instances) == 4
    assert len({id(one.library) for one in package.instances}) < 4
    for one in sizes:
        x = torch.randn(one["b"], one["t"], 8)
        assert_same(net(x), package(x))


@pytest.mark.parametrize(
    "name", ["transformer", "images_of_any_size", "losses", "a_size_returned", "recurrent", "a_part_of_a_mask"]
)
@pytest.mark.filterwarnings("ignore:.*a package is compiled now")
def test_a_package_runs_at_other_sizes(name: str, tmp_path: Path) -> None:
    it = PROGRAMS[name]()
    aot_compile(export(it.module, it.args, dynamic_shapes=it.dynamic_shapes), tmp_path / "m.dcpkg")
    package = load_package(tmp_path / "m.dcpkg")
    for args in (it.args, *it.more):
        assert_same(it.module(*args), package(*args))


def test_sizes_without_code_are_an_error_where_there_is_no_compiler(tmp_path: Path) -> None:
    dims = ({0: Dim("n", max=40)},)
    path = packaged(tmp_path, One(lambda x: x @ x.t() + x.sum()), torch.ones(8, 3), dynamic_shapes=dims)
    code = """
        import sys
        from distcompile.package import load_package
        import numpy as np
        package = load_package(sys.argv[1])
        x = np.ones((16, 3), np.float32)
        np.testing.assert_allclose(package(x), x @ x.T + x.sum())  # of the same code
        try:
            package(np.ones((41, 3), np.float32))
        except Exception as error:
            print(type(error).__name__, error)
    """
    environment = _environment(XDG_CACHE_HOME=str(tmp_path))
    command = [sys.executable, "-c", inspect.cleandoc(code), path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    assert done.stdout.startswith("ShapeError"), done.stdout + done.stderr
    assert "n is in [1, 40]" in done.stdout


def test_sizes_that_the_program_does_not_take_are_refused(tmp_path: Path) -> None:
    dims = {"x": {0: Dim("b", max=8)}}
    program = export(One(lambda x: x * 2), (torch.ones(4),), dynamic_shapes=dims)
    with pytest.raises(ArgumentError, match="a number for each size"):
        aot_compile(program, tmp_path / "m.dcpkg", sizes=[{"c": 2}])
    with pytest.raises(ArgumentError, match="too many"):
        aot_compile(export(One(lambda x: x * 2), (torch.ones(4),), dynamic_shapes={"x": {0: Dim("b")}}),
                    tmp_path / "m.dcpkg", sizes="all")  # fmt: skip
    with pytest.raises(ShapeError, match="b = 9"):
        aot_compile(program, tmp_path / "m.dcpkg", sizes=[{"b": 9}])


def test_what_a_package_cannot_hold_is_said(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="compiles a graph when it runs: while_loop"):
        packaged(tmp_path, One(lambda x: torch.while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,))),
                 torch.ones(3))  # fmt: skip
    with pytest.raises(ArgumentError, match="takes an exported program"):
        aot_compile(small(), tmp_path / "m.dcpkg")  # type: ignore[arg-type]


class Drawing(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return nn.functional.dropout(x, 0.5) + torch.rand(x.shape[0], 1), torch.randint(0, 9, (4,)), torch.randn(3)


@pytest.mark.filterwarnings("ignore:.*a package is compiled now")
def test_draws_are_those_of_the_program(tmp_path: Path) -> None:
    x = torch.ones(4, 16)
    program = export(Drawing(), (x,), dynamic_shapes={"x": {0: Dim("n", max=64)}})
    package = load_package(aot_compile(program, tmp_path / "m.dcpkg"))
    for n in (4, 1, 7):  # 7: not compiled for
        torch.manual_seed(n)
        expected = [program.module()(torch.ones(n, 16)) for _ in range(2)]
        torch.manual_seed(n)
        assert_same([package(torch.ones(n, 16)) for _ in range(2)], expected)
        assert not torch.equal(expected[0][0], expected[1][0])


def test_a_process_without_generators_draws_others_each_time(tmp_path: Path) -> None:
    """It imports no more than for a package that does not draw."""
    path = packaged(tmp_path, nn.Dropout(0.5), torch.ones(64))
    code = """
        import sys
        from distcompile.package import load_package
        import numpy as np
        package, x = load_package(sys.argv[1]), np.ones(64, np.float32)
        print(*(int(number) for _ in range(2) for number in package(x)))
        assert "compiler_core.tensor" not in sys.modules
    """
    command = [sys.executable, "-c", inspect.cleandoc(code), path]
    done = [subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout for _ in range(2)]
    each = [text.split()[part : part + 64] for text in done for part in (0, 64)]
    assert {number for numbers in each for number in numbers} == {"0", "2"}
    assert len({tuple(numbers) for numbers in each}) == 4


@pytest.mark.parametrize(
    "function",
    [torch.fft.fft, lambda x: torch.linalg.svdvals(x) * 2, lambda x: torch.linalg.eigvals(x).abs() + torch.rand(3)],
)
def test_what_python_computes_is_called_back(function: Any, tmp_path: Path) -> None:
    x = torch.randn(3, 3)
    program = export(One(function), (x,))
    package = load_package(aot_compile(program, tmp_path / "m.dcpkg"))
    torch.manual_seed(0)
    expected = program.module()(x)
    torch.manual_seed(0)
    assert_same(package(x), expected)
    result = subprocess.run(
        [program_in_cpp(tmp_path), tmp_path / "m.dcpkg"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, "calls Python for" in result.stderr) == (1, True), result.stderr


def test_an_error_of_what_is_called_back_is_pythons(tmp_path: Path) -> None:
    package = load_package(packaged(tmp_path, One(lambda x: torch.linalg.svdvals(torch.linalg.inv(x))), torch.eye(3)))
    assert_same(package(torch.eye(3)), torch.ones(3))
    with pytest.raises(torch.linalg.LinAlgError, match="Singular"):
        package(torch.zeros(3, 3))


def test_data_that_a_library_refuses_are_an_error(tmp_path: Path) -> None:
    package = load_package(packaged(tmp_path, One(torch.linalg.inv), torch.eye(3)))
    assert_same(package(torch.eye(3) * 2), torch.eye(3) / 2)
    with pytest.raises(RuntimeError, match="singular"):
        package(torch.zeros(3, 3))


def test_a_call_of_something_else_is_an_error(tmp_path: Path) -> None:
    package = load_package(packaged(tmp_path, Two(lambda x, y: {"sum": x + y}), torch.ones(2, 3), torch.ones(3)))
    assert_same(package(torch.ones(2, 3), torch.ones(3)), {"sum": torch.ones(2, 3) * 2})
    found = package(np.ones((2, 3), np.float32), np.ones(3, np.float32))["sum"]
    assert type(found) is np.ndarray
    with pytest.raises(ArgumentError, match="another form"):
        package(torch.ones(2, 3))
    with pytest.raises(ShapeError, match="no code for these sizes"):
        package(torch.ones(2, 4), torch.ones(4))
    with pytest.raises(DTypeError, match="x: the package"):
        package(torch.ones(2, 3, dtype=torch.float64), torch.ones(3))
    with pytest.raises(ArgumentError, match="x is an array"):
        package(1, torch.ones(3))
    with pytest.raises(ArgumentError, match="other arguments"):
        package.run(np.ones((2, 3), np.float32))


def test_threads_share_a_package(tmp_path: Path) -> None:
    package = load_package(packaged(tmp_path, Counting(), torch.ones(3, 2)), threads=2)
    calls = [threading.Thread(target=package, args=(torch.ones(3, 2),)) for _ in range(8)]
    for call in calls:
        call.start()
    for call in calls:
        call.join(timeout=60)
    assert_same(package(torch.ones(3, 2))[0], torch.ones(3, 2) * 10)


# -- the file


def _rewritten(path: Path, change: Any) -> None:
    """The file with another manifest, and the checksum of that."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    entries = json.loads(whole[8 : 8 + length])
    manifest = json.loads(entries["__metadata__"][KEY])
    change(manifest)
    entries["__metadata__"].update({CHECK: "0" * 8, KEY: json.dumps(manifest)})
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % 64)
    check = f"{zlib.crc32(whole[8 + length :], zlib.crc32(header)):08x}".encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header.replace(b"0" * 8, check, 1) + whole[8 + length :])


def _of_another_cpu(manifest: dict[str, Any]) -> None:
    manifest["target"]["features"].append("avx9000")


def _of_another_machine(manifest: dict[str, Any]) -> None:
    manifest["target"]["machine"] = "vax"


def _newer(manifest: dict[str, Any]) -> None:
    manifest["version"] = 99


@pytest.mark.parametrize(
    ("change", "words"),
    [(_of_another_cpu, "another CPU"), (_of_another_machine, "another system"), (_newer, "newer format")],
)
def test_packages_for_elsewhere_are_refused(tmp_path: Path, change: Any, words: str) -> None:
    path = packaged(tmp_path, nn.Linear(3, 2), torch.ones(1, 3))
    _rewritten(path, change)
    with pytest.raises(PackageError, match=words):
        load_package(path)
    result = subprocess.run([program_in_cpp(tmp_path), path], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, words in result.stderr) == (1, True), result.stderr


def test_damaged_packages_are_refused(tmp_path: Path) -> None:
    path = packaged(tmp_path, nn.Linear(3, 2), torch.ones(1, 3))
    whole, runner = path.read_bytes(), program_in_cpp(tmp_path)
    for damaged in (whole[:-1], whole[:-9] + b"\x01" + whole[-8:], whole[:40], b"", b"not a package at all"):
        path.write_bytes(damaged)
        with pytest.raises(PackageError, match=r"damaged|cannot be read|no package"):
            load_package(path)
        result = subprocess.run([runner, path], capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 1, damaged[:20]
    with pytest.raises(PackageError, match="cannot be read"):
        load_package(tmp_path / "none")


def test_a_library_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = load_package(packaged(tmp_path, nn.Linear(3, 2), torch.ones(1, 3)))
    monkeypatch.setattr("distcompile.package.libraries._wheel_files", lambda module: [])
    with pytest.raises(PackageError, match="scipy-openblas32, which is not installed"):
        package(torch.ones(1, 3))
    monkeypatch.undo()
    assert package(torch.ones(1, 3)).shape == (1, 2)


def test_any_reader_of_safetensors_opens_it(tmp_path: Path) -> None:
    net = nn.Linear(3, 2)
    tensors = load_file(packaged(tmp_path, net, torch.ones(1, 3)))
    assert_same(tensors["parameter:weight"], net.weight.detach())


def load_file(path: Path) -> dict[str, torch.Tensor]:
    return torch.serialization.load_file(path)


# -- elsewhere


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CXX", "DISTCOMPILE_CXX")}
    return {**kept, "PATH": "/nonexistent", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


RUN = """
import sys
from distcompile.package import load_package
import numpy as np
found = load_package(sys.argv[1])(np.load(sys.argv[2]))
np.save(sys.argv[3], found)
heavy = ("compiler_core.graph", "compiler_core.capture", "distcompile.nn")
assert not any(name.startswith(heavy) for name in sys.modules)
"""


def test_a_process_without_a_compiler_has_the_result_soon(tmp_path: Path) -> None:
    net = small()
    x = torch.randn(2, 3, 8, 8)
    path = packaged(tmp_path, net, x)
    np.save(tmp_path / "x.npy", x.numpy())
    command = [sys.executable, "-c", RUN, path, tmp_path / "x.npy", tmp_path / "y.npy"]
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run(command, check=True, timeout=120, env=_environment(XDG_CACHE_HOME=str(tmp_path)))
        times.append(time.perf_counter() - begun)
    assert_same(torch.from_numpy(np.load(tmp_path / "y.npy")), net(x).detach())
    assert min(times) < LIMIT_S or os.getloadavg()[0] > (os.cpu_count() or 1), times


def program_in_cpp(folder: Path) -> Path:
    """The example, built."""
    return built_in_cpp(ROOT / "examples" / "run_package.cpp", folder)


def built_in_cpp(source: Path, folder: Path) -> Path:
    """The program of a source."""
    made = folder / source.stem
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))))
    include = ROOT / "distcompile" / "include"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I", include]
    subprocess.run([compiler, *flags, source, "-o", made, "-ldl", "-pthread"], check=True, timeout=120)
    return made


def test_the_example_in_cpp_gives_the_same(tmp_path: Path) -> None:
    net = small()
    path = packaged(tmp_path, net, torch.ones(2, 3, 8, 8))
    result = subprocess.run([program_in_cpp(tmp_path), path], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    name, dtype, total = result.stdout.split()
    assert (name, dtype) == ("output0", "F32")
    assert float(total) == pytest.approx(net(torch.ones(2, 3, 8, 8)).sum().item(), abs=1e-4)


def test_cpp_runs_several_sizes_and_writes_buffers(tmp_path: Path) -> None:
    """Twice one size, with a buffer that counts the calls, then another size, then one without code."""
    program = """
        #include <cstdio>
        #include <thread>
        #include "distcompile_package.h"
        using distcompile::Array;
        static float sum(const Array& a) {
          float total = 0;
          for (size_t k = 0; k < a.bytes.size() / 4; ++k) total += a.data<float>()[k];
          return total;
        }
        int main(int, char** argv) {
          distcompile::Package model(argv[1], 2);
          auto ones = [](int64_t n) { return Array::of<float>({n, 2}, std::vector<float>(n * 2, 1.0f)); };
          for (int64_t n : {3, 3, 5}) std::printf("%g\\n", sum(model.run({ones(n)})[0]));
          std::vector<std::thread> others;
          for (int k = 0; k < 8; ++k) others.emplace_back([&] { model.run({ones(5)}); });
          for (auto& one : others) one.join();
          std::printf("%g\\n", sum(model.run({ones(3)})[0]));
          try {
            model.run({ones(7)});
          } catch (const distcompile::PackageError& error) {
            std::printf("%s\\n", error.what());
          }
        }
    """
    dims = ({0: Dim("n", max=6)},)
    path = packaged(tmp_path, Counting(), torch.ones(3, 2), dynamic_shapes=dims, sizes="all")
    source = tmp_path / "several.cpp"
    source.write_text(inspect.cleandoc(program))
    result = subprocess.run(
        [built_in_cpp(source, tmp_path), path], capture_output=True, text=True, timeout=60, check=True
    )
    first, second, other, later, without = result.stdout.splitlines()
    assert [first, second, other, later] == ["12", "18", "40", "78"]  # (1 + the number of the call) times the elements
    assert "no code for these sizes" in without


def test_cpp_draws_from_a_seed(tmp_path: Path) -> None:
    """The numbers of the seed as a key, which another seed and the next call change."""
    program = """
        #include <cstdio>
        #include "distcompile_package.h"
        using distcompile::Array;
        int main(int, char** argv) {
          distcompile::Package model(argv[1]), other(argv[1]);
          std::vector<Array> x = model.inputs();
          model.manual_seed(5);
          for (int k = 0; k < 2; ++k) std::printf("%.9g\\n", model.run(x)[0].data<float>()[0]);
          const bool differ = other.run(x)[0].bytes != model.run(x)[0].bytes;
          model.manual_seed(5);
          std::printf("%.9g\\n%d\\n", model.run(x)[0].data<float>()[0], differ);
        }
    """
    path = packaged(tmp_path, One(lambda x: torch.rand(2) + 0 * x), torch.ones(2))
    source = tmp_path / "draws.cpp"
    source.write_text(inspect.cleandoc(program))
    done = subprocess.run(
        [built_in_cpp(source, tmp_path), path], capture_output=True, text=True, timeout=60, check=True
    )
    first, second, again, differ = map(float, done.stdout.split())
    keys = [np.array((5, offset, 0), np.uint64) for offset in (0, 1)]
    expected = [float(rand(key, (2,))[0]) for key in keys]
    assert [first, second, again, differ] == [*map(pytest.approx, (*expected, expected[0])), 1]


def test_the_example_in_cpp_is_short() -> None:
    assert len((ROOT / "examples" / "run_package.cpp").read_text().splitlines()) <= 50


def test_the_command_runs_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packaged(tmp_path, Two(lambda x, y: (x + y, x.sum())), torch.ones(2, 3), torch.ones(3))
    x, y, out = (tmp_path / name for name in ("x.npy", "y.npy", "out.npy"))
    np.save(x, np.full((2, 3), 2.0, np.float32))
    np.save(y, np.arange(3, dtype=np.float32))
    assert main(["run", str(path), "--input", f"y={y}", "--input", f"x={x}", "--output", str(out)]) == 0
    np.testing.assert_array_equal(np.load(out), [[2, 3, 4], [2, 3, 4]])
    assert "output1: float32[]\n12.0" in capsys.readouterr().out
    assert main(["run", str(path)]) == 0
    assert "x: float32[2, 3]" in capsys.readouterr().out
    assert main(["run", str(path), "--input", str(x)]) == 1
    assert "other arguments" in capsys.readouterr().err
    assert main(["run", str(path), "--input", f"z={x}"]) == 1
    assert main(["run", str(x)]) == 1


# -- torch's names


def test_torchs_names_make_and_load_packages(tmp_path: Path) -> None:
    net, x = small(), torch.randn(2, 3, 8, 8)
    path = torch._inductor.aoti_compile_and_package(export(net, (x,)), package_path=tmp_path / "m.pt2")
    assert_same(torch._inductor.aoti_load_package(path)(x), net(x))
    made = torch._inductor.aoti_compile_and_package(
        export(Of(lambda self: torch.arange(3)), ()), package_path=tmp_path / "n"
    )
    assert_same(torch._inductor.aoti_load_package(made)(), torch.arange(3))
