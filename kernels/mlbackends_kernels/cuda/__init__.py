"""What computes on NVIDIA devices: the runtime, device memory, and NVIDIA's libraries, through ctypes."""
