"""Errors, reasons, patterns, the registry, safe file reading: imports nothing else of ours."""
