"""A fault of the compiler as a script: found stage by stage, made small, run once more in a process of its own.

- `case.py`: What is tried again: a captured graph, what is wanted of it, and how far what two stages give may be
  apart.
- `ladder.py`: The stages of the pipeline, one after the other, on one case: the first that raises, or computes
  something else.
- `replay.py`: What DISTCOMPILE_DUMP wrote, run again from one of its stages on.
- `rules.py`: Is the gradient rule of an operation its derivative? Each call of a graph alone, in float64, by central
  differences.
- `script.py`: A fault as a script that somebody else can run: at most 30 lines, run once in a process of its own
  before it is told.
- `shrink.py`: A case made small, as long as it fails alike; what it needs for that it keeps.
- `watch.py`: What DISTCOMPILE_REPRO does: a fault is looked for where something is compiled, made small, and written as
  a script.
"""
