"""What things are called: torch's names and where each is implemented, the library's own name, and what was meant.

- `namespaces.py`: Namespaces made of what other modules hold: each public name stands once, in a table by module.
- `nearest.py`: The name that was probably meant.
- `spelling.py`: By what name printed values call the library: `distcompile.float32`, or `torch.float32` under
  `--as-torch`.
- `torch_rows.py`: What a word of torch's tables says: one word is one function, with every name and form under which
  users find it.
- `torch_table.py`: Torch's surface: each function of compiler_core once, with all its names and forms, in the row of
  its file.
"""
