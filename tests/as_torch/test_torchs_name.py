"""`import torch` under --as-torch: one object a module, metadata, named errors, scripts run as Python runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import program, run, start

IDENTITIES = """
import importlib.metadata, importlib.util, sys
import torch, torch.nn.functional as F, torch.backends.cudnn as cudnn
import torch.optim.lr_scheduler, torch.utils.data.distributed, torch.nn.modules.conv
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
import distcompile, distcompile.nn.parallel

assert torch is distcompile and nn is torch.nn is distcompile.nn is sys.modules["torch.nn"]
assert DDP is distcompile.nn.parallel.DistributedDataParallel
assert torch.backends.cudnn is cudnn is distcompile.backends.cudnn
assert F is sys.modules["distcompile.nn.functional"] and nn.__spec__.name == "distcompile.nn"
assert torch.nn.modules.conv.Conv2d is nn.Conv2d
for name, module in list(sys.modules.items()):  # nothing was loaded twice
    other = sys.modules.get(name.replace("torch", "distcompile", 1)) if name.split(".")[0] == "torch" else None
    assert other is None or other is module, name
assert importlib.util.find_spec("torch") is not None and importlib.util.find_spec("torch.nn") is not None
assert importlib.util.find_spec("torch.nothing") is None and not hasattr(torch, "nothing")
assert importlib.metadata.version("torch") == torch.__version__ == torch.version.__version__
assert set(importlib.metadata.packages_distributions()["torch"]) == {"torch"}  # the judge may be installed too
assert torch.__version__ >= "2.6" and torch.__version__ >= (2, 1) and not torch.__version__ < "2.13"
try:
    import torch.parity
except ModuleNotFoundError as error:
    print(error.name)
"""


def test_each_module_is_loaded_once_and_torch_can_be_asked_for(tmp_path: Path) -> None:
    assert run("-m", "distcompile.as_torch", program(tmp_path, IDENTITIES)) == "torch.parity\n"


MISSING = [
    ("import torch.nothing", "MissingModuleError", "torch.nothing"),
    ("from torch.nn import nothing", "NameImportError", "torch.nn.nothing"),
    ("from torch import nothing", "NameImportError", "torch.nothing"),
    ("from torch.nothing.deep import x", "MissingModuleError", "torch.nothing"),
    ("import torch\n\ntorch.nn.functional.nothing(1)", "MissingNameError", "torch.nn.functional.nothing"),
    ("import torch; torch.onnx.symbolic_opset9.softmax(1)", "RefusedError", "torch.onnx.symbolic_opset9.softmax"),
    ("import torch; class_ = torch.SymInt; class_()", "RefusedError", "torch.SymInt"),
]


@pytest.mark.parametrize(("text", "error", "name"), MISSING, ids=[name + error for _, error, name in MISSING])
def test_what_is_missing_is_named_with_the_line(text: str, error: str, name: str, tmp_path: Path) -> None:
    path = program(tmp_path, text)
    done = start("-m", "distcompile.as_torch", path)
    assert done.returncode == 1
    told = done.stderr[done.stderr.rindex(f".{error}: ") :]
    assert name in told
    assert f"at: {path}:{text.count(chr(10)) + 1}\n" in told
    assert "what to do: " in told


def test_scripts_and_modules_run_as_main(tmp_path: Path) -> None:
    text = "import sys, torch, helper\nif __name__ == '__main__':\n    print(sys.argv[1:], sys.path[0], torch.__name__)"
    program(tmp_path, "import torch.nn", "helper.py")
    path = program(tmp_path, text)
    expected = f"['-x', 'y'] {tmp_path} torch\n"
    assert run("-m", "distcompile.as_torch", path, "-x", "y", cwd=tmp_path.parent) == expected
    assert run("-m", "distcompile.as_torch", "-m", "script", "-x", "y", cwd=tmp_path) == expected


def test_twice_is_refused(tmp_path: Path) -> None:
    done = start("-m", "distcompile.as_torch", "-m", "distcompile.as_torch", program(tmp_path, "1"))
    assert "AsTorchError: the program is started under torch's name twice" in done.stderr
    assert "once is enough" in done.stderr


def test_a_real_torch_is_not_replaced(tmp_path: Path) -> None:
    program(tmp_path, "__version__ = '1'", "torch.py")
    text = "import torch\nfrom distcompile import as_torch\nas_torch.install()"
    done = start(program(tmp_path, text), folders=(tmp_path,))
    assert "AsTorchError: torch is loaded already, and it is not distcompile" in done.stderr
    assert f"got: {tmp_path}/torch.py" in done.stderr


def test_a_command_line_without_a_program_says_how() -> None:
    done = start("-m", "distcompile.as_torch")
    assert (done.returncode, done.stderr[:6]) == (2, "usage:")
    assert "there is no file 'no.py'" in start("-m", "distcompile.as_torch", "no.py").stderr


def test_values_print_under_torchs_name(tmp_path: Path) -> None:
    text = "import torch\nx = torch.zeros(2, 3).double()\nprint(x.shape, x.dtype, [x.shape[1:]], eval(repr(x.dtype)))"
    assert run("-m", "distcompile.as_torch", program(tmp_path, text)).strip() == (
        "torch.Size([2, 3]) torch.float64 [torch.Size([3])] torch.float64"
    )


def test_a_package_of_torchs_own_library_is_as_not_installed(tmp_path: Path) -> None:
    """One that is there, and would load a library that needs torch's."""
    (tmp_path / "torchaudio.py").write_text("raise OSError('its library needs libtorch')\n")
    asked = program(
        tmp_path, "import importlib.util\nprint(importlib.util.find_spec('torchaudio'))\nimport torchaudio\n"
    )
    done = start("-m", "distcompile.as_torch", asked, folders=(tmp_path,))
    assert (done.returncode, done.stdout) == (1, "None\n")
    assert "ModuleNotFoundError" in done.stderr
    assert "torchaudio needs torch's C++ library" in done.stderr
