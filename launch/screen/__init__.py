"""What a job shows: output of its ranks, and the verdict at its end.

- `output.py`: The ranks' output on one screen: whole lines, each with its rank, and progress bars that rewrite
  their line.
- `relay.py`: Where a rank's three streams go: to the screen, to files, or both; and where its input comes from.
- `verdict.py`: What to say when a job has ended, and with which exit code.
"""
