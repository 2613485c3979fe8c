"""What the operating system tells of itself and of its limits."""
