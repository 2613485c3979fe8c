"""What a processor is and can do, as kernels report it."""
