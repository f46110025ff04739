"""torch.__config__, torch.backends and collect_env: texts and answers that are true on this machine."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np

import distcompile as dc


def test_config_tells_of_this_machine() -> None:
    assert np.__version__ in dc.__config__.show()
    assert dc.backends.cpu.get_cpu_capability() in dc.__config__.show()
    before = dc.get_num_threads()
    try:
        dc.set_num_threads(1)
        assert "get_num_threads() : 1\n" in dc.__config__.parallel_info()
    finally:
        dc.set_num_threads(before)


def test_backends_that_are_not_here() -> None:
    for name in ("cuda", "cudnn", "mps", "mkl", "openmp", "opt_einsum"):
        backend = importlib.import_module(f"distcompile.backends.{name}")
        assert not backend.is_available()
        assert not hasattr(backend, "magic")
    from compiler_core.runtime.onednn import find_onednn

    assert dc.backends.mkldnn.is_available() == bool(find_onednn())
    assert not dc.backends.cuda.is_built()
    assert dc.backends.cudnn.version() is None
    dc.backends.cuda.enable_flash_sdp(True)
    assert not dc.backends.cuda.flash_sdp_enabled()
    assert dc.backends.cuda.math_sdp_enabled()


def test_the_environment_is_printed_under_torchs_name() -> None:
    program = "import torch, torch.utils.collect_env as c; c.main(); print(torch.__config__.parallel_info())"
    words = [sys.executable, "-c", f"from distcompile.as_torch import install; install(); {program}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert dc.__version__ in done.stdout
    assert done.stdout.count("get_num_threads()") == 2


def test_cudnn_can_be_switched_off_and_regions_put_it_back() -> None:
    cudnn = dc.backends.cudnn
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32) == (True, False, False, True)
    with cudnn.flags(enabled=False, benchmark=True):
        assert (cudnn.enabled, cudnn.benchmark) == (False, True)
    assert (cudnn.enabled, cudnn.benchmark) == (True, False)
    cudnn.enabled = False
    try:
        assert not cudnn.enabled
    finally:
        cudnn.enabled = True
