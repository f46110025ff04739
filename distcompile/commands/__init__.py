"""The commands of `distcompile` that belong to no other room: what is stored, what is here, how options are read.

`distcompile/cli.py` is the list of all commands.
"""
