"""Windows that slide over an array, and pooling over them.

- `adaptive.py`: Adaptive pooling over any Value, with torch's names and arguments: average and maximum into a given
  size.
- `composite.py`: Pooling over any Value, with torch's names and arguments: max, average, LP; and unpooling.
- `decomposed.py`: The ops of windows.py in terms of the core set.
- `fractional.py`: Fractional max pooling over any Value: maxima of windows whose distances vary at random (Graham
  2014).
- `geometry.py`: Where sliding windows lie: how many, which elements, with which strides, and the order of dims beside
  them.
- `inner.py`: The maximum over sliding windows, and its backward, with channels innermost: what a GPU's kernels
  compute.
- `windows.py`: Sliding windows over the last dims of an array: windows, windows_add (its adjoint), windows_put,
  window_sum.
- `windows_maximum.py`: The backward of a maximum over sliding windows as one op, `window_max_put`, and as a routine
  in C++.
"""
