"""A stand-in for NCCL and the streams of GPUs: ranks are threads, arrays are tests/fake_cupy's, work is lazy.

Out: `Fabric`, which gives every rank its `library` and `runtime`; `nccl_ranks`, which runs a function on ranks that
have an NcclCommunicator each.
What computes (the current stream) works at once, as NumPy does. What is enqueued on another stream is done only when
somebody needs it: when the current stream is told to wait for an event behind it, or the host waits for one. So a
result that is read without a wait is the value from before: a missing wait gives wrong numbers, every time. A
collective that does not first wait for what made its arrays is an AssertionError.
"""

from tests.fake_nccl.fabric import Fabric, nccl_ranks

__all__ = ["Fabric", "nccl_ranks"]
