"""`python -m distcompile`: the command `distcompile`, also where its script is not on the path, and on ranks."""

import sys

from distcompile.cli import main

if __name__ == "__main__":
    sys.exit(main())
