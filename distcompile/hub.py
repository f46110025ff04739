"""torch.hub's names: weights of a URL, kept in a folder, checked by the hash in their name; models of a local folder.

In: a URL. Out: a file below `get_dir()`/checkpoints; a state dict, of torch's file or a safetensors file, read without
running anything of it. In: a folder with a hubconf.py. Out: what its functions give. Repositories are not downloaded.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from distcompile.errors import ArgumentError, CheckpointError, NotSupportedError

__all__ = [
    "HASH_REGEX", "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir",
    "urlparse",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # model-0123abcd.safetensors
_chosen: builtins.list[str] = []


def _get_torch_home() -> str:
    """$TORCH_HOME, or torch's folder in the cache."""
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Where files are kept: what `set_dir` said, or `hub` in $TORCH_HOME."""
    return _chosen[-1] if _chosen else str(Path(_get_torch_home()) / "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep files in this folder."""
    _chosen.append(os.path.expanduser(d))


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Save what a URL gives as `dst`, whole or not at all. hash_prefix: how its SHA-256 begins.

    Raises: CheckpointError for another hash.
    """
    request = Request(url, headers={"User-Agent": "distcompile.hub"})
    with urlopen(request) as source:
        data: bytes = source.read()
    found = hashlib.sha256(data).hexdigest()
    if hash_prefix and not found.startswith(hash_prefix):
        raise CheckpointError("a downloaded file has another hash", where=url, expected=hash_prefix, got=found)
    handle, temporary = tempfile.mkstemp(dir=Path(dst).parent)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    os.replace(temporary, dst)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """The state dict in a file at a URL, of torch or safetensors, downloaded once.

    It runs nothing: weights_only=False, the default here as in torch, reads tensors and containers alone too.
    Raises: CheckpointError for another hash or a file that is none; WeightsOnlyError for one that needs code.
    """
    from distcompile import serialization

    name = file_name or Path(urlparse(url).path).name
    folder = Path(model_dir or Path(get_dir()) / "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if not path.exists():
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(path), match.group(1) if match else None, progress)
    if name.endswith(".safetensors"):
        return serialization.load_file(str(path))
    loaded: dict[str, Any] = serialization.load(str(path), map_location)
    return loaded


def list(repo_or_dir: str, *args: Any, source: str = "github", **kwargs: Any) -> builtins.list[str]:
    """The entry points of a local folder's hubconf.py. Raises NotSupportedError unless source="local"."""
    module = _hubconf(repo_or_dir, source)
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> str | None:
    """The docstring of an entry point of a local folder."""
    said: str | None = _entry(_hubconf(repo_or_dir, source), model).__doc__
    return said


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """Call the entry point `model` of a local folder's hubconf.py: this runs the code in that folder.

    Raises NotSupportedError unless source="local": repositories are not downloaded.
    """
    for option in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(option, None)
    return _entry(_hubconf(repo_or_dir, source), model)(*args, **kwargs)


def _hubconf(repo_or_dir: str, source: str) -> Any:
    if source not in ("github", "local"):
        raise ArgumentError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotSupportedError("hub.load does not download repositories", where=repo_or_dir,
                                remedy="clone it, and load(folder, model, source='local')")  # fmt: skip
    folder = os.path.expanduser(repo_or_dir)
    spec = importlib.util.spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.path.insert(0, folder)
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    missing = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
    if missing and missing != ["torch"]:
        raise CheckpointError(f"Missing dependencies: {', '.join(missing)}", where=folder)
    return module


def _entry(module: Any, model: str) -> Any:
    entry = getattr(module, model, None)
    if not callable(entry):
        raise ArgumentError(f"Cannot find callable {model} in hubconf")
    return entry
