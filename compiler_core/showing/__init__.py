"""What people look at: reports as tables, and what a compilation that lasts is doing.

- `grid.py`: A table of texts: as HTML in a notebook, as a rich table on a terminal.
- `notice.py`: A compilation that lasts says what it is doing: a line on stderr after two seconds, then more rarely.
- `timeline.py`: Compilations as a timeline: a page of text, and the trace that ui.perfetto.dev and chrome://tracing
  read.
"""
