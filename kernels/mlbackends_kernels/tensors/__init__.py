"""Tensors of other libraries as numpy arrays, and back."""
