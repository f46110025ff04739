"""Sparse tensors: see tensor.py first, then rules.py."""
