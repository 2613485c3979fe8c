"""Checks and benchmarks of attention backends: each computes in a process of its own, beside float64."""
