"""Knobs read their environment once, reject what they do not take, and only some enter the cache key."""

import warnings

import pytest

from compiler_core import errors, log
from compiler_core.capture import compile
from compiler_core.config import Config, config
from compiler_core.tensor.making.creation import ones


def test_environment_gives_the_value(monkeypatch):
    monkeypatch.setenv("DISTCOMPILE_DEBUG", "3")
    monkeypatch.setenv("DISTCOMPILE_LOGS", "guards, fusion")
    fresh = Config()
    assert fresh.debug == 3
    assert fresh.logs == {"guards", "fusion"}


def test_a_bad_value_names_the_variable(monkeypatch):
    monkeypatch.setenv("DISTCOMPILE_CACHE", "maybe")
    with pytest.raises(errors.ConfigError, match="DISTCOMPILE_CACHE='maybe'"):
        _ = Config().use_cache


@pytest.mark.parametrize("value", ["9", "-1", "all"])
def test_levels_that_there_are_not(monkeypatch, value):
    monkeypatch.setenv("DISTCOMPILE_DEBUG", value)
    with pytest.raises(errors.ConfigError, match=f"DISTCOMPILE_DEBUG='{value}' is not valid"):
        _ = Config().debug


def test_patch_restores_and_checks_names():
    before = config.debug
    with config.patch(debug=5):
        assert config.debug == 5
    assert config.debug == before
    with pytest.raises(errors.ConfigError, match="no such knob: debugg"), config.patch(debugg=1):
        pass


def test_only_codegen_knobs_enter_the_key():
    key = config.codegen_key()
    with config.patch(debug=5, dump_dir="somewhere"):
        assert config.codegen_key() == key
    with config.patch(fusion=not config.fusion):
        assert config.codegen_key() != key


def test_every_knob_has_a_doc():
    assert all(knob.__doc__ for knob in Config.knobs().values())


def test_log_levels_and_names(capsys):
    with config.patch(debug=0, logs=frozenset({"fusion"})):
        log.emit("fusion", "two\nlines")
        log.emit("guards", "nothing")
    assert capsys.readouterr().err == "[rank 0] fusion: two\n[rank 0] fusion: lines\n"
    with config.patch(logs=frozenset({"fusoin"})), pytest.raises(errors.ConfigError, match="fusoin"):
        log.emit("fusion", "x")


def test_dump_writes_one_file_per_stage(tmp_path):
    with config.patch(dump_dir=str(tmp_path)):
        log.dump("f_0", 2, "joint", "graph text")
    assert (tmp_path / "rank0" / "f_0" / "02_joint.txt").read_text() == "graph text"


def test_a_dump_that_cannot_be_written_names_the_knob():
    with config.patch(dump_dir="/proc/nowhere"), pytest.raises(errors.ConfigError, match="DISTCOMPILE_DUMP") as caught:
        compile(lambda x: x + 1, backend="aot_eager")(ones(2))
    assert "/proc/nowhere" in caught.value.got


def test_warn_once_warns_once():
    log.forget_warnings()
    with pytest.warns(log.DistCompileWarning, match="slow"):
        log.warn_once("k", "slow path")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log.warn_once("k", "slow path")


def test_error_text_has_what_where_expected_got_remedy():
    error = errors.ShapeError("bad", where="a.py:3", expected="[2]", got="[3]", remedy="fix it")
    assert str(error) == "bad\n  at: a.py:3\n  expected: [2]\n  got: [3]\n  what to do: fix it"
    assert isinstance(error, ValueError)
