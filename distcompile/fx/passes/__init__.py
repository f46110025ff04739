"""Passes over graphs of `distcompile.fx`."""
