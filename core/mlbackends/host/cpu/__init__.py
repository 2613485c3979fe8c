"""What a processor is and can do, from what kernels tell of it."""
