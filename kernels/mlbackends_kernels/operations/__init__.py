"""One file per operation: `run` computes it, with the switches that steer it.

This folder is a registry: `mlbackends_kernels.operations._call` reaches a file by its name.
"""
