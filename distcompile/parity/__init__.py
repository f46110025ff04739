"""Gradient parity: compiled against eager, float64, finite differences, the joined batch, and over training steps.

In: a module and inputs. Out: a report; `check(..., raise_on_failure=True)` for tests, `distcompile parity` for people.
"""

from distcompile.parity.check import Judges, check
from distcompile.parity.errors import ParityError, ParityTargetError
from distcompile.parity.judge import Tolerance
from distcompile.parity.report import Finding, ParityReport, ParityRow

__all__ = ["Finding", "Judges", "ParityError", "ParityReport", "ParityRow", "ParityTargetError", "Tolerance", "check"]
