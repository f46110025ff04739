"""Index arithmetic: `index.py` builds, simplifies and evaluates it, `index_text.py` prints it and reads it."""
