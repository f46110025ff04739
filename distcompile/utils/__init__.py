"""torch.utils' path to `data`, so that swapped imports find it: `from distcompile.utils.data import DataLoader`.

In: nothing. Out: `distcompile.utils.data`.
"""
