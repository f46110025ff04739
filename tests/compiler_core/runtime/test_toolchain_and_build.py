"""Finding the compiler, naming its absence, and building: errors say what to do and keep the source."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import pytest

from compiler_core.config import config
from compiler_core.errors import CompilerFailedError, CompilerNotFoundError
from compiler_core.runtime.build import build_library
from compiler_core.runtime.toolchain import cpu_identity, find_toolchain, vector_functions

ANSWER = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'


def test_no_compiler_names_the_remedy(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompilerNotFoundError, match="aot_eager") as caught:
        find_toolchain()
    assert "c++ or g++ or clang++" in caught.value.what


def test_a_named_compiler_is_taken_or_missed_by_name() -> None:
    with config.patch(cxx="no-such-compiler"), pytest.raises(CompilerNotFoundError, match="no-such-compiler"):
        find_toolchain()


def test_cxx_of_the_environment_comes_after_the_knob(monkeypatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerNotFoundError):
        find_toolchain()
    with config.patch(cxx="c++"):
        assert Path(find_toolchain().path).name == "c++"


def test_a_changed_compiler_or_flag_changes_the_key(tmp_path, monkeypatch) -> None:
    before = find_toolchain().key()
    with config.patch(cxx_flags="-DSOMETHING"):
        assert find_toolchain().key() != before
    copy = tmp_path / "c++"
    shutil.copy(find_toolchain().path, copy)
    with config.patch(cxx=str(copy)):
        assert find_toolchain().key() != before
    assert cpu_identity() in before


def test_vector_functions_come_in_pairs() -> None:
    names = vector_functions()
    assert not names or {"expf", "exp"} <= names


def test_two_units_link_into_one_library(tmp_path) -> None:
    units = {"main": "int half(); " + ANSWER.replace("42", "2 * half()"), "more": "int half() { return 21; }"}
    build_library(units, tmp_path / "library.so", find_toolchain())
    assert ctypes.CDLL(str(tmp_path / "library.so")).answer() == 42
    assert [p.name for p in tmp_path.iterdir()] == ["library.so"]


@pytest.mark.parametrize("others", [{}, {"more": "int half() { return 21; }"}], ids=["one unit", "two units"])
def test_a_rejected_source_is_kept_and_named(others, tmp_path) -> None:
    with pytest.raises(CompilerFailedError, match="not_declared") as caught:
        build_library({"main": "int f() { return not_declared; }", **others}, tmp_path / "l.so", find_toolchain())
    where = Path(re.findall(r"at: (\S+)", str(caught.value))[0])
    assert where.read_text() == "int f() { return not_declared; }"
    assert not (tmp_path / "l.so").exists()
    shutil.rmtree(where.parent)


def test_defines_reach_the_compiler(tmp_path) -> None:
    build_library({"main": ANSWER.replace("42", "N")}, tmp_path / "l.so", find_toolchain(), defines=["N=7"])
    assert ctypes.CDLL(str(tmp_path / "l.so")).answer() == 7
