"""The host layer of attention on NVIDIA GPUs, on top of cuda.core and cuda.bindings.

It has not run on a GPU yet: the tests run those bindings over a stand-in for the driver.
"""
