"""The stand-ins of `distcompile/as_torch/table.py`, a file for each matter; `kinds.py` says what a stand-in is."""
