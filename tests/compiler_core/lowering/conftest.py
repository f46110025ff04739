"""The models and random graphs of the schedule's tests, here too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "schedule"))
