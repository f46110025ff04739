"""distcompile-run: starts a program on N MPI ranks, shares the cores out, and ends the job cleanly when a rank fails.

Stands alone: imports none of our other packages, so it can start any Python program. Of it distcompile imports
`board.py` alone, the file that launcher and rank share.
`cli.py` is the map; `child.py` is what runs inside each rank.
"""
