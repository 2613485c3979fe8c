"""What Python packages say of themselves, read as text."""
