"""Kernels written in Triton, and how they are launched. Nothing outside a kernel's `run` imports Triton.

The device code has been run by Triton's interpreter on a CPU, and compiled for sm80 to sm120. It has not
run on a GPU yet.
"""
