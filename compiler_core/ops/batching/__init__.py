"""vmap: values of a whole batch (value.py), and how each op goes over them (rules.py)."""
