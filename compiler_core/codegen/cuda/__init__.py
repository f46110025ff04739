"""Programs for a CUDA device: kernels as cubins, and the C++ host function that launches them."""
