"""What NVIDIA's driver, libraries and devices tell, in their own numbers."""
