"""CPython's own tests of the language, each test method interpreted: what passes by CPython passes by the machine.

Where the installation has them (the package `test`). Methods that break are left out: they look at frames, or use what
is not supported.
"""

from __future__ import annotations

import importlib
import io
import sys
import types
import unittest
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bytecode_oracle as oracle

from compiler_core.bytecode.semantics import Break

MODULES = [
    *("grammar", "patma", "with", "scope", "listcomps", "class", "fstring", "contextlib", "super", "raise", "unpack"),
    *("named_expressions", "keywordonlyarg", "positional_only_arg", "textwrap", "generators", "decorators", "slice"),
]
# they trace lines, ask whether a generator is CPython's own, send signals, count references to frames, or compare a
# traceback's frame, a stub here, with the frame
NOT_MEANT = {
    *("TestTracing", "SignalAndYieldFromTest", "FinalizationTest", "test_gen_3_arg_deprecation_warning"),
    *("test_name", "test_gi_frame_f_back", "test_except_throw_bad_exception"),
    "test_attrs",
}


def call(self: unittest.TestCase, method: Any) -> None:
    """unittest.TestCase._callTestMethod, by the machine."""
    if not isinstance(method, types.MethodType) or type(method.__func__) is not types.FunctionType:
        method()
        return
    try:
        oracle.interpret(method.__func__, self)
    except Break as error:
        raise unittest.SkipTest(error.reason) from None


def run(module: types.ModuleType) -> unittest.TestResult:
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    kept = unittest.TestSuite(test for test in flat(suite) if not NOT_MEANT & set(test.id().split(".")))
    return unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(kept)


def flat(suite: Any) -> Any:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        elif not isinstance(test, unittest.loader._FailedTest) and hasattr(test, "_testMethodName"):  # type: ignore[attr-defined]
            yield test


def failed(result: unittest.TestResult) -> dict[str, str]:
    return {test.id(): text for test, text in result.failures + result.errors}


@pytest.mark.long
@pytest.mark.parametrize("name", MODULES)
def test_cpythons_own_tests_pass_interpreted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip(f"test.test_{name}", reason="CPython's tests are not installed")
    expected = run(importlib.reload(module))
    monkeypatch.setattr(unittest.TestCase, "_callTestMethod", call)
    result = run(module)
    assert result.testsRun == expected.testsRun > 0
    assert {test: text for test, text in failed(result).items() if test not in failed(expected)} == {}
