"""Python bytecode of 3.11 to 3.13: decoding, frames, and a machine that runs them by the semantics it is given."""
