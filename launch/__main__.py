"""`python -m launch` is `distcompile-run`."""

from launch.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
