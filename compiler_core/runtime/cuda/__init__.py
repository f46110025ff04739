"""What runs on a CUDA device: its driver, the memory of compiled programs, executables."""
