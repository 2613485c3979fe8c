"""flash_cuda's kernels: their source, what is compiled of it ahead of time, and what a problem launches."""
