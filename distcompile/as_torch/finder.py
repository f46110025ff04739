"""The import system's side: who answers `import torch.x.y`, and what `torch.x.y` gives when it is asked for.

In: dotted names. Out: for `torch.x.y` the module `distcompile.x.y`, the same object; else a module of stand-ins of that
name (`table.py`); else MissingModuleError. Of every module of ours that is loaded, names it lacks come from the table,
or are a MissingNameError. Also `importlib.metadata`: a distribution "torch" with our version.

Packages that cannot be imported without torch's C++ library (torchaudio) are as not installed.

Invariants: nothing is loaded twice, for a `torch.x` in `sys.modules` is the `distcompile.x` there; asking
(`find_spec`, `hasattr`) raises nothing but what it raises of any package. Method: a meta path finder (PEP 451) whose
loader gives back a module that exists; `__getattr__` of modules (PEP 562).
"""

from __future__ import annotations

import dis
import importlib
import multiprocessing.spawn
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from compiler_core import log
from compiler_core.config import Config, config
from compiler_core.names.spelling import call_library
from compiler_core.overrides.functions import call_modules
from distcompile.as_torch import table
from distcompile.as_torch.distribution import TorchDistribution
from distcompile.as_torch.errors import AsTorchError, MissingModuleError, MissingNameError, NameImportError
from distcompile.as_torch.places import MODULES, PLACES, found

_OURS_ALONE = "as_torch asking cli data ddp debug demo determinism errors late limits names parity threads tuning"
_FOLDER = str(Path(__file__).resolve().parents[2])
_NOT_TORCHS = frozenset(_OURS_ALONE.split())
# packages that load code which is linked with torch's C++ library as soon as they are imported
OF_TORCHS_LIBRARY = ("torchaudio", "torchcodec", "torchtext", "flash_attn", "xformers")


def install() -> None:
    """Answer `import torch` with distcompile from here on. Raises AsTorchError if the real torch is loaded."""
    if is_installed():
        return
    loaded = sys.modules.get("torch")
    if loaded is not None:
        raise AsTorchError(
            "torch is loaded already, and it is not distcompile",
            got=str(getattr(loaded, "__file__", loaded)),
            remedy="start the script by `python -m distcompile.as_torch`, or call install() before any import of torch",
        )
    sys.meta_path.insert(0, Finder())
    for name, module in list(sys.modules.items()):
        if name == "distcompile" or name.startswith("distcompile."):
            dress(module, _torchs(name))
    importlib.import_module("torch").__name__ = "torch"  # some libraries compare it
    call_library("torch")
    call_modules()
    _heed_environment()
    _hide_packages()
    _install_in_processes()


def _hide_packages() -> None:
    """Packages of torch's own library are as not installed: libraries ask for them, and do without."""
    for name in OF_TORCHS_LIBRARY:
        if name not in sys.modules and PathFinder.find_spec(name) is not None:
            sys.modules[name] = None  # type: ignore[assignment]  # as the import system has it: no such module
            log.emit("steps", f"{name} is as not installed: it needs torch's C++ library")


def _heed_environment() -> None:
    """Torch's variables that are knobs here. Raises ConfigError for a value that they do not take."""
    for knob in ("repro_after", "repro_level"):
        name = f"TORCHDYNAMO_{knob.upper()}"
        if text := os.environ.get(name):
            config.values[knob] = Config.knobs()[knob].read(text, name)


def _install_in_processes() -> None:
    """Have interpreters that multiprocessing starts afresh answer `import torch` so too, before they load `__main__`.

    It starts them with `python -c PROGRAM`, as PyInstaller's hook knows too: the program is given another first line.
    """
    inner = multiprocessing.spawn.get_command_line
    first = f"import sys; sys.path.insert(0, {_FOLDER!r}); from distcompile.as_torch import install; install()"

    def get_command_line(**words: Any) -> list[str]:
        line = inner(**words)
        where = line.index("-c") + 1 if "-c" in line else 0
        return [*line[:where], f"{first}; {line[where]}", *line[where + 1 :]] if where else line

    multiprocessing.spawn.get_command_line = get_command_line
    multiprocessing.set_forkserver_preload(["distcompile.as_torch.installed"])


def is_installed() -> bool:
    """Whether `import torch` is answered by distcompile."""
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


