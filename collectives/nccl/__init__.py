"""Collectives of arrays on GPUs: NCCL, its id and all agreement over a host communicator (MPI).

In: device arrays (CuPy's). Out: the same, reduced, broadcast, gathered, in the order of streams. CuPy and NCCL are
loaded at the first collective of a device array; arrays in host memory go the host communicator's way.
"""
