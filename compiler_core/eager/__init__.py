"""Eager definitions and gradients of composites: what the tape runs in place of the ops that they are made of."""
