"""torch.cuda's less common names, on the stand-in device; each that torch documents is there or refuses by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import distcompile as dc
from compiler_core import cuda
from distcompile.errors import NoGPUError
from tests.fake_cupy import on_fake_device


@pytest.fixture
def device() -> Iterator[None]:
    with on_fake_device():
        yield


IMPORTED = {  # modules and classes that torch.cuda happens to show, or that torch has no use of without a dispatcher
    "Any", "Callable", "NewType", "Optional", "TYPE_CHECKING", "os", "sys", "torch", "traceback", "threading",
    "warnings", "platform", "lru_cache", "classproperty", "cast", "Device", "DEVICE_REQUIREMENT",
    "PYTORCH_RELEASES_CODE_CC", "DeferredCudaCallError", "AcceleratorError", "cudaStatus", "gds",
    "green_contexts", "jiterator", "nccl", "sparse",
    "tunable", "BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage", "ComplexDoubleStorage",
    "ComplexFloatStorage", "DoubleStorage", "FloatStorage", "HalfStorage", "IntStorage", "LongStorage", "ShortStorage",
    "caching_allocator_disabled", "host_memory_stats", "host_memory_stats_as_nested_dict",
    "reset_peak_host_memory_stats", "reset_accumulated_host_memory_stats",
}  # fmt: skip


def test_torchs_names_are_there() -> None:
    torch = pytest.importorskip("torch")
    missing = [name for name in dir(torch.cuda) if not name.startswith("_") and not hasattr(dc.cuda, name)]
    assert set(missing) <= IMPORTED


@pytest.mark.usefixtures("device")
def test_numbers_and_handles() -> None:
    properties = dc.cuda.get_device_properties(0)
    assert (properties.max_threads_per_block, properties.pci_bus_id, properties.memory_bus_width) == (1024, 1, 6144)
    assert dc.cuda.is_tf32_supported()
    assert dc.cuda.get_gencode_flags() == "-gencode compute=compute_90,code=sm_90"
    assert dc.cuda.get_allocator_backend() == "native"
    assert dc.cuda.cudart().runtimeGetVersion() == 13000
    dc.cuda.set_sync_debug_mode("default")
    assert dc.cuda.get_sync_debug_mode() == 0
    with pytest.raises(NoGPUError, match="sync_debug_mode"):
        dc.cuda.set_sync_debug_mode("warn")
    assert dc.cuda.get_stream_from_external(64, 1).cuda_stream == 64
    assert dc.cuda.Stream(priority=-1).priority == -1


@pytest.mark.usefixtures("device")
def test_each_device_has_its_default_generator() -> None:
    first, second = dc.cuda.default_generators
    assert (first.device, second.device) == (dc.device("cuda:0"), dc.device("cuda:1"))
    dc.manual_seed(5)
    first.manual_seed(3)
    assert (first.initial_seed(), second.initial_seed(), dc.initial_seed()) == (3, 5, 5)
    drawn = dc.randn(2, device="cuda", generator=first).tolist()
    dc.cuda.manual_seed(3)
    assert dc.randn(2, device="cuda").tolist() == drawn


@pytest.mark.usefixtures("device")
def test_shares_of_memory_and_statistics() -> None:
    assert dc.cuda.get_per_process_memory_fraction() == 1
    dc.cuda.set_per_process_memory_fraction(0.5)
    assert dc.cuda.get_per_process_memory_fraction("cuda:0") == 0.5
    dc.cuda.set_per_process_memory_fraction(1.0)
    with pytest.raises(ValueError, match="Invalid fraction"):
        dc.cuda.set_per_process_memory_fraction(1.5)
    kept = dc.ones(1000, device="cuda")
    assert dc.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] >= kept.nbytes
    before = dc.cuda.memory_stats()["num_ooms"]
    with pytest.raises(dc.cuda.OutOfMemoryError):
        dc.empty(1 << 50, device="cuda")
    assert dc.cuda.memory_stats()["num_ooms"] == before + 1


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    "name", ["graph", "memory_snapshot", "graph_pool_handle", "use_mem_pool", "CUDAGraph", "MemPool"]
)
def test_what_is_not_offered_says_so(name: str) -> None:
    with pytest.raises(NoGPUError, match=f"cuda.{name} is not offered"):
        getattr(dc.cuda, name)()


@pytest.mark.usefixtures("device")
def test_what_repeats_one_number_is_made_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    put = cuda.put

    def counted(array: Any, number: int, **options: Any) -> Any:
        sent.append(sum(array.strides))
        return put(array, number, **options)

    monkeypatch.setattr(cuda, "put", counted)
    x = dc.zeros(100, 100, device="cuda")
    made = (x, dc.full((3, 2), 7, device="cuda:1"), dc.ones_like(x), x.new_zeros(5), dc.empty(4, device="cuda"))
    assert sent == [0] * 5
    assert all(one._cell.raw.flags.c_contiguous for one in made)
    assert made[1].tolist() == [[7, 7]] * 3
    x += 1
    assert (x.sum().item(), made[2].sum().item()) == (10000, 10000)


def test_without_a_gpu() -> None:
    for name in ("cudart", "current_blas_handle", "utilization", "make_graphed_callables"):
        with on_fake_device(0), pytest.raises(NoGPUError):
            getattr(dc.cuda, name)(*([None, None] if name.startswith("make") else []))


def test_backends_cuda() -> None:
    cuda_backend = dc.backends.cuda
    assert cuda_backend.preferred_linalg_library("cusolver") == cuda_backend.preferred_blas_library() == "default"
    with pytest.raises(ValueError, match="Unknown input value"):
        cuda_backend.preferred_linalg_library("magma")
    x = dc.ones(1, 2, 3, 4)
    params = cuda_backend.SDPAParams(x, x, x, None, 0.0, True)
    assert params.is_causal
    assert not cuda_backend.can_use_flash_attention(params)
    with on_fake_device(0), pytest.raises(NoGPUError, match="cufft_plan_cache"):
        cuda_backend.cufft_plan_cache.clear()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda out: dc.zeros(4, out=out), [0.0] * 4),
        (lambda out: dc.full((4,), 2.5, out=out), [2.5] * 4),
        (lambda out: dc.arange(4, out=out), [0.0, 1.0, 2.0, 3.0]),
        (lambda out: dc.linspace(0, 3, 4, out=out), [0.0, 1.0, 2.0, 3.0]),
        (lambda out: dc.logspace(0, 3, 4, out=out), [1.0, 10.0, 100.0, 1000.0]),
    ],
)
def test_what_is_made_into_a_tensor_is_made_on_its_device(make: Any, expected: list[float]) -> None:
    with on_fake_device():
        out = dc.empty(4, device="cuda:1")
        assert make(out) is out
        assert out.device == dc.device("cuda:1")
        assert out.tolist() == expected
