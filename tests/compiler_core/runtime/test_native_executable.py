"""Calling native code: what fits goes straight through, what does not is mended or named."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from compiler_core import log
from compiler_core.dtype import bfloat16, float32
from compiler_core.errors import BackendError, DTypeError, IndexError_, ShapeError
from compiler_core.meta import TensorMeta
from compiler_core.runtime import layout
from compiler_core.runtime.build import build_library
from compiler_core.runtime.executor import CALL_HELPER, EntryPoint, NativeExecutable, load_library
from compiler_core.runtime.toolchain import find_toolchain

SOURCE = (
    """
typedef __INT32_TYPE__ int32_t; typedef __INT64_TYPE__ int64_t; typedef __UINT64_TYPE__ uint64_t;
"""
    + CALL_HELPER
    + """
#define EXPORT extern "C" __attribute__((visibility("default")))
// out = a + 2 b; out2 = the constant c
EXPORT int32_t combine(void** args, char* arena, const void* const* lib, const dc_events* events) {
  const float* a = (const float*)args[0];
  const float* b = (const float*)args[1]; const float* c = (const float*)args[2];
  float* out = (float*)args[3]; float* out2 = (float*)args[4];
  for (int i = 0; i < 6; ++i) { out[i] = a[i] + 2 * b[i]; out2[i] = c[i]; arena[i] = 0; }
  return 0;
}
EXPORT int32_t fail(void** args, char* arena, const void* const* lib, const dc_events* events) { return 2; }
EXPORT int32_t many(void** args, char* arena, const void* const* lib, const dc_events* events) {
  ((float*)args[60])[0] = *(float*)args[59];
  return 0;
}
EXPORT int32_t halves(void** args, char* arena, const void* const* lib, const dc_events* events) {
  for (int i = 0; i < 3; ++i) ((short*)args[1])[i] = ((short*)args[0])[2 - i];
  return 0;
}
EXPORT int32_t wait_for(void** args, char* arena, const void* const* lib, const dc_events* events) {
  while (*(volatile float*)args[0] == 0) {}
  return 0;
}
"""
)
META = TensorMeta((2, 3), float32)
ONE = TensorMeta((), float32)
COMBINE = EntryPoint("combine", (META, META), (META, META), 64)
A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones((2, 3), np.float32)
C = np.full((2, 3), 9, np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    place: Path = tmp_path_factory.mktemp("native") / "library.so"
    build_library({"main": SOURCE}, place, find_toolchain())
    return load_library(place)


@pytest.fixture(params=["by layout", "by address"])
def combine(request, library, monkeypatch) -> NativeExecutable:
    if request.param == "by address":
        monkeypatch.setattr("compiler_core.runtime.executor.array_layout", lambda: None)
    return NativeExecutable(COMBINE, library, [C])


def test_fresh_outputs(combine) -> None:
    out, constant = combine([A, B])
    np.testing.assert_array_equal(out, A + 2)
    np.testing.assert_array_equal(constant, C)


def test_outputs_go_where_the_caller_says(combine) -> None:
    flat = np.zeros(12, np.float32)
    place = flat[3:9].reshape(2, 3)
    out, other = combine([A, B], [place, None])
    assert out is place
    np.testing.assert_array_equal(flat, [0, 0, 0, *(A + 2).ravel(), 0, 0, 0])
    assert other is not None


@pytest.mark.parametrize(
    "strided", [np.asfortranarray(A), np.repeat(A, 2, 1)[:, ::2], A[::-1][::-1], A.copy()[:, ::-1][:, ::-1]]
)
def test_strided_inputs_are_made_contiguous(combine, strided) -> None:
    np.testing.assert_array_equal(combine([strided, B])[0], A + 2)


def test_a_strided_place_receives_its_output(combine) -> None:
    wide = np.zeros((2, 6), np.float32)
    combine([A, B], [wide[:, ::2], None])
    np.testing.assert_array_equal(wide[:, ::2], A + 2)
    np.testing.assert_array_equal(wide[:, 1::2], 0)


def test_unaligned_and_subclassed_inputs(combine) -> None:
    raw = np.zeros(25, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(2, 3)
    unaligned[...] = A
    np.testing.assert_array_equal(combine([unaligned, B])[0], A + 2)
    np.testing.assert_array_equal(combine([A.view(np.matrix), B])[0], A + 2)


def test_wrong_arrays_are_named(combine) -> None:
    with pytest.raises(ShapeError, match="input 1 of combine"):
        combine([A, B.T])
    with pytest.raises(DTypeError, match="input 0 of combine"):
        combine([A.astype(np.float64), B])
    with pytest.raises(ShapeError, match="place for output 1"):
        combine([A, B], [None, np.zeros(6, np.float32)])
    with pytest.raises(BackendError, match="takes 2 inputs, got 1"):
        combine([A])
    with pytest.raises(BackendError, match="2 outputs, got 1"):
        combine([A, B], [None])


def test_a_read_only_place_is_refused(combine) -> None:
    frozen = np.zeros((2, 3), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(BackendError, match="read-only"):
        combine([A, B], [frozen, None])
    frozen_input = A.copy()
    frozen_input.flags.writeable = False
    np.testing.assert_array_equal(combine([frozen_input, B])[0], A + 2)


def test_things_that_are_no_arrays(combine) -> None:
    with pytest.raises(ShapeError):
        combine([np.float32(3), B])
    with pytest.raises(DTypeError):
        combine([[[0, 0, 0], [0, 0, 0]], B])


def test_a_check_that_fails_raises_its_message(library) -> None:
    with pytest.raises(IndexError_, match="second message"):
        NativeExecutable(EntryPoint("fail", (), (), 0, ("first message", "second message")), library)([])


def test_bfloat16_arrays_fit(library) -> None:
    meta = TensorMeta((3,), bfloat16)
    native = NativeExecutable(EntryPoint("halves", (meta,), (meta,), 0), library)
    x = np.array([1, 2, 3], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(native([x])[0], x[::-1])
    np.testing.assert_array_equal(native([np.array([1, 2, 3]).astype(ml_dtypes.bfloat16)])[0], x[::-1])


def test_outputs_are_recycled_only_when_dropped(library) -> None:
    native = NativeExecutable(COMBINE, library, [C])
    first = native([A, B])[0]
    second = native([B, B])[0]
    np.testing.assert_array_equal(first, A + 2)
    np.testing.assert_array_equal(second, B * 3)
    addresses = {first.ctypes.data, second.ctypes.data}
    del first, second
    for _ in range(5):
        assert native([A, B])[0].ctypes.data in addresses


def test_the_gil_is_released(library) -> None:
    native = NativeExecutable(EntryPoint("wait_for", (ONE,), (), 0), library)
    flag = np.zeros((), np.float32)
    thread = threading.Thread(target=native, args=([flag],), daemon=True)
    thread.start()
    flag[...] = 1  # never reached if the call held the GIL
    thread.join(60)
    assert not thread.is_alive()


def test_threads_do_not_share_outputs(library) -> None:
    native = NativeExecutable(COMBINE, library, [C])
    wrong: list[float] = []

    def work(k: int) -> None:
        a = np.full((2, 3), k, np.float32)
        for _ in range(300):
            out = native([a, B])[0]
            if not (out == k + 2).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_entry_points_survive_json() -> None:
    entry = EntryPoint("f", (META, TensorMeta((), bfloat16)), (META,), 128, ("a", "b"))
    assert EntryPoint.from_json(entry.to_json()) == entry


def test_a_call_with_sixty_arguments_is_cheap(library) -> None:
    metas = tuple(TensorMeta((3, 4), float32) for _ in range(60))
    native = NativeExecutable(EntryPoint("many", metas, (ONE,), 0), library)
    arrays = [np.full((3, 4), k, np.float32) for k in range(60)]
    assert native(arrays)[0] == 59
    start = time.thread_time()
    for _ in range(1000):
        native(arrays)
    assert (time.thread_time() - start) / 1000 < 50e-6  # measured: 2 us; asking each array for its address: 60 us


def test_a_file_that_is_no_library(tmp_path) -> None:
    (tmp_path / "bad.so").write_bytes(b"not an ELF file")
    with pytest.raises(BackendError, match="cannot be loaded"):
        load_library(tmp_path / "bad.so")


def test_an_unknown_layout_is_said_once(monkeypatch) -> None:
    monkeypatch.setattr(layout, "_is_right", lambda _: False)
    layout.array_layout.cache_clear()
    try:
        with pytest.warns(log.DistCompileWarning, match="not laid out as expected"):
            assert layout.array_layout() is None
    finally:
        monkeypatch.undo()
        layout.array_layout.cache_clear()
    assert layout.array_layout() is not None
