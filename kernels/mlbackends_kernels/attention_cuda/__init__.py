"""Attention on NVIDIA GPUs in CUDA C++: the source, its compilation, and its launches."""
