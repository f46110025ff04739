"""Which gradients travel together, in which order, and where the backward is cut for them.

- `bucket_plan.py`: BucketPlan: which gradients travel together, in which order, and which backward segment
  completes each bucket.
- `layout.py`: Layout: one bucket plan made ready for use: where each gradient lies, and the buffers in which it
  does.
- `order.py`: In which order buckets leave when the next forward waits for them: those that it needs first go first.
- `pieces.py`: Pieces: the graphs that make up a step, and the one bucket plan over all of them.
- `plan_text.py`: A BucketPlan as text, and back: what ranks exchange when their plans differ, and what plan files
  hold.
- `splitter.py`: The splitter: a backward Graph cut into segments, one after the node that completes each bucket.
- `tail.py`: What a backward computes last: gradients that nobody waits for go behind a large one that is complete
  at its end.
"""
