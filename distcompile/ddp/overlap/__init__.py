"""Proof of overlap: what each rank computed, moved and waited for, step by step.

In: times recorded while training (`recorder.py`). Out: reports of one rank (`report.py`), and of
all ranks on one clock (`job.py`): text, JSON, a Perfetto trace, a picture, a page.
"""

from distcompile.ddp.overlap.job import JobReport, gather_report
from distcompile.ddp.overlap.recorder import FlightRecord, StepRecorder, optimizer_spans
from distcompile.ddp.overlap.report import OverlapReport, make_report
from distcompile.ddp.overlap.times import BucketTimes, Span, StepTimes, why_not_overlapped

__all__ = [
    "BucketTimes",
    "FlightRecord",
    "JobReport",
    "OverlapReport",
    "Span",
    "StepRecorder",
    "StepTimes",
    "gather_report",
    "make_report",
    "optimizer_spans",
    "why_not_overlapped",
]
