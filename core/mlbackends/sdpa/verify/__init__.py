"""Attention backends put to the test: each in a process of its own, held to float64, and timed in turn."""
