"""The library of kernels/native/attention, called by ctypes: its levels, its threads, its problems."""