class Finder(MetaPathFinder):
    """What the import system asks first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for torch's modules, and for ours one that dresses them. Raises MissingModuleError on an import."""
        if fullname.startswith("distcompile."):
            return _dressing(PathFinder.find_spec(fullname, path, target))
        if fullname.partition(".")[0] not in ("torch", "functorch"):
            return None
        module = _module(fullname)
        if module is not None:
            dress(module, fullname)
            return ModuleSpec(fullname, Given(module), is_package=True)
        if sys._getframe(2).f_globals.get("__name__") == "importlib.util":  # who asks gets None, who imports the reason
            return None
        raise MissingModuleError(fullname)

    @staticmethod
    def find_distributions(
        context: DistributionFinder.Context | None = None,
    ) -> Iterator[Distribution]:
        """A distribution "torch", of our version."""
        if context is None or context.name in (None, "torch"):
            yield TorchDistribution()


class Given(Loader):
    """Loads a module that exists."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spec = getattr(module, "__spec__", None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run; the spec that it had comes back."""
        module.__spec__ = self.spec or module.__spec__


class _DressingLoader(SourceFileLoader):
    """Loads a module of ours as ever, then gives it torch's further names."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        laid_out = [value for value in vars(module).values() if isinstance(value, ModuleType)]
        for each in (module, *laid_out):  # which it may have made itself
            if each.__name__.startswith(module.__name__):
                dress(each, _torchs(each.__name__))


def _dressing(spec: ModuleSpec | None) -> ModuleSpec | None:
    if spec is not None and type(spec.loader) is SourceFileLoader:
        spec.loader = _DressingLoader(spec.loader.name, spec.loader.path)
    return spec


def _torchs(name: str) -> str:
    """distcompile.x.y -> torch.x.y."""
    return "torch" + name.removeprefix("distcompile")


def _module(name: str) -> ModuleType | None:
    """The module that torch's `name` is: ours, or one of stand-ins, or None."""
    own = "distcompile" + name.removeprefix("torch")
    if name.split(".")[1:2] and name.split(".")[1] in _NOT_TORCHS:
        return None
    try:
        return importlib.import_module(own)
    except ModuleNotFoundError as error:
        if error.name is None or not (own + ".").startswith(error.name + "."):
            raise  # ours, and it needs something that is not installed
    return _stand_in_module(name) if _is_module(name) else None


def _is_module(name: str) -> bool:
    """Whether names stand below `name` in the table of stand-ins or of places."""
    return name in table.MODULES or name in MODULES


class _StandInModule(ModuleType):
    """Of a function and a module of one name, what `import` puts here is not the module: as in torch's packages."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and f"{self.__name__}.{name}" in PLACES):
            super().__setattr__(name, value)


def _stand_in_module(name: str) -> ModuleType:
    module = _StandInModule(name, f"{name}'s names: see distcompile/as_torch/places.py and table.py.")
    dress(module, name)
    return module


def dress(module: Any, name: str) -> None:
    """Let `module`, which is torch's `name`, answer what it lacks from the table, or by an error that names it."""
    if not isinstance(module, ModuleType):
        return
    inner = vars(module).get("__getattr__")
    if getattr(inner, "is_dress", False):
        return
    if not hasattr(module, "__path__"):
        module.__path__ = []  # so that `import torch.x.y` comes here, and y is named where it is missing

    def find(attribute: str) -> Any:
        try:
            if inner is not None:
                return inner(attribute)
        except AttributeError:
            pass
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return _other(module, name, attribute, sys._getframe(1))

    find.is_dress = True  # type: ignore[attr-defined]
    vars(module)["__getattr__"] = find


def _other(module: ModuleType, name: str, attribute: str, asking: FrameType) -> Any:
    """`name.attribute` where our module has none: a stand-in, a module of stand-ins, or an error."""
    full = f"{name}.{attribute}"
    if full in PLACES or full in table.STAND_INS:
        value = found(PLACES[full]) if full in PLACES else table.STAND_INS[full].make(full)
        setattr(module, attribute, value)
        return value
    if full in sys.modules:
        return sys.modules[full]
    if _is_module(full):
        return importlib.import_module(full)
    if asking.f_code.co_code[asking.f_lasti] == dis.opmap["IMPORT_FROM"]:
        raise NameImportError(full)
    raise MissingNameError(full)
