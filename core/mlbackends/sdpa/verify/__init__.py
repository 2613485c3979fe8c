"""Checks and benchmarks of attention backends, each in a separate process, against float64."""
