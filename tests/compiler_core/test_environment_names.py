"""Names in the environment: misspelt ones are told once, by the first rank; every name that the code reads is known."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from compiler_core.config import OTHER_NAMES, Config, check_environment
from compiler_core.log import DistCompileWarning

ROOT = Path(__file__).parents[2]


def test_a_misspelt_name_is_told_once_with_the_nearest() -> None:
    with pytest.warns(DistCompileWarning, match="^DISTCOMPILE_DEBG has no effect: did you mean DISTCOMPILE_DEBUG\\?$"):
        check_environment({"DISTCOMPILE_DEBG": "1", "DISTCOMPILE_CACHE_DIR": ""})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_environment({"DISTCOMPILE_DEBG": "1"})


def test_a_name_that_is_like_none() -> None:
    with pytest.warns(DistCompileWarning, match="DISTCOMPILE_QQQQ has no effect: distcompile reads no such name"):
        check_environment({"DISTCOMPILE_QQQQ": "1"})


@pytest.mark.parametrize(
    "environment",
    [
        {"DISTCOMPILE_DEBG": "1", "RANK": "1"},
        {"DISTCOMPILE_COPY_ENGINES": "0", "DISTCOMPILE_FUZZ_SEED": "3", "CUDA_LAUNCH_BLOCKING": "1"},
        {knob.env: "" for knob in Config.knobs().values()},
        dict.fromkeys(OTHER_NAMES, ""),
    ],
)
def test_known_names_and_other_ranks_are_silent(environment: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_environment(environment)


def test_every_name_that_the_code_reads_is_known() -> None:
    read = set()
    for folder in ("compiler_core", "collectives", "distcompile", "launch"):
        for path in (ROOT / folder).rglob("*.py"):
            read |= set(re.findall(r'"(DISTCOMPILE_[A-Z_]+[A-Z])"', path.read_text()))
    assert read <= {knob.env for knob in Config.knobs().values()} | OTHER_NAMES


def test_an_empty_cache_folder_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Config.cache_dir.env, "")
    assert Config.cache_dir.read_environment() == Config.cache_dir.default
    monkeypatch.setenv(Config.cache_dir.env, "here")
    assert Config.cache_dir.read_environment() == Path("here")
