"""Definitions -> Program. `from_graphs.py` lowers before; `program.py` calls the rest in this order:

fuse.py      which definitions share a kernel (legality.py: Legal | Hazard)
kernel.py    a group as loops: passes over a row (stages.py), axes (space.py, chunks.py), expressions (translate.py),
             names and sharing (finish.py); scatter.py, scan.py and places.py for what goes one after the other
gpu.py       the same for a GPU: who runs which rows; online.py, gpu_scatter.py, gpu_lines.py
arena_plan.py   temps in one arena
over_inputs.py  of a program that is made: which outputs may be written over which inputs
"""
