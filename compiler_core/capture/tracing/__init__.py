"""The semantics by which the machine captures: Python's own, with sources, guards and effects beside."""
