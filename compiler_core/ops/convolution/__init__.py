"""Convolution: the op and its gradients, the libraries that compute them, and torch's functions over them.

- `as_convolution.py`: The gradients of a convolution as convolutions: for engines that have that one alone.
- `composite.py`: Convolutions over any Value, with torch's names and arguments: conv1d/2d/3d,
  conv_transpose1d/2d/3d, fold, unfold.
- `cudnn.py`: Convolution and its two gradients as calls of cuDNN: routines that stand in programs, never in graphs.
- `depthwise.py`: The launches of depthwise convolutions on a CUDA device: one channel a group, forward and both
  gradients.
- `inner.py`: Convolution and its two gradients with channels innermost everywhere, the weight's too: what a GPU's
  kernels compute.
- `last.py`: Convolution and its two gradients with channels last in memory, as routines of oneDNN.
- `sizes.py`: The sizes of a convolution with channels innermost, as the constants of the Triton kernels name them.
- `op.py`: Convolution and its two gradients: convolution, convolution_input, convolution_weight.
"""
