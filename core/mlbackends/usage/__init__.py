"""What uses the machine now: processes, cores, memory, GPUs, and the limits of the container."""
