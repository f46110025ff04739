"""Fourier transforms, and torch.fft and the windows over them.

- `fourier.py`: Discrete Fourier transforms without scaling: fft (complex), rfft (real to half), irfft (half to
  real).
- `frequencies.py`: The functions of torch.fft around the transforms: sample frequencies, and shifts of the zero
  frequency.
- `stft.py`: Short-time Fourier transforms: stft, istft.
- `transforms.py`: torch.fft's transforms: fft, ifft, rfft, irfft, hfft, ihfft, of one dim (n, dim), of two and of
  more (s, dim).
- `window_functions.py`: Window functions: torch.signal.windows, and torch.hann_window and its kin.
"""
