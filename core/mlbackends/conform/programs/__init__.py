"""What runs in the inspected environment, by its Python, from 3.9 on: standard library and NumPy alone."""
