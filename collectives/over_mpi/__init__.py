"""Collectives over MPI: the library, the transport, and the engine in Python.

- `kept.py`: Memory that MPI may still touch when nobody waits for it any more: it stays for as long as the process.
- `library.py`: MPI loaded and started, within a time limit: MPI_Init waits for all ranks, and some never come.
- `objects.py`: The object channel of an MPI communicator: pickled values, exchanged in the calling thread, within a
  time limit.
- `point_to_point.py`: Messages between two ranks over MPI: matched by sender and tag, in order; sizes and dtypes
  checked on arrival.
- `rollcall.py`: Roll call: all ranks tell each other which collective they enter, before any data moves.
- `thread_engine.py`: The communication thread in Python: issues array collectives over MPI strictly in launch
  order.
- `transfer.py`: One array collective over MPI, once all ranks are present: chunks, data types, reductions.
- `transport.py`: The MPI transport: three duplicated communicators, and one engine that runs the array collectives.
"""
