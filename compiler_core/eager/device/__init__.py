"""Eager definitions on a CUDA device: what eager/ has for the CPU, as kernels in CUDA C, cuDNN's and cuBLAS's calls."""
