"""What computes on NVIDIA devices, through the bindings that NVIDIA keeps: cuda.core, cuda.bindings, nvmath.

None of it has run on a GPU yet: it is tested with those bindings over a stand-in of the driver.
"""
