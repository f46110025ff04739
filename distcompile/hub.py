"""torch.hub's names for weights: files of a URL, kept in a folder, checked by the hash in their name, and loaded.

In: a URL. Out: a file below `get_dir()`/checkpoints; a state dict, of a safetensors file. Pickled ones (torch.save) are
refused, and so is running code of a repository.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from distcompile.errors import CheckpointError, NotSupportedError

__all__ = ["HASH_REGEX", "download_url_to_file", "get_dir", "load_state_dict_from_url", "set_dir", "urlparse"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # model-0123abcd.safetensors
_chosen: list[str] = []


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
    """The state dict of a safetensors file at a URL, downloaded once. Raises NotSupportedError for other files."""
    from distcompile.serialization import load_file

    name = file_name or Path(urlparse(url).path).name
    if not name.endswith(".safetensors"):
        raise NotSupportedError(f"{name} is not a safetensors file", where=url,
                                remedy="convert it once where PyTorch is installed")  # fmt: skip
    folder = Path(model_dir or Path(get_dir()) / "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if not path.exists():
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(path), match.group(1) if match else None, progress)
    loaded: dict[str, Any] = load_file(str(path))
    return loaded
