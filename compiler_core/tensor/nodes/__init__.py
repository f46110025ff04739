"""Tape nodes as programs see them (`grad_fn`), with hooks of their own, and hooks on what nodes save."""
