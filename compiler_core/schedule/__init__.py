"""Definitions -> Program. `program.py` calls the rest in this order:

fuse.py      which definitions share a kernel (legality.py: Legal | Hazard)
kernel.py    a group as loops: passes over a row (stages.py), axes (space.py, chunks.py), expressions (translate.py),
             names and sharing (finish.py); scatter.py for scatters
memory.py    temps in one arena
"""
