"""Gradient parity: compiled against eager and a float64 reference, per parameter, local, reduced and across ranks.

In: a module and inputs. Out: a report; `check(..., raise_on_failure=True)` for tests, `distcompile parity` for people.
"""

from distcompile.parity.check import check
from distcompile.parity.errors import ParityError, ParityTargetError
from distcompile.parity.report import ParityReport, ParityRow, Tolerance

__all__ = ["ParityError", "ParityReport", "ParityRow", "ParityTargetError", "Tolerance", "check"]
