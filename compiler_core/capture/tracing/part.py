"""What each part of the tracing semantics has of the segment, under the names by which they all speak of it.

In: a segment. Out: `Part`, whose other fields are the parts that it asks (`parts.py` hands them to it).
"""

from __future__ import annotations

from compiler_core.capture.segment import CaptureSegment
from compiler_core.records import dataclass


@dataclass(eq=False, repr=False)
class Part:
    """segment: under capture. Its own parts: where things are from, what is read, numbers, changes, code, names."""

    segment: CaptureSegment

    def __post_init__(self) -> None:
        segment = self.segment
        self.outside, self.contents, self.numbers = segment.outside, segment.contents, segment.numbers
        self.record, self.code, self.names = segment.record, segment.code, segment.names
