"""`python -m distcompile.as_torch script.py arguments...`, or `-m module ...`: run it with distcompile as torch.

In: a command line as Python's own. Out: the program has run as `__main__`. Raises what the program raises.
"""

from __future__ import annotations

import sys

from distcompile.as_torch.program import run

if __name__ == "__main__":
    run(sys.argv[1:])
