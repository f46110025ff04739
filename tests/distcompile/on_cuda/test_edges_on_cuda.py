"""What a torch user with a GPU meets at the edges, on the stand-in device: streams, generators, out=, names."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.errors import DeviceError, DTypeError, ShapeError
from tests.fake_cupy import on_fake_device


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with on_fake_device():
        yield


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "must not be empty"),
        ("gpu", "Expected one of cpu, cuda, .* at start of device string: gpu"),
        ("gpu:0", "at start of device string: gpu"),
        ("cuda:a", "Invalid device string: 'cuda:a'"),
        ("cuda:", "Invalid device string"),
        ("cuda:-1", "Invalid device string"),
        ("cuda:01", "Invalid device string"),
        ("cuda:1:2", "Invalid device string"),
    ],
)
def test_errors_of_device_strings_are_torchs(name: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        dc.device(name)


def test_devices_with_an_index() -> None:
    assert (dc.device("cpu", 0).index, dc.device("cpu:0").index, dc.device("cpu").index) == (0, 0, None)
    assert dc.device("cpu:0") != dc.device("cpu")
    assert dc.zeros(2, device="cpu:0").device == dc.device("cpu")
    assert dc.device(1) == dc.device("cuda:1")
    with pytest.raises(RuntimeError, match="must not include an index because index was passed"):
        dc.device("cuda:1", 1)
    with pytest.raises(RuntimeError, match="must not be negative"):
        dc.device("cuda", -1)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_shifts(place: str) -> None:
    x = dc.arange(4, device=place)
    assert ((x << 1).tolist(), (x >> 1).tolist(), (1 << x).tolist()) == ([0, 2, 4, 6], [0, 0, 1, 1], [1, 2, 4, 8])
    x <<= 2
    assert x.tolist() == [0, 4, 8, 12]
    x >>= dc.tensor(1)
    assert x.tolist() == [0, 2, 4, 6]
    with pytest.raises(DTypeError):
        _ = dc.ones(2, device=place) << 1


@pytest.mark.parametrize("place", ["cpu", "cuda:1"])
def test_out_gets_the_results_shape(place: str) -> None:
    out = dc.empty(0, device=place)
    assert dc.add(dc.ones(3, device=place), 1, out=out) is out
    assert (out.tolist(), out.device) == ([2.0, 2.0, 2.0], dc.device(place))
    with pytest.warns(UserWarning, match="was resized since it had shape .3."):
        dc.sum(dc.ones(2, 2, device=place), 1, out=out)
    assert out.tolist() == [2.0, 2.0]
    values, places = dc.empty(0, device=place), dc.empty(0, dtype=dc.int64, device=place)
    dc.max(dc.tensor([[1.0, 3.0]], device=place), 1, out=(values, places))
    assert (values.tolist(), places.tolist()) == ([3.0], [1])
    with pytest.raises(ShapeError, match="another shape"), pytest.warns(UserWarning, match="was resized"):
        dc.add(dc.ones(9, device=place), 1, out=out)
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        dc.add(dc.ones(3), 1, out=dc.empty(3, dtype=dc.int64))


def test_generators_belong_to_a_kind_of_device() -> None:
    there = dc.Generator("cuda")
    assert there.device == dc.device("cuda:0")
    assert dc.Generator().device == dc.device("cpu")
    with dc.random.counter_draws():
        expected = dc.manual_seed(5) and dc.randn(3).tolist()
    assert dc.randn(3, device="cuda", generator=there.manual_seed(5)).tolist() == expected
    assert there.get_offset() == 1
    twin = there.clone_state()
    assert dc.rand(2, device="cuda", generator=twin).tolist() == dc.rand(2, device="cuda", generator=there).tolist()
    for draw in (
        lambda: dc.randn(3, device="cuda", generator=dc.Generator()),
        lambda: dc.randn(3, generator=there),
        lambda: dc.zeros(3, device="cuda").normal_(generator=dc.Generator()),
        lambda: dc.bernoulli(dc.ones(3, device="cuda"), generator=dc.Generator()),
        lambda: dc.multinomial(dc.ones(3, device="cuda"), 2, generator=dc.Generator()),
    ):
        with pytest.raises(DeviceError, match="device type for generator but found"):
            draw()
    assert sorted(dc.multinomial(dc.ones(3, device="cuda"), 3, generator=there).tolist()) == [0, 1, 2]
    loader = dc.utils.data.DataLoader(list(range(4)), shuffle=True, generator=there)
    assert sorted(int(batch) for batch in loader) == [0, 1, 2, 3]


def test_memory_that_another_stream_uses_is_kept_until_it_is_done() -> None:
    side = dc.cuda.Stream()
    x = dc.ones(1024, device="cuda")
    used = dc.cuda.memory_allocated()
    x.record_stream(side)
    x.record_stream(side)
    memory = cuda._found.memory
    dc.ones(1, device="cuda")
    assert len(memory.used_by) == 1  # x is there
    del x
    gc.collect()
    assert dc.cuda.memory_allocated() == used  # nobody refers to it, and side may not be done
    assert side._stream.log == []
    dc.ones(1, device="cuda")
    assert [told for told, _ in side._stream.log] == ["record"]
    assert memory.used_by == []
    assert dc.cuda.memory_allocated() < used
    with pytest.raises(DeviceError, match="not on a CUDA device"):
        dc.ones(1).record_stream(side)


def test_streams_and_events_of_any_device() -> None:
    stream, event = dc.Stream("cuda:1"), dc.Event("cuda", enable_timing=True)
    assert isinstance(stream, dc.cuda.Stream)
    assert isinstance(event, dc.cuda.Event)
    assert isinstance(dc.cuda.Stream(), dc.Stream)
    assert stream.device == dc.device("cuda:1")
    event.record(stream)
    assert event.device == stream.device
    host = dc.Stream(device="cpu")
    first, last = (dc.Event("cpu", enable_timing=True) for _ in range(2))
    for one in (first, last):
        host.record_event(one)
    assert host.query()
    assert first.elapsed_time(last) >= 0
    with on_fake_device(0), pytest.raises(RuntimeError, match="Cannot access accelerator device"):
        dc.Stream()


def test_autocasts_older_names() -> None:
    before = dc.get_autocast_gpu_dtype()
    dc.set_autocast_gpu_dtype(dc.bfloat16)
    assert dc.get_autocast_dtype("cuda") is dc.bfloat16
    dc.set_autocast_enabled(True)
    assert dc.is_autocast_enabled()
    assert not dc.is_autocast_cpu_enabled()
    dc.set_autocast_enabled(False)
    dc.set_autocast_gpu_dtype(before)
    assert not dc.is_autocast_enabled()


def test_an_index_error_names_the_index() -> None:
    with pytest.raises(IndexError, match="index 400 is out of range"):
        dc.arange(300, device="cuda").index_select(0, dc.tensor([3, 400], device="cuda"))


@pytest.mark.parametrize("name", ["fmod", "hypot", "xlogy", "isclose", "fmax", "atan2"])
def test_a_number_on_the_cpu_stands_beside_a_tensor_of_a_gpu(name: str) -> None:
    x, number = dc.tensor([0.5, 1.5, 2.0]), dc.tensor(0.7, requires_grad=True)
    there = x.cuda()
    expected, found = (getattr(dc, name)(a, number) for a in (x, there))
    assert found.is_cuda
    assert found.tolist() == pytest.approx(expected.tolist())
    if found.requires_grad:
        (first,) = dc.autograd.grad(expected.sum(), number)
        (second,) = dc.autograd.grad(found.sum(), number)
        assert second.device == dc.device("cpu")
        assert second.item() == pytest.approx(first.item())


def test_whole_numbers_are_counted_on_a_device() -> None:
    """As torch counts experts' tokens on GPUs; its parts' bounds are those of whole numbers."""
    x = dc.tensor([0, 1, 1, 6, 7, 7, 9, -1], dtype=dc.int32)
    with pytest.raises(RuntimeError, match="histc"):
        dc.histc(x, 8, 0, 7)
    for function in (dc.histc, dc.compile(dc.histc, backend="eager")):
        made = function(x.cuda(), bins=8, min=0, max=7)
        assert made.dtype is dc.int32
        assert made.tolist() == [1, 2, 0, 0, 0, 0, 1, 2]
        assert function(x.cuda(), bins=2).tolist() == [4, 4]
        assert function(dc.tensor([4, 4]).cuda(), bins=3).tolist() == [0, 2, 0]
