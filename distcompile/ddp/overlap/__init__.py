"""Proof of overlap: what each rank computed, moved and waited for, step by step.

In: times recorded while training (`recorder.py`). Out: reports of one rank (`report.py`).
"""

from distcompile.ddp.overlap.recorder import FlightRecord, Recorder
from distcompile.ddp.overlap.report import OverlapReport, make_report
from distcompile.ddp.overlap.times import BucketTimes, Span, StepTimes, why_not_overlapped

__all__ = [
    "BucketTimes",
    "FlightRecord",
    "OverlapReport",
    "Recorder",
    "Span",
    "StepTimes",
    "make_report",
    "why_not_overlapped",
]
