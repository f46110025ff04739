"""Definitions -> Program. `program.py` calls the rest in this order:

target.py    what the schedule is for: CPU or GPU
fuse.py      which definitions share a kernel (legality.py: Legal | Hazard)
kernel.py    a group as loops: passes over a row (stages.py), axes (space.py, chunks.py), expressions (translate.py),
             names and sharing (finish.py); scatter.py, scan.py and places.py for what goes one after the other
gpu.py       the same for a GPU: who runs which rows; online.py, gpu_scatter.py, gpu_lines.py
arena_plan.py   temps in one arena
"""
