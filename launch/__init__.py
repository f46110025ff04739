"""distcompile-run: starts a program on N MPI ranks, shares the cores out, and ends the job cleanly when a rank fails.

Stands alone: imports none of our other packages and is imported by none, so it can start any Python program.
`cli.py` is the map; `child.py` is what runs inside each rank.
"""
